#!/usr/bin/env bash
# SLURM: an array of shards, one GPU each. No Ray is needed. Submit it, and the merge after it:
#
#     job=$(sbatch --parsable --array=1-16 examples/clusters/slurm_array.sh mine.toml /shared/runs/mine 16)
#     sbatch --dependency=afterok:$job examples/clusters/slurm_merge.sh /shared/runs/mine 16
#
# A shard that was killed or ran out of time goes on if it is submitted again: --array=3,7 with the same arguments.
#SBATCH --job-name=whorl
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=%x-%A-%a.log
set -euo pipefail
file=$1 out=$2 shards=$3 # not SLURM_ARRAY_TASK_COUNT, which is another number when two shards are submitted again
shard=$SLURM_ARRAY_TASK_ID
exec whorl run "$file" --shard "$shard/$shards" --out "$out-$shard-of-$shards" --device "${DEVICE:-cuda}"
