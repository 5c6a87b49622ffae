"""Trainings in groups of processes on this machine: ``train_in_group`` starts one group for many of them.

As a program it is one process of a group: python process_group.py RANK SIZE FOLDER.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import glassformer

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


@dataclass(frozen=True)
class Job:
    """One training: the values of its configuration, and its run folder."""

    values: dict[str, Any]
    run: Path
    resume: bool = False
    float64: bool = False
    only_rank: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings of one process that differ: {"1": {"train.seed": 2}}."""
    fault: str = ""
    """Name of a fault of process 1, from ``faults.py``."""
    file_limits: dict[str, int] = field(default_factory=dict)
    """Largest file of a sharded checkpoint that a process can write, in place of a full disk: {"1": 2000}."""
    folders: dict[str, str] = field(default_factory=dict)
    """Working directory of a process that has the files of another machine."""


def train_in_group(size: int, jobs: list[Job], folder: Path) -> list[list[str]]:
    """Train each job in one group of ``size`` processes; return for each job the error of each process, or ""."""
    folder.mkdir(parents=True, exist_ok=True)
    values = [vars(job) | {"run": str(job.run)} for job in jobs]
    (folder / "jobs.json").write_text(json.dumps(values), encoding="utf-8")
    commands = [[sys.executable, __file__, str(rank), str(size), str(folder)] for rank in range(size)]
    environment = ENVIRONMENT | {"PYTHONPATH": str(Path(glassformer.__file__).parents[1])}
    processes = [subprocess.Popen(command, env=environment) for command in commands]
    codes = [process.wait(timeout=300) for process in processes]
    assert codes == [0] * size
    errors = [json.loads((folder / f"errors_{rank}.json").read_text(encoding="utf-8")) for rank in range(size)]
    return [list(ranks) for ranks in zip(*errors, strict=True)]


def limited(write: Callable[..., Any], limit: int | None) -> Callable[..., Any]:
    """``write`` while the system lets no file grow beyond ``limit`` bytes."""

    def wrapped(*args: Any) -> Any:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if limit is None else limit, hard))
        try:
            return write(*args)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return wrapped


def main(rank: int, size: int, folder: Path) -> None:
    import faults
    import torch
    import torch.distributed as dist

    from glassformer.errors import GlassformerError
    from glassformer.storage.run_folder import RunFolder
    from glassformer.storage.shared_save import SharedSave
    from glassformer.train import parse_config, train

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    errors = []
    write, working_directory = SharedSave.write, os.getcwd()
    for job in json.loads((folder / "jobs.json").read_text(encoding="utf-8")):
        torch.set_default_dtype(torch.float64 if job["float64"] else torch.float32)
        for name, value in job["only_rank"].get(str(rank), {}).items():
            section, key = name.split(".")
            job["values"].setdefault(section, {})[key] = value
        os.chdir(job["folders"].get(str(rank), working_directory))
        SharedSave.write = limited(write, job["file_limits"].get(str(rank)))
        try:
            with faults.of(job["fault"] if rank == 1 else ""):
                path = Path(job["run"])
                if rank == 0 and not job["resume"]:
                    RunFolder.create(path)
                for _ in train(parse_config(job["values"], "job"), RunFolder(path), job["resume"]):
                    pass
            errors.append("")
        except GlassformerError as error:
            errors.append(f"{type(error).__name__}: {error}")
    (folder / f"errors_{rank}.json").write_text(json.dumps(errors), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # PyTorch's threads may abort while Python shuts down


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
