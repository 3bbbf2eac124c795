{{/* What everything is called. After the release: there is one for each Slurm. */}}
{{- define "slurm-exporter.name" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "slurm-exporter.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Labels by which Services and monitors find the pod. */}}
{{- define "slurm-exporter.selector" -}}
app.kubernetes.io/name: slurm-exporter
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: exporter
{{- end -}}

{{- define "slurm-exporter.labels" -}}
{{ include "slurm-exporter.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "slurm-exporter.account" -}}
{{- .Values.serviceAccount.name | default (include "slurm-exporter.name" .) -}}
{{- end -}}

{{- define "slurm-exporter.claim" -}}
{{- .Values.persistence.existingClaim | default (include "slurm-exporter.name" .) -}}
{{- end -}}

{{/* What both kinds of monitors have in common, for each port. Takes the values of one. */}}
{{- define "slurm-exporter.endpoints" -}}
{{- $drop := list (dict "action" "labeldrop" "regex" "pod|instance|container") -}}
{{- range $port := list "metrics" "monitoring" }}
- port: {{ $port }}
  path: /metrics
  scheme: http
  interval: {{ $.interval }}
  scrapeTimeout: {{ $.scrapeTimeout }}
  metricRelabelings:
    {{- toYaml ($.metricRelabelings | default $drop) | nindent 4 }}
  {{- with $.relabelings }}
  relabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}
