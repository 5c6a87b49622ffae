"""Several processes of one training: started on this machine, or joined where ``torchrun`` has started them."""

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from glassformer.cli.messages import message
from glassformer.cli.process import LAUNCHER

RUN = "glassformer-"
"""Prefix of the name that ``launch`` gives to a training."""
STORE = "GLASSFORMER_STORE"
"""Environment variable with the file by which the processes of one machine find each other, instead of a port."""


def started_by_launcher() -> bool:
    """True in a process of ``torchrun`` or of ``launch``."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def restarts() -> int:
    """Number of times that the launcher has started this training anew."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def threads_of_one() -> int:
    """Threads of one process, so that all on this machine have a core each; 0, PyTorch's choice, for a single one."""
    from glassformer.train.host_process import available_cores

    n = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, available_cores() // n) if n > 1 else 0


def launch(n: int, wait_seconds: float) -> int:
    """Run this command in ``n`` processes on this machine and return the exit code of the first one that failed.

    They find each other by a file and talk over the loopback interface, so that no port is open to other machines.
    After a signal they have ``wait_seconds`` to end a validation and to save.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # each process prints its own error; loggers of PyTorch set levels of their own
    with tempfile.TemporaryDirectory(prefix="glassformer-") as folder:
        os.environ[STORE] = str(Path(folder, "workers"))
        os.environ[LAUNCHER] = str(os.getpid())
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # else the launcher opens a port
        os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(round(wait_seconds))
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=n,
            run_id=f"{RUN}{os.getpid()}",
            rdzv_backend="c10d",
            rdzv_endpoint=str(Path(folder, "rendezvous")),
            rdzv_configs={"store_type": "file"},
            local_addr="localhost",
            max_restarts=0,
            monitor_interval=0.1,
        )
        try:
            elastic_launch(config, sys.executable)("-m", "glassformer", *sys.argv[1:])
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode < 0:
                name = signal.Signals(-failure.exitcode).name
                message(f"glassformer: error: process {rank} was ended by {name}; continue with --resume")
                return 128 - failure.exitcode
            return failure.exitcode
        except SignalException as stopped:
            return 128 + int(stopped.sigval)
    return 0


@contextmanager
def joined(processes: int, wait_seconds: float, cuda: bool) -> Iterator[None]:
    """In this block the processes that the launcher has started are one process group; alone, nothing is opened.

    They leave it together. ``ConfigError``: the launcher has started another number than ``processes``, if that is
    more than one, or more than there are GPUs.
    """
    if not started_by_launcher() or os.environ.get("WORLD_SIZE") == "1":
        yield
        return
    import torch
    import torch.distributed as dist

    from glassformer.errors import ConfigError
    from glassformer.train.distributed import World, watching_peers

    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if processes not in (1, size):
        raise ConfigError(f"--processes {processes}, but the launcher has started {size}; leave --processes out")
    if cuda and local > (gpus := torch.cuda.device_count()):
        raise ConfigError(f"{local} processes, but this machine has {gpus} GPUs; start {gpus}, or set train.device=cpu")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    own = os.environ["TORCHELASTIC_RUN_ID"].startswith(RUN)
    with watching_peers(World(rank, size)):
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            init_method=f"file://{os.environ[STORE]}" if own else "env://",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=wait_seconds),
        )
        yield
        dist.barrier()
        dist.destroy_process_group()


def end_process(code: int) -> None:
    """End this process without Python's shut-down, in which threads of PyTorch may abort."""
    with suppress(OSError, ValueError):  # a reader that has gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
