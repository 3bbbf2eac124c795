#!/usr/bin/env bash
# All in all: the cluster, its nodes, what is queued, and where to go from here.
source "$(dirname "$0")/common.sh"

say "The cluster"
kubectl get slurmclusters --namespace "$NAMESPACE"
say "Its nodes"
login sinfo --summarize
say "The queue"
login squeue
say "What happened last"
kubectl get events --namespace "$NAMESPACE" --sort-by=.metadata.creationTimestamp | tail -5
name=$(kubectl get slurmclusters --namespace "$NAMESPACE" --output jsonpath='{.items[0].metadata.name}')
cat << END

Go on from here:
  isthmus cluster ssh $name -n $NAMESPACE       log in
  isthmus doctor -n $NAMESPACE                  is anything wrong?
  kubectl patch slurmcluster $name -n $NAMESPACE --type=merge \\
    -p '{"spec":{"slurmNodes":{"worker":{"size":4}}}}'      more workers
END
