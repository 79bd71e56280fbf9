{{/* What releases of this chart are called: `penstock`, or `team-a-penstock` for a release `team-a`. */}}
{{- define "penstock.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The operator's name: its Deployment, ServiceAccount and Roles. */}}
{{- define "penstock.operator" -}}
{{- printf "%s-operator" (include "penstock.fullname" .) -}}
{{- end -}}

{{/* A Deployment's selector can never change, so these hold nothing that an upgrade may change. */}}
{{- define "penstock.selectorLabels" -}}
app.kubernetes.io/name: penstock-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of everything in the release. */}}
{{- define "penstock.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "penstock.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: penstock
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "penstock.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "penstock.operator" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The image by digest if there is one, else by tag. */}}
{{- define "penstock.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/*
A setting as its environment variable spells it: lists with commas, maps as NAME=VALUE with commas, numbers without an
exponent.
*/}}
{{- define "penstock.setting" -}}
{{- if kindIs "string" . -}}
{{- . -}}
{{- else if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if kindIs "map" . -}}
{{- $entries := list -}}
{{- range $name, $value := . -}}
{{- if $value -}}
{{- $entries = append $entries (printf "%s=%s" $name $value) -}}
{{- end -}}
{{- end -}}
{{- join "," $entries -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}
