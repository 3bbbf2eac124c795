#!/bin/bash
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --deadline=now+4hours
#SBATCH --time=50
# Looks at the GPUs of one node. Exit codes: 0 passed, 1 the node is bad, 75 it is not known.
set -uo pipefail

bad() {
    echo "gpu-checks: $*" >&2
    exit 1
}
unknown() {
    echo "gpu-checks: cannot tell: $*" >&2
    exit 75
}

node=${SLURMD_NODENAME:-$(hostname)}
shown=$(scontrol --oneliner show node "$node") || unknown "scontrol failed"
# Gres=gpu:h100:8(S:0-1),shard:16 - all kinds of GPUs together.
expected=$(sed -n 's/.* Gres=\([^ ]*\).*/\1/p' <<< "$shown" | sed 's/([^)]*)//g' | tr ',' '\n' |
    awk -F: '$1 == "gpu" { sum += $NF } END { print sum + 0 }')
[ "$expected" -gt 0 ] || exit 0 # Slurm expects no GPU here

command -v nvidia-smi > /dev/null || unknown "there is no nvidia-smi"
listed=$(timeout 60 nvidia-smi --list-gpus 2>&1) || bad "nvidia-smi failed: $(head -1 <<< "$listed")"
there=$(grep -c '^GPU ' <<< "$listed")
[ "$there" -ge "$expected" ] || bad "$there of $expected GPUs are there"

query() { timeout 60 nvidia-smi --query-gpu="index,$1" --format=csv,noheader,nounits; }
while IFS=', ' read -r index errors; do
    [[ $errors =~ ^[0-9]+$ ]] || continue # a GPU without ECC
    [ "$errors" -eq 0 ] || bad "GPU $index has $errors uncorrected memory errors"
done < <(query ecc.errors.uncorrected.volatile.total)

remapped() { timeout 60 nvidia-smi --query-remapped-rows="gpu_bus_id,$1" --format=csv,noheader,nounits 2> /dev/null; }
while IFS=', ' read -r bus failed; do
    [[ $failed =~ ^[0-9]+$ ]] || continue
    [ "$failed" -eq 0 ] || bad "row remapping failed on the GPU at $bus"
done < <(remapped remapped_rows.failure)

if command -v dcgmi > /dev/null && dcgmi discovery --list > /dev/null 2>&1; then
    said=$(timeout 600 dcgmi diag --run 2 2>&1)
    code=$?
    if grep -q 'Fail' <<< "$said"; then
        bad "dcgmi diag: $(grep -m1 'Fail' <<< "$said" | tr -s ' |' ' ')"
    fi
    [ "$code" -eq 0 ] || unknown "dcgmi diag ended with exit code $code"
fi
