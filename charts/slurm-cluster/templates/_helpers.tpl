{{/* What the cluster is called. */}}
{{- define "slurm-cluster.name" -}}
{{- .Values.clusterName | default .Release.Name -}}
{{- end -}}

{{- define "slurm-cluster.labels" -}}
app.kubernetes.io/name: slurm-cluster
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: isthmus
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* A container of a node, with the chart's image and pull settings where it has none of its own.
     Takes (dict "root" $ "given" container "image" "slurmctld" "ours" "slurm"). */}}
{{- define "slurm-cluster.container" -}}
{{- $made := deepCopy (.given | default dict) -}}
{{- $image := index (.root.Values.images | default dict) .image -}}
{{- if and (not $image) .root.Values.slurmVersion .ours -}}
{{- $image = printf "isthmus.local/%s:%s" .ours .root.Values.slurmVersion -}}
{{- end -}}
{{- if and $image (not $made.image) -}}
{{- $_ := set $made "image" $image -}}
{{- end -}}
{{- if and .root.Values.imagePullPolicy (not $made.imagePullPolicy) -}}
{{- $_ := set $made "imagePullPolicy" .root.Values.imagePullPolicy -}}
{{- end -}}
{{- if and .root.Values.imagePullSecrets (not $made.imagePullSecrets) -}}
{{- $_ := set $made "imagePullSecrets" .root.Values.imagePullSecrets -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{/* A node as the SlurmCluster has it: without what is the chart's alone, and without what says nothing.
     Takes (dict "root" $ "given" node "container" "slurmctld" "image" "slurmctld" "ours" "slurm"). */}}
{{- define "slurm-cluster.node" -}}
{{- $made := omit (deepCopy (.given | default dict)) "nodeExporter" "rbac" "serviceAccount" -}}
{{- $container := include "slurm-cluster.container" (dict "root" .root "given" (index $made .container) "image" .image "ours" .ours) | fromYaml -}}
{{- $_ := set $made .container $container -}}
{{- $account := (.given | default dict).serviceAccount | default dict -}}
{{- /* Where soperator's chart makes the account, the operator makes one of its own. */ -}}
{{- if and $account.name (not $account.create) -}}
{{- $_ := set $made "serviceAccountName" $account.name -}}
{{- end -}}
{{- range $key, $value := $made -}}
{{- if or (kindIs "invalid" $value) (and (kindIs "map" $value) (not $value)) (and (kindIs "slice" $value) (not $value)) (and (kindIs "string" $value) (not $value)) -}}
{{- $_ := unset $made $key -}}
{{- end -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{/* What a values file of soperator's chart may set without effect here. */}}
{{- define "slurm-cluster.unused" -}}
{{- $found := list -}}
{{- range $key := list "nodeExporter" "cudaVersion" -}}
{{- if index $.Values $key -}}
{{- $found = append $found $key -}}
{{- end -}}
{{- end -}}
{{- range $key, $_ := omit ($.Values.slurmScripts | default dict) "enabled" "checks" "custom" -}}
{{- $found = append $found (printf "slurmScripts.%s" $key) -}}
{{- end -}}
{{- range $image := list "munge" "sssd" "populateJailRepository" "populateJailTag" "soperatorExporter" "sConfigController" "nodeExporter" -}}
{{- if index ($.Values.images | default dict) $image -}}
{{- $found = append $found (printf "images.%s" $image) -}}
{{- end -}}
{{- end -}}
{{- range $name, $node := .Values.slurmNodes -}}
{{- range $key := list "nodeExporter" "rbac" -}}
{{- if and (kindIs "map" $node) (index $node $key) -}}
{{- $found = append $found (printf "slurmNodes.%s.%s" $name $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key := list "rbac" "serviceMonitor" "nodeExporter" -}}
{{- if index ($.Values.sConfigController | default dict) $key -}}
{{- $found = append $found (printf "sConfigController.%s" $key) -}}
{{- end -}}
{{- end -}}
{{- join ", " $found -}}
{{- end -}}

{{/* Whether there is a shared root: null, as before, and `enabled: false` are no. */}}
{{- define "slurm-cluster.shared" -}}
{{- if not (or (kindIs "invalid" .Values.populateJail) (eq (toString (.Values.populateJail).enabled) "false")) -}}
true
{{- end -}}
{{- end -}}

{{/* Whether checks are delivered: they lie on the shared root. */}}
{{- define "slurm-cluster.scripts" -}}
{{- if and (.Values.slurmScripts | default dict).enabled (include "slurm-cluster.shared" .) -}}
true
{{- end -}}
{{- end -}}

{{/* checks.json: the shipped checks with what the values change in them, and then those of the values alone. */}}
{{- define "slurm-cluster.checks" -}}
{{- $given := deepCopy ((.Values.slurmScripts | default dict).checks | default dict) -}}
{{- $checks := list -}}
{{- range $shipped := .Files.Get "files/slurm_scripts/checks.json" | fromJsonArray -}}
{{- $check := merge (index $given $shipped.name | default dict) $shipped -}}
{{- $_ := unset $given $shipped.name -}}
{{- if ne (toString $check.enabled) "false" -}}
{{- $checks = append $checks (omit $check "enabled") -}}
{{- end -}}
{{- end -}}
{{- range $name, $own := $given -}}
{{- if ne (toString $own.enabled) "false" -}}
{{- $checks = append $checks (merge (dict "name" $name) (omit $own "enabled")) -}}
{{- end -}}
{{- end -}}
{{- toPrettyJson $checks -}}
{{- end -}}
