#!/usr/bin/env bash
# One machine, several GPUs: a shard on each, then the merge. No Ray is needed.
#
#     examples/clusters/several_gpus.sh mine.toml runs/mine          # every GPU that nvidia-smi lists
#     examples/clusters/several_gpus.sh mine.toml runs/mine 0 2 3    # these three
#
# Stopped or killed, the same command goes on. DEVICE=cpu runs as many shards on the CPU.
set -euo pipefail
file=$1 out=$2
shift 2
gpus=("$@")
[ ${#gpus[@]} -gt 0 ] || mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader)
count=${#gpus[@]} device=${DEVICE:-cuda}
parts=() jobs=()
mkdir -p "$(dirname "$out")"
for ((i = 0; i < count; i++)); do
    part="$out-$((i + 1))-of-$count"
    CUDA_VISIBLE_DEVICES=${gpus[i]} whorl run "$file" --shard "$((i + 1))/$count" --out "$part" --device "$device" \
        >"$part.log" 2>&1 &
    parts+=("$part") jobs+=($!)
done
failed=0
for ((i = 0; i < count; i++)); do
    wait "${jobs[i]}" || { echo "shard $((i + 1))/$count failed; see ${parts[i]}.log" >&2 && failed=1; }
done
[ "$failed" = 0 ] || exit 1
whorl merge "${parts[@]}" --out "$out" --device "$device"
