{{/* What everything is called. Not after the release: webhooks, roles and the scheduler are one for the cluster. */}}
{{- define "slurm-bridge.name" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default "slurm-bridge" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "slurm-bridge.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Labels by which Services and budgets find pods. Takes (dict "root" $ "part" "scheduler"). */}}
{{- define "slurm-bridge.selector" -}}
app.kubernetes.io/name: {{ include "slurm-bridge.name" .root }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "slurm-bridge.labels" -}}
{{ include "slurm-bridge.selector" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* The configuration that the processes read, from both vocabularies. A key that is set to "" is set. */}}
{{- define "slurm-bridge.config" -}}
{{- $new := .Values.config | default dict -}}
{{- $config := dict
  "schedulerName" .Values.schedulerConfig.schedulerName
  "slurmRestApi" .Values.sharedConfig.slurmRestApi
  "managedNamespaces" (.Values.admission.managedNamespaces | default list)
  "managedNamespaceSelector" (.Values.admission.managedNamespaceSelector | default dict)
  "mcsLabel" .Values.schedulerConfig.mcsLabel
  "partition" .Values.schedulerConfig.partition
-}}
{{- if .Values.sharedConfig.slurmTlsSecret -}}
{{- $_ := set $config "slurmTlsDirectory" "/var/run/secrets/slurm-tls" -}}
{{- end -}}
{{- with .Values.sharedConfig.deviceProfiles -}}
{{- $_ := set $config "deviceProfiles" . -}}
{{- end -}}
{{- if .Values.completer.enabled -}}
{{- $_ := set $config "slurmCompleter" "http://127.0.0.1:6821" -}}
{{- end -}}
{{- range $key, $value := $new -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $config $key $value -}}
{{- end -}}
{{- end -}}
{{- if not $config.managedNamespaceSelector -}}
{{- $_ := unset $config "managedNamespaceSelector" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* What libslurm has to know to reach slurmctld: it comes with the token of the bridge, so no key is needed. */}}
{{- define "slurm-bridge.completer" -}}
ClusterName=bridge
{{- range .Values.completer.slurmctld }}
SlurmctldHost={{ . }}
{{- end }}
SlurmctldPort={{ .Values.completer.slurmctldPort }}
AuthType=auth/jwt
AuthAltTypes=auth/jwt
{{- end -}}

{{/* The processes to run, and what each is: (dict "scheduler" …). */}}
{{- define "slurm-bridge.processes" -}}
{{- $replicas := .Values.replicaCount -}}
{{- $features := (.Values.config | default dict).features | default dict -}}
{{- $schedulerElects := .Values.scheduler.leaderElect -}}
{{- $controllersElect := .Values.controllers.leaderElect -}}
{{- if not (kindIs "invalid" $features.enableLeaderElection) -}}
{{- $schedulerElects = $features.enableLeaderElection -}}
{{- $controllersElect = $features.enableLeaderElection -}}
{{- end -}}
{{- $scheduler := dict "replicas" ($replicas | default .Values.scheduler.replicaCount) "elects" $schedulerElects "slurm" true "webhook" false "settings" .Values.scheduler -}}
{{- $controllers := dict "replicas" ($replicas | default .Values.controllers.replicas) "elects" $controllersElect "slurm" true "webhook" false "settings" .Values.controllers -}}
{{- $admission := dict "replicas" ($replicas | default .Values.admission.replicas) "elects" false "slurm" false "webhook" true "settings" .Values.admission -}}
{{- if .Values.allInOne -}}
{{- $all := dict "replicas" $scheduler.replicas "elects" $schedulerElects "slurm" true "webhook" .Values.admission.enabled "settings" .Values.scheduler -}}
{{- toYaml (dict "all" $all) -}}
{{- else if .Values.admission.enabled -}}
{{- toYaml (dict "scheduler" $scheduler "controllers" $controllers "admission" $admission) -}}
{{- else -}}
{{- toYaml (dict "scheduler" $scheduler "controllers" $controllers) -}}
{{- end -}}
{{- end -}}

{{/* The service account under which a part of the work is done: its own, or that of all. */}}
{{- define "slurm-bridge.account" -}}
{{- if .root.Values.allInOne -}}
{{ include "slurm-bridge.name" .root }}-all
{{- else -}}
{{ include "slurm-bridge.name" .root }}-{{ .part }}
{{- end -}}
{{- end -}}

{{/* Not empty if a ServiceMonitor is wanted and possible. */}}
{{- define "slurm-bridge.monitored" -}}
{{- if and .Values.metrics.serviceMonitor.enabled (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}
yes
{{- end -}}
{{- end -}}

{{/* How metrics are served: `features.secureMetrics` means https, with a certificate that nobody has signed. */}}
{{- define "slurm-bridge.scheme" -}}
{{- $features := (.Values.config | default dict).features | default dict -}}
{{- ternary "https" "http" (eq (toString $features.secureMetrics) "true") -}}
{{- end -}}

{{/* Where the webhook server is found. */}}
{{- define "slurm-bridge.webhook" -}}
service:
  name: {{ include "slurm-bridge.name" .root }}-admission
  namespace: {{ include "slurm-bridge.namespace" .root }}
  path: {{ .path }}
  port: 443
{{- end -}}
