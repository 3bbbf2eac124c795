# What the scripts of this directory have in common. They look at the cluster of one namespace:
#
#   NAMESPACE=slurm ./01-check-cluster.sh
#
# kubectl uses the current context; on the local cluster: export KUBECONFIG=$(isthmus kubeconfig)
set -euo pipefail
NAMESPACE=${NAMESPACE:-correct-cpu-cluster}

say() { printf '\n== %s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
login() { kubectl exec --namespace "$NAMESPACE" login-0 -- "$@"; }

command -v kubectl > /dev/null || fail "kubectl is not installed; on the local cluster: alias kubectl='isthmus kubectl'"
[[ $(kubectl get slurmclusters --namespace "$NAMESPACE" --output name) ]] ||
    fail "there is no SlurmCluster in namespace $NAMESPACE: set NAMESPACE to one of $(kubectl get slurmclusters \
        --all-namespaces --output jsonpath='{.items[*].metadata.namespace}')"
