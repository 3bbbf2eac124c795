#!/usr/bin/env bash
# Jobs: one with two tasks, an array, and one that waits for another.
source "$(dirname "$0")/common.sh"

work=$(login mktemp -d /home/demo.XXXXXX)
trap 'login rm -rf "$work"' EXIT
submit() { login sbatch --parsable --chdir="$work" "$@"; }

say "A job with two tasks"
submit --wait --ntasks=2 --time=10:00 --output=job.out --wrap='srun hostname'
login cat "$work/job.out"
say "An array of four, two at a time"
submit --wait --array=1-4%2 --output='array-%a.out' --wrap='echo task $SLURM_ARRAY_TASK_ID on $(hostname)'
login sh -c "cat $work/array-*.out"
say "A job that waits for another"
first=$(submit --output=first.out --wrap='echo first')
submit --wait --dependency="afterok:$first" --output=second.out --wrap='echo second'
login cat "$work/first.out" "$work/second.out"
say "The queue is empty again"
login squeue
