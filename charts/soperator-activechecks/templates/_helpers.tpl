{{- define "soperator-activechecks.labels" -}}
app.kubernetes.io/name: soperator-activechecks
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: isthmus
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The checks by the keys of their values, in the order in which they depend on each other. */}}
{{- define "soperator-activechecks.checks" -}}
- {key: createUserSoperatorChecks, name: create-user-soperatorchecks, type: k8sJob, after: []}
- {key: waitForSoperatorchecksSrunReady, name: wait-for-soperatorchecks-srun-ready, type: slurmJob, after: [create-user-soperatorchecks]}
- {key: waitForTopology, name: wait-for-topology, type: slurmJob, after: [create-user-soperatorchecks]}
- {key: gpuChecks, name: gpu-checks, type: slurmJob, each: true, deadline: 14400, after: [create-user-soperatorchecks, wait-for-soperatorchecks-srun-ready, wait-for-topology]}
- {key: dcgmiDiagR3, name: dcgmi-diag-r3, type: slurmJob, each: true, deadline: 28800, after: [create-user-soperatorchecks, wait-for-soperatorchecks-srun-ready, wait-for-topology]}
- {key: ensureHealthyNodes, name: ensure-healthy-nodes, type: slurmJob, after: [gpu-checks]}
{{- end -}}
