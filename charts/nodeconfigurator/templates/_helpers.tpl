{{- define "nodeconfigurator.name" -}}
{{- .Values.nameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "nodeconfigurator.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "nodeconfigurator.labels" -}}
app.kubernetes.io/name: nodeconfigurator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The account of the rebooter: ours, or the user's. */}}
{{- define "nodeconfigurator.account" -}}
{{- if .Values.rebooter.generateRBAC -}}
{{ include "nodeconfigurator.name" . }}-sa
{{- else -}}
{{ .Values.rebooter.serviceAccountName }}
{{- end -}}
{{- end -}}

{{/* What both kinds of containers have; of empty values, nothing is written. Takes the values of one. */}}
{{- define "nodeconfigurator.container" -}}
{{- $made := dict "enabled" .enabled -}}
{{- range $key := list "name" "env" "command" "nodeSelector" "resources" "livenessProbe" "readinessProbe" "tolerations" "affinity" "priorityClassName" "hostUsers" -}}
{{- if and (hasKey $ $key) (or (get $ $key) (eq $key "hostUsers")) -}}
{{- $_ := set $made $key (get $ $key) -}}
{{- end -}}
{{- end -}}
{{- if .image.repository -}}
{{- $image := dict "repository" .image.repository "pullPolicy" .image.pullPolicy -}}
{{- if .image.tag -}}{{- $_ := set $image "tag" (.image.tag | toString) -}}{{- end -}}
{{- $_ := set $made "image" $image -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}
