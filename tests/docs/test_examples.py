"""The examples of several machines: their command lines are accepted by torchrun and by the command."""

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from benchmarks.two_machines import MACHINES, command
from torch.distributed.run import parse_args

import tiny_run
from glassformer.cli.app import app
from glassformer.storage.run_folder import RunFolder

EXAMPLES = Path(__file__).parents[2] / "examples"


def check_command(arguments: list[str]) -> None:
    """``arguments``: of torchrun, which start ``glassformer train``."""
    options = parse_args(arguments)
    assert options.module
    assert options.training_script == "glassformer"
    verb, *rest = options.training_script_args
    assert verb == "train"
    with typer.main.get_command(app).commands["train"].make_context("train", rest) as context:  # type: ignore[attr-defined]
        assert context.params["run"] is not None


def test_commands_of_two_machines_are_those_of_the_benchmark() -> None:
    lines = (EXAMPLES / "two_machines.md").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("torchrun ")]
    run = (Path("my.toml"), Path("runs/mine"), "night", True)
    assert commands == [command(address, *run) for address in MACHINES.values()]
    for one in commands:
        check_command(one[1:])


def test_kubernetes_example_starts_a_training_under_the_name_of_its_job() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    service, job = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["torchrun"]
    check_command(container["args"])
    options = parse_args(container["args"])
    assert options.rdzv_id == "$(KUBERNETES_JOB_NAME)"
    assert options.rdzv_endpoint == f"{job['metadata']['name']}-0.{service['metadata']['name']}:29400"
    assert int(options.nnodes) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert int(options.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    names = [variable["name"] for variable in container["env"]]
    assert names[0] == "KUBERNETES_JOB_NAME"
    assert pod["subdomain"] == service["metadata"]["name"]
    wait = next(item["value"] for item in container["env"] if item["name"] == "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
    assert int(wait) < pod["terminationGracePeriodSeconds"]


STUBS = {
    "srun": 'exec "$@"',
    "scontrol": '[ "$*" = "show hostnames localhost" ] && echo localhost',
    "torchrun": f'exec {sys.executable} -W ignore -m torch.distributed.run "$@"',
}


def test_slurm_job_trains_and_resumes_when_it_is_requeued(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The script with stubs of SLURM's commands, on one machine; the second start is a requeue."""
    for name, line in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (tmp_path / name).chmod(stat.S_IRWXU)
    changes = {"train.max_steps": 3, "train.device": "cpu", "data.validation": []}
    config = tiny_run.made(tmp_path_factory).write_config(tmp_path / "tiny.toml", changes)
    slurm = {"SLURM_JOB_ID": "91017", "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_NUM_NODES": "1"}
    environment = os.environ | slurm | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(EXAMPLES.parent / "src")
    environment.pop("SLURM_GPUS_ON_NODE", None)
    script = ["bash", str(EXAMPLES / "slurm.sh"), str(config), str(tmp_path / "run")]
    first = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    second = subprocess.run(
        [*script, "train.max_steps=5"], env=environment, capture_output=True, text=True, check=False
    )
    assert second.returncode == 0, second.stderr
    assert f"resuming {tmp_path / 'run'}: SLURM job 91017 began it" in second.stderr
    latest = RunFolder.open(tmp_path / "run").latest()
    assert latest is not None
    assert latest.step == 5


def test_slurm_example_names_its_arguments_and_saves_before_its_time_limit() -> None:
    text = (EXAMPLES / "slurm.sh").read_text(encoding="utf-8")
    usage = subprocess.run(["bash", str(EXAMPLES / "slurm.sh")], capture_output=True, text=True, check=False)
    assert usage.returncode != 0
    assert usage.stderr.endswith("usage: sbatch slurm.sh CONFIG RUN [SETTING=VALUE ...]\n")
    options = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert {"requeue", "signal=TERM@120", "ntasks-per-node=1"} <= set(options)
