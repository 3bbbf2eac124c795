#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --time=5
# That this job runs shows that its user can submit; that its step runs shows that jobs can start programs.
set -euo pipefail
srun --ntasks=1 true
