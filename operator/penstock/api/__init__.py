"""The API: what users write (LLMBackend), what pods are told (ReplicaSettings, Policy), and what status says."""
