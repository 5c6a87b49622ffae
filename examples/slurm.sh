#!/usr/bin/env bash
# Train on the machines of a SLURM job: one torchrun on each, and one process for each GPU.
#
#     sbatch examples/slurm.sh my.toml runs/mine [SETTING=VALUE ...]
#
# A job that SLURM requeues, after a preemption or the loss of a machine, resumes from its newest checkpoint by itself,
# since it keeps its number. Two minutes before the time limit the training saves and ends; go on with
# `sbatch examples/slurm.sh my.toml runs/mine --resume`. The run folder has to be on a file system of all machines.

#SBATCH --job-name=glassformer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120

set -euo pipefail

config=${1:?usage: sbatch slurm.sh CONFIG RUN [SETTING=VALUE ...]}
run=${2:?usage: sbatch slurm.sh CONFIG RUN [SETTING=VALUE ...]}
shift 2

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((29000 + SLURM_JOB_ID % 1000))                 # another one for each job that shares a machine

export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1           # so that torchrun can take a machine back
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=110             # seconds to save after SIGTERM; 30 by default

exec srun torchrun --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" --max-restarts 3 \
    --rdzv-backend c10d --rdzv-endpoint "$first:$port" --rdzv-id "$SLURM_JOB_ID" \
    -m -- glassformer train "$config" --run "$run" "$@"
