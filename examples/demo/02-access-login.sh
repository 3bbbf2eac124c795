#!/usr/bin/env bash
# What users find when they log in: Slurm's commands, the shared file system, the other nodes.
source "$(dirname "$0")/common.sh"

say "Where Slurm's commands and their configuration are"
login which sbatch srun squeue sinfo
login ls -l /etc/slurm/slurm.conf
say "File systems"
login df -h / /home
say "The controller answers"
login scontrol ping
say "The workers have names"
for node in $(login sinfo --noheader --Node --format=%N | sort -u); do
    login getent hosts "$node" || fail "login-0 does not find $node"
done
say "How to log in from outside"
kubectl get services --namespace "$NAMESPACE" --selector app.kubernetes.io/component=login
