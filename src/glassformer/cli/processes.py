"""Several processes of one training: started on this machine, or joined where ``torchrun`` has started them."""

import logging
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from glassformer.cli.messages import message, visible
from glassformer.cli.process import LAUNCHER

if TYPE_CHECKING:
    from glassformer.train import RunConfig

T = TypeVar("T")

RUN = "glassformer-"
"""Prefix of the name that ``launch`` gives to a training."""
STORE = "GLASSFORMER_STORE"
"""Environment variable with the file by which the processes of one machine find each other, instead of a port."""

WAIT_WITH_ERROR = 60.0
"""Time in which processes meet to report an error in the configuration that says how long to wait."""
PRINTED, HEARD = "glassformer/printed", "glassformer/heard/"
"""Keys in the store of the process group: the error that process 0 has printed, and the acknowledgment of each rank."""
PRINT_SECONDS = 10.0
"""Time in which process 0 has printed an error that all processes end with."""
HEAR_SECONDS = 2.0
"""Time for which process 0, which may hold the store, stays for the others after an error."""


def started_by_launcher() -> bool:
    """True in a process of ``torchrun`` or of ``launch``."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def leads() -> bool:
    """True in the process that prints: the first of those that a launcher has started, or the only one."""
    return os.environ.get("RANK", "0") == "0" or not started_by_launcher()


def can_restart() -> bool:
    """True in a process of ``torchrun``, which may start the training anew; ``launch`` does not."""
    return "TORCHELASTIC_RESTART_COUNT" in os.environ and STORE not in os.environ


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
        os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(math.ceil(wait_seconds))
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
def joined(processes: int, read: "Callable[[], RunConfig]") -> "Iterator[RunConfig]":
    """The configuration; in this block the processes that the launcher has started are one process group.

    An error of ``read`` in any process becomes the error of all, so that the first one prints it, once. The processes
    leave the group together. A single process opens nothing.

    Raises:
        ConfigError: The launcher has started another number than ``processes``, if that is more than one, or more than
            there are GPUs; or the processes do not meet within ``train.wait_seconds``.
    """
    from glassformer.errors import ConfigError, GlassformerError

    if not started_by_launcher() or os.environ.get("WORLD_SIZE") == "1":
        if started_by_launcher() and processes > 1:
            raise ConfigError(f"--processes {processes}, but the launcher has started 1; leave --processes out")
        yield read()
        return
    import torch.distributed as dist

    from glassformer.train.distributed import World, is_lost_connection
    from glassformer.train.peers import ProcessLostError, reason

    config: RunConfig | None = None
    fault: Exception | None = None
    try:
        config = read()
        cuda = _chosen_gpu(config, processes)
    except (GlassformerError, OSError) as error:
        fault, cuda = error, False
    try:
        _meet(config.train.wait_seconds if config else WAIT_WITH_ERROR, cuda)
    except ConfigError:
        if fault is not None:
            raise fault from None
        raise
    world = World.current()
    try:
        yield world.together(lambda: _checked(config, fault))
        dist.barrier()
    except RuntimeError as error:  # before or after the training, which names the lost process
        if not is_lost_connection(error):
            raise
        raise ProcessLostError(
            f"process {world.rank} of {world.size}: another one ended or does not answer ({reason(error)}); see the "
            "messages of the others, and continue with --resume"
        ) from error
    dist.destroy_process_group()


def _chosen_gpu(config: "RunConfig", processes: int) -> bool:
    """True if this process computes on a GPU, which is then set; check the number of processes."""
    import torch

    from glassformer.errors import ConfigError
    from glassformer.models.device import choose_device

    size, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if processes not in (1, size):
        raise ConfigError(f"--processes {processes}, but the launcher has started {size}; leave --processes out")
    if choose_device(config.train.device, "train.device").type != "cuda":
        return False
    if local > (gpus := torch.cuda.device_count()):
        raise ConfigError(f"{local} processes, but this machine has {gpus} GPUs; start {gpus}, or set train.device=cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return True


def _checked(config: "RunConfig | None", fault: Exception | None) -> "RunConfig":
    if fault is not None:
        raise fault
    assert config is not None
    return config


def _meet(wait_seconds: float, cuda: bool) -> None:
    """Join the process group of the launcher, or raise ``ConfigError`` after ``wait_seconds``."""
    import torch.distributed as dist

    from glassformer.errors import ConfigError
    from glassformer.train.peers import reason

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own = STORE in os.environ
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=dist.FileStore(os.environ[STORE], size) if own else None,
            init_method=None if own else "env://",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=wait_seconds),
        )
    except (RuntimeError, ValueError) as error:
        where = "" if own else f" at {os.environ.get('MASTER_ADDR')}, port {os.environ.get('MASTER_PORT')},"
        raise ConfigError(
            f"process {rank} of {size}: cannot meet the others{where} within train.wait_seconds={wait_seconds:g} "
            f"({reason(error)}); start all of them, and see that the address and the port are free and reachable"
        ) from None


def print_once(error: Exception, text: str) -> None:
    """Print ``text`` of the error that ends this process, unless process 0 prints the same.

    A launcher ends all processes soon after the first one that ended. So the others stay until process 0 has printed.
    """
    line = f"glassformer: error: {text}"
    if hasattr(error, "format_message"):  # the parser's is the same in all processes
        if leads():
            message(line)
        return
    kind = type(error).__name__
    store = None if kind == "ProcessLostError" else _store()
    if leads():
        message(line)
        if store is not None:
            _within(HEAR_SECONDS, lambda: _tell(store, visible(text)))
        return
    printed = None if store is None else _within(PRINT_SECONDS, lambda: _hear(store))
    if kind != "FailedElsewhereError" and printed != visible(text):
        message(line)


def _store() -> Any:
    """The store of the process group; None without one, or in a single process."""
    dist = sys.modules.get("torch.distributed")  # not imported: there is no process group
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def _tell(store: Any, text: str) -> None:
    """Tell the other processes that ``text`` is printed, and wait until they know."""
    store.set(PRINTED, text)
    others = [f"{HEARD}{rank}" for rank in range(1, int(os.environ["WORLD_SIZE"]))]
    store.wait(others, timedelta(seconds=HEAR_SECONDS))


def _hear(store: Any) -> str:
    """Wait for what process 0 prints."""
    store.wait([PRINTED], timedelta(seconds=PRINT_SECONDS))
    text: str = store.get(PRINTED).decode()
    store.set(f"{HEARD}{os.environ['RANK']}", "")
    return text


def _within(seconds: float, ask: Callable[[], T]) -> T | None:
    """The result of ``ask``; None if a store fails, or does not answer: without a connection it waits longer."""
    results: list[T] = []

    def run() -> None:
        with suppress(RuntimeError):
            results.append(ask())

    asking = Thread(target=run, daemon=True)
    asking.start()
    asking.join(seconds)
    return results[0] if results else None
