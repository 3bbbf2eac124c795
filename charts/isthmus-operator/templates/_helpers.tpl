{{/* What everything is called. Not after the release: kinds, webhooks and roles are one for the cluster. */}}
{{- define "isthmus-operator.name" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default (ternary "soperator-manager" "isthmus-operator" .Values.soperatorNames) | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "isthmus-operator.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Labels by which Services and budgets find pods. */}}
{{- define "isthmus-operator.selector" -}}
app.kubernetes.io/name: {{ include "isthmus-operator.name" . }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "isthmus-operator.labels" -}}
{{ include "isthmus-operator.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The image of the operator, which also fills shared roots. */}}
{{- define "isthmus-operator.image" -}}
{{- $image := .Values.operator.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{- define "isthmus-operator.account" -}}
{{- .Values.operator.serviceAccount.name | default (include "isthmus-operator.name" .) -}}
{{- end -}}

{{/* The namespaces that are looked after, as {"names": […]}; none for all. */}}
{{- define "isthmus-operator.namespaces" -}}
{{- $given := .Values.operator.namespaces | default list -}}
{{- if kindIs "string" $given -}}
{{- $given = splitList "," (nospace $given) -}}
{{- end -}}
{{- toYaml (dict "names" (compact $given | uniq)) -}}
{{- end -}}

{{/* Not empty if a ServiceMonitor is wanted and possible. */}}
{{- define "isthmus-operator.monitored" -}}
{{- if and .Values.metrics.serviceMonitor.enabled (int .Values.operator.metricsPort) (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}
yes
{{- end -}}
{{- end -}}

{{/* Where the webhook server is found. Takes (dict "root" $ "path" "/validate"). */}}
{{- define "isthmus-operator.webhook" -}}
service:
  name: {{ include "isthmus-operator.name" .root }}-webhook
  namespace: {{ include "isthmus-operator.namespace" .root }}
  path: {{ .path }}
  port: 443
{{- end -}}
