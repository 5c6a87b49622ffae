"""The job of a scheduler that runs this command. Started again, the same job continues its run by itself."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from glassformer.cli.processes import STORE, can_restart

KUBERNETES = "KUBERNETES_JOB_NAME"
"""Environment variable with the name of the Kubernetes job, which its pods set from their label ``job-name``."""


def job_id() -> str | None:
    """The job's name, with its scheduler; None outside of one.

    A scheduler's own name comes first: it stays when the job is requeued, whatever torchrun is called with. Without
    ``--rdzv-id``, torchrun has no name, or a new one every time; then its process is the job, for its own restarts.
    """
    return next(_job_ids(), None)


def _job_ids() -> Iterator[str]:
    for scheduler, variable in {"SLURM": "SLURM_JOB_ID", "Kubernetes": KUBERNETES}.items():
        if name := os.environ.get(variable):
            yield f"{scheduler} job {name}"
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if name != "none" and STORE not in os.environ:
        yield f"torchrun job {name}"
    if can_restart():
        yield f"torchrun process {os.getppid()} on {socket.gethostname()}"


def began(run: Path, job: str | None) -> bool:
    """True if ``job`` trained the run in this folder last."""
    from glassformer.storage.manifest import parse_digested
    from glassformer.storage.regular_files import MEGABYTE, read_regular
    from glassformer.storage.run_folder import JOB

    if job is None or not (run / JOB).is_file():
        return False
    return parse_digested(read_regular(run / JOB, MEGABYTE, run)) == {"job": job}


def record(run: Path, job: str | None) -> None:
    """Write ``job`` into the run folder, for ``began``; without a job, remove that of an earlier training.

    Only for the process that trains there.
    """
    from glassformer.storage.atomic import write_atomically
    from glassformer.storage.manifest import digested
    from glassformer.storage.run_folder import JOB

    if job is None:
        (run / JOB).unlink(missing_ok=True)
    elif not began(run, job):
        write_atomically(run / JOB, digested({"job": job}))
