#!/usr/bin/env bash
# Is the cluster there? Its namespace, pods, Services and volumes.
source "$(dirname "$0")/common.sh"

say "Clusters in namespace $NAMESPACE"
kubectl get slurmclusters --namespace "$NAMESPACE"
say "Pods"
kubectl get pods --namespace "$NAMESPACE" --output wide
say "Services"
kubectl get services --namespace "$NAMESPACE"
say "Volumes"
kubectl get persistentvolumeclaims --namespace "$NAMESPACE"
say "Ready?"
kubectl wait slurmcluster --all --for=condition=Ready --namespace "$NAMESPACE" --timeout=180s
