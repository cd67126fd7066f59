#!/usr/bin/env bash
# SLURM: puts the shards of slurm_array.sh together. The report's examples are evaluated, nothing else is computed.
#SBATCH --job-name=whorl-merge
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=32G
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail
out=$1 shards=$2
parts=()
for ((i = 1; i <= shards; i++)); do parts+=("$out-$i-of-$shards"); done
exec whorl merge "${parts[@]}" --out "$out" --device "${DEVICE:-cuda}"
