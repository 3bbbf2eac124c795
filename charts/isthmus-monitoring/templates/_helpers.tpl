{{- define "isthmus-monitoring.labels" -}}
app.kubernetes.io/name: isthmus-monitoring
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/*
The rules of files/rules.yaml with the values put in. Values that change nothing are refused: a misspelt threshold would
leave an alert as it was, and nobody would notice.
*/}}
{{- define "isthmus-monitoring.rules" -}}
{{- $root := . -}}
{{- $groups := list -}}
{{- $known := dict -}}
{{- range $group := (.Files.Get "files/rules.yaml" | fromYaml).groups -}}
  {{- $rules := list -}}
  {{- range $rule := $group.rules -}}
    {{- if $rule.alert -}}
      {{- $settings := get $root.Values.alerts $rule.alert | default dict -}}
      {{- $used := get $known $rule.alert | default dict -}}
      {{- range $key := list "enabled" "for" "severity" -}}{{- $_ := set $used $key true -}}{{- end -}}
      {{- range $key, $value := $settings -}}
        {{- $pattern := printf "[-+.0-9eE]+ # %s\\b" $key -}}
        {{- if regexMatch $pattern $rule.expr -}}
          {{- $_ := set $used $key true -}}
          {{- $_ := set $rule "expr" (regexReplaceAll $pattern $rule.expr (printf "%s # %s" ($value | toJson | trimAll "\"") $key)) -}}
        {{- end -}}
      {{- end -}}
      {{- $_ := set $known $rule.alert $used -}}
      {{- if $settings.for -}}{{- $_ := set $rule "for" $settings.for -}}{{- end -}}
      {{- if $settings.severity -}}{{- $_ := set $rule.labels "severity" $settings.severity -}}{{- end -}}
      {{- $page := printf "%s/%s.md" ($root.Values.runbooks | trimSuffix "/") $rule.alert -}}
      {{- $_ := set $rule "annotations" (merge (dict "runbook_url" $page) $rule.annotations) -}}
      {{- if ne (toString $settings.enabled) "false" -}}{{- $rules = append $rules $rule -}}{{- end -}}
    {{- else -}}
      {{- $rules = append $rules $rule -}}
    {{- end -}}
  {{- end -}}
  {{- if $rules -}}{{- $groups = append $groups (dict "name" $group.name "rules" $rules) -}}{{- end -}}
{{- end -}}
{{- range $alert, $settings := .Values.alerts -}}
  {{- $used := get $known $alert | default dict -}}
  {{- if not $used -}}{{- fail (printf "alerts.%s: there is no such alert" $alert) -}}{{- end -}}
  {{- range $key, $_ := $settings -}}
    {{- if not (hasKey $used $key) -}}{{- fail (printf "alerts.%s.%s: this alert has no such threshold" $alert $key) -}}{{- end -}}
  {{- end -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
{{- end -}}

{{/* Whether the Prometheus operator is there to read a PrometheusRule. */}}
{{- define "isthmus-monitoring.operated" -}}
{{- if .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}true{{- end -}}
{{- end -}}
