{{/*
What the operator may do where it serves backends, in alphabetical order of group and resource: what a backend owns is
made, repaired and deleted; the rest is read. Secrets are not among it. A server-side apply is `patch`, and `create`
when the object is not there yet.
*/}}
{{- define "penstock.rules" -}}
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: [create, delete, get, list, patch, watch]
# Written: what happened to a backend. Listed: why a pod that is stuck cannot go on.
- apiGroups: [""]
  resources: [events]
  verbs: [create, list, patch]
# Why pods are refused: a range of limits, the namespace's Pod Security level, a quota. Whether a claim that a backend
# names exists and fits.
- apiGroups: [""]
  resources: [limitranges]
  verbs: [list]
- apiGroups: [""]
  resources: [namespaces, persistentvolumeclaims, resourcequotas]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [controllerrevisions, deployments]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [serving.penstock.dev]
  resources: [llmbackends]
  verbs: [list, watch]
# Children block the deletion of their backend; setting that needs this right where the cluster checks it.
- apiGroups: [serving.penstock.dev]
  resources: [llmbackends/finalizers]
  verbs: [update]
- apiGroups: [serving.penstock.dev]
  resources: [llmbackends/status]
  verbs: [patch]
{{- end -}}

{{/* The subject of every binding. */}}
{{- define "penstock.subjects" -}}
- kind: ServiceAccount
  name: {{ include "penstock.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
