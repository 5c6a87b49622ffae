"""Help, shell completion and the amount of messages."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.cli import plan, prepare
from glassformer.cli.options import MARKS_OF_RUNS, complete_runs
from glassformer.data.shards.preparation import SHARD_TOKENS
from glassformer.planning.batch import SENTENCE_TOKENS
from glassformer.planning.devices import REACHED_PRODUCTS
from glassformer.planning.failures import MTBF_HOURS, STORAGE_BANDWIDTH
from glassformer.storage.manifest import MANIFEST
from glassformer.storage.run_folder import CHECKPOINTS
from own_process import ENVIRONMENT
from tiny_run import TinyRun

Cli = Callable[..., Any]
TEXT = "the old cat sleeps\n"


def test_help_fits_80_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = cli("--help").out
    commands = page[page.index("Commands:") :].splitlines()[1:]
    assert len(commands) == 22
    for line in commands:
        assert line.endswith("."), line
        assert not line.endswith("..."), line
    names = [line.split()[0] for line in commands]
    for line in page.splitlines() + [line for name in names for line in cli(name, "--help").out.splitlines()]:
        assert len(line) <= 80, line


def test_defaults_of_commands_are_those_of_the_library(cli: Cli) -> None:
    """Commands write them again, since importing them would take seconds before ``--help``."""
    assert inspect.signature(plan.command).parameters["mtbf"].default == MTBF_HOURS
    assert inspect.signature(prepare.command).parameters["shard_tokens"].default == SHARD_TOKENS
    page = " ".join(cli("plan", "--help").out.split())
    assert f"products reach. [default: {REACHED_PRODUCTS}]" in page
    assert f"its size at {STORAGE_BANDWIDTH / 1e9:g} GB/s" in page
    assert f"[default: {SENTENCE_TOKENS}, or longest]" in page


def complete(words: str, folder: Path, tail: str = "") -> list[str]:
    """Candidates in bash for the last word, and the heavy modules that were imported."""
    script = (
        "import sys, atexit; from glassformer.cli import main; "
        "atexit.register(lambda: print({'torch', 'numpy', 'tokenizers'} & set(sys.modules), file=sys.stderr)); main()"
    )
    environment = ENVIRONMENT | {"_GLASSFORMER_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert (done.returncode, done.stderr) == (0, "set()\n")
    return done.stdout.split()


def test_completion_of_commands_runs_and_choices(tiny: TinyRun, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(tiny.run)
    (tmp_path / "runs" / "other").mkdir()
    assert complete("glassformer tra", tmp_path) == ["train", "translate"]
    assert complete("glassformer translate ", tmp_path) == ["runs/mine"]
    assert complete("glassformer translate --device c", tmp_path) == ["cpu", "cuda"]
    assert complete("glassformer embed --engine n", tmp_path) == ["native"]


def test_completion_knows_the_names_of_storage(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MARKS_OF_RUNS == (CHECKPOINTS, MANIFEST)
    monkeypatch.chdir(tiny.run)
    assert complete_runs("checkpoints/step_00000120") == ["checkpoints/step_00000120"]
    assert complete_runs("nowhere/") == []


def test_completion_script_is_shown(tmp_path: Path) -> None:
    environment = os.environ | ENVIRONMENT
    command = [sys.executable, "-m", "glassformer", "--show-completion"]
    shell = ["bash", "-c", f"{command[0]} -m glassformer --show-completion; true"]
    done = subprocess.run(shell, capture_output=True, text=True, env=environment, check=False)
    assert "_GLASSFORMER_COMPLETE=complete_bash" in done.stdout


def test_quiet_prints_results_warnings_and_errors_only(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    config = tiny.write_config(tmp_path / "tiny.toml")
    assert cli(
        "--quiet", "train", config, "train.max_steps=1", "validation.metric=loss", "--run", tmp_path / "run"
    ) == (0, "", "")
    assert cli("-q", "average", tiny.run, "-o", tmp_path / "mean") == (0, f"{tmp_path}/mean\n", "")
    assert "error: " in cli("-q", "translate", tmp_path / "nowhere").err
    assert cli("average", tiny.run, "-o", tmp_path / "second").err


def test_verbose_prints_checkpoint_device_engine_and_times(cli: Cli, tiny: TinyRun) -> None:
    plain, verbose = (cli(*option, "translate", tiny.run, stdin=TEXT) for option in ([], ["--verbose"]))
    assert (plain.out, plain.err) == (verbose.out, "")
    names = [line.split(":")[0].split(" in ")[0] for line in verbose.err.splitlines()]
    assert {"checkpoint", "device", "loaded", "engine", "finished"} == set(names)


def test_quiet_and_verbose_stand_before_the_command(refused: Callable[..., str]) -> None:
    assert refused("-q", "-v", "info") == "--quiet and --verbose exclude each other; give one of them"
    line = refused("translate", "run", "--quiet")
    assert line == "No such option: --quiet; write it before the command: glassformer --quiet …"
