"""Penstock: a Kubernetes operator that serves LLMs behind an admission-controlling sidecar."""
