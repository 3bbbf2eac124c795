#!/usr/bin/env bash
# How Slurm is: its daemons, partitions and nodes, as Slurm itself sees them.
source "$(dirname "$0")/common.sh"

say "Daemons, and where they run"
kubectl get pods --namespace "$NAMESPACE" --output \
    custom-columns=POD:.metadata.name,CONTAINERS:.spec.containers[*].name,INIT:.spec.initContainers[*].name,NODE:.spec.nodeName
say "Version, name of the cluster, scheduler"
login scontrol show config | grep -E '^(SLURM_VERSION|ClusterName|SchedulerType|SelectType|AuthType) '
say "Partitions"
login sinfo
say "Nodes"
login sinfo --Node --format='%.16N %.10T %.5c %.8m %.20E'
down=$(login sinfo --noheader --states=down,drain,fail --format=%N)
[[ -z $down ]] || fail "these nodes are out of service: $down; ask why: kubectl exec -n $NAMESPACE login-0 -- sinfo -R"
