#!/usr/bin/env bash
# SLURM: one run on a Ray cluster of several machines, which hands chunks to whichever GPU is free.
#
#     sbatch --nodes=4 examples/clusters/slurm_ray.sh mine.toml /shared/runs/mine
#
# The data set and the run folder must be on a disk that all machines share. Submitted again, it goes on.
#SBATCH --job-name=whorl-ray
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=32
#SBATCH --mem=128G
#SBATCH --time=08:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail
file=$1 out=$2 port=6379
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}')
srun --nodes=1 --ntasks=1 -w "$head" \
    ray start --head --node-ip-address="$address" --port=$port --num-gpus="$SLURM_GPUS_ON_NODE" --block &
sleep 20 # until the head listens
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 -w "$node" \
        ray start --address="$address:$port" --num-gpus="$SLURM_GPUS_ON_NODE" --block &
done
sleep 20
RAY_ADDRESS=$address:$port whorl run "$file" --out "$out" --engine ray --device cuda
