{{/* What everything is called. Not after the release: there is one for a Kubernetes cluster. */}}
{{- define "soperatorchecks.name" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default "soperatorchecks" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "soperatorchecks.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Labels by which the Service finds pods. */}}
{{- define "soperatorchecks.selector" -}}
app.kubernetes.io/name: soperatorchecks
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "soperatorchecks.labels" -}}
{{ include "soperatorchecks.selector" . }}
app.kubernetes.io/component: soperatorchecks
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "soperatorchecks.account" -}}
{{- .Values.checks.serviceAccount.name | default (include "soperatorchecks.name" .) -}}
{{- end -}}

{{/* The namespaces that are looked after, as {"names": […]}; none for all. */}}
{{- define "soperatorchecks.namespaces" -}}
{{- $given := splitList "," (nospace (.Values.checks.manager.env.slurmOperatorWatchNamespaces | default "")) -}}
{{- toYaml (dict "names" (without (compact $given | uniq) "*")) -}}
{{- end -}}

{{/* Not empty if a ServiceMonitor is wanted and possible. */}}
{{- define "soperatorchecks.monitored" -}}
{{- if and .Values.serviceMonitor.enabled (int .Values.checks.manager.metricsPort) (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}
yes
{{- end -}}
{{- end -}}
