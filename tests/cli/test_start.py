"""How the command starts and ends, in a process of its own."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import glassformer
from tiny_run import TinyRun, write_lines

ROOT = Path(__file__).parents[2]
FORMAT_1 = ROOT / "tests" / "data" / "format_1"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(glassformer.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=600, check=False
    )


def test_help_imports_nothing_heavy() -> None:
    script = """
import sys
from glassformer.cli import main
for arguments in (["--help"], ["--version"], ["train", "--help"]):
    sys.argv = ["glassformer", *arguments]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0
print(*sorted({"torch", "numpy", "tokenizers", "sacrebleu", "glassformer.config"} & set(sys.modules)), "imported")
"""
    done = python("-c", script)
    assert done.stderr == ""
    for verb in ("train", "translate", "score", "evaluate", "average", "info", "tokenize", "demo"):
        assert f"\n  {verb} " in done.stdout
    assert "--resume" in done.stdout
    assert done.stdout.splitlines()[-1].strip() == "imported"


def modules_of_a_command(arguments: list[str], cache: Path, engine: str = "") -> str:
    """Whether a command imported PyTorch and its compiler, as ``True False``."""
    script = """
import sys
from glassformer.cli import main
try:
    main()
except SystemExit as end:
    assert end.code in (0, None)
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        input="a dog\n",
        capture_output=True,
        text=True,
        env=ENVIRONMENT | {"XDG_CACHE_HOME": str(cache)} | ({"GLASSFORMER_ENGINE": engine} if engine else {}),
        cwd=ROOT,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["translate", str(FORMAT_1), "-"], ["info", "configs/multi30k.toml"]])
def test_a_translator_is_loaded_and_described_without_the_compiler_of_pytorch(
    tmp_path: Path, arguments: list[str]
) -> None:
    """An operation on meta tensors would import it: 800 modules in 0.7 s."""
    assert modules_of_a_command(arguments, tmp_path) == "True False"


@pytest.mark.parametrize(("engine", "kind"), [("", "adam"), ("torch", "adamw")])
def test_a_run_is_trained_without_the_compiler_of_pytorch(
    tiny: TinyRun, tmp_path: Path, engine: str, kind: str
) -> None:
    """PyTorch's own optimizers import it when they are given parameters, and again at their first step."""
    config, run = tmp_path / "run.toml", str(tmp_path / "run")
    for steps, more in ((2, []), (3, ["--resume"])):
        tiny.write_config(config, {"train.max_steps": steps, "optimizer.kind": kind})
        assert modules_of_a_command(["train", str(config), "--run", run, *more], tmp_path, engine) == "True False"


def test_garbage_is_not_looked_for_only_while_a_model_is_loaded(tiny: TinyRun, tmp_path: Path) -> None:
    """The second run is refused while it is loaded."""
    text, damaged = write_lines(tmp_path / "text", ["the old cat sleeps"]), tmp_path / "run"
    shutil.copytree(tiny.run, damaged)
    for tokenizer in damaged.rglob("tokenizer.json"):
        tokenizer.write_text("{}")
    script = """
import gc, sys
from glassformer.cli import main
from glassformer.predict.translator import Translator
loaded = Translator.load
def load(*paths, **options):
    print("collected" if gc.isenabled() else "not collected", end=" ")
    return loaded(*paths, **options)
Translator.load = load
runs, text = sys.argv[1:3], sys.argv[3]
for run in runs:
    sys.argv[1:] = ["translate", run, text]
    try:
        main()
    except SystemExit as end:
        print(end.code, gc.isenabled(), gc.get_freeze_count() > 10_000)
"""
    done = python("-c", script, str(tiny.run), str(damaged), text)
    first, ended, refused = done.stdout.splitlines()
    assert first.startswith("not collected ")
    assert (ended, refused) == ("None True True", "not collected 2 True True")


def test_an_error_of_the_module_is_one_line() -> None:
    done = python("-m", "glassformer", "train", "/nowhere/run.toml")
    told = "glassformer: error: /nowhere/run.toml: no such file; name a configuration file in TOML\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_a_reader_that_has_gone_is_no_error(tiny: TinyRun, tmp_path: Path) -> None:
    """``glassformer tokenize … | head -1``: more than a pipe holds, and nobody reads on."""
    text = write_lines(tmp_path / "text", ["the old cat sleeps"] * 20_000)
    command = [sys.executable, "-m", "glassformer", "tokenize", str(tiny.run), text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"the")
        process.stdout.close()
        assert process.wait(timeout=600) in (1, -signal.SIGPIPE)
        assert process.stderr.read() == b""


def test_the_version_is_told() -> None:
    assert python("-m", "glassformer", "--version").stdout == f"glassformer {glassformer.__version__}\n"
