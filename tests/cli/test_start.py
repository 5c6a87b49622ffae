"""How the command starts and ends, in a process of its own."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stored_models import GIVEN, TASKS, stored

import glassformer
from explain.small_models import VARIANTS
from glassformer.tasks import TASKS as TASK_RECORDS
from tiny_run import TinyRun, write_lines

ROOT = Path(__file__).parents[2]
FORMAT_1 = ROOT / "tests" / "data" / "format_1"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(glassformer.__file__).parents[1]), "OMP_NUM_THREADS": "1"}

RUN_BY_ANOTHER = """
try:
    runpy.run_module("glassformer", run_name="__main__")
except SystemExit:
    pass
"""
TELL_THE_END = """
import os
end = os._exit
os._exit = lambda code: (print("at once", flush=True), end(code))
"""
META_KERNELS = '"meta_embedding_bag" in vars(sys.modules["torch._meta_registrations"])'
"""Expression: PyTorch's kernels of meta tensors are executed."""


def python(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, env=ENVIRONMENT, timeout=600, check=False
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
    """Whether a command imported PyTorch, its compiler, and its kernels of meta tensors, as ``True False False``."""
    script = f"""
import sys
from glassformer.cli import console_main
try:
    console_main()
except SystemExit as end:
    assert end.code in (0, None)
print("torch" in sys.modules, "torch._dynamo" in sys.modules, {META_KERNELS})
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


@pytest.mark.parametrize(
    ("arguments", "modules"),
    [
        (["translate", str(FORMAT_1), "-"], "True False False"),
        (["info", "configs/multi30k.toml"], "True False True"),
    ],
)
def test_a_translator_is_loaded_and_described_without_the_compiler_of_pytorch(
    tmp_path: Path, arguments: list[str], modules: str
) -> None:
    """An operation on meta tensors could import it: 800 modules in 0.7 s."""
    assert modules_of_a_command(arguments, tmp_path) == modules


@pytest.mark.parametrize(
    ("task", "command"),
    [(task, command) for task in TASKS for command in TASK_RECORDS[task].commands if command != "tokenize"],
)
def test_commands_need_no_meta_kernels_of_pytorch(tmp_path: Path, task: str, command: str) -> None:
    """The output is that of ``main``, which imports PyTorch as a whole."""
    script = """
import sys
from glassformer.cli import {0}
try:
    {0}()
except SystemExit as end:
    assert end.code in (0, None)
print({1}, file=sys.stderr)
"""
    given = GIVEN[task](tmp_path)
    files, stdin = ([str(given)], "") if isinstance(given, Path) else ([], f"{given}\n")
    arguments = [command, str(stored(tmp_path, task)), *files]
    whole, partial = (
        python("-c", script.format(entry, META_KERNELS), *arguments, stdin=stdin) for entry in ("main", "console_main")
    )
    assert (whole.returncode, whole.stderr.splitlines()[-1]) == (0, "True")
    assert (partial.returncode, partial.stderr.splitlines()[-1]) == (0, "False")
    assert partial.stdout == whole.stdout != ""


POSTPONED = f"""
import sys
from glassformer.cli.imports import postpone_meta_kernels
postpone_meta_kernels()
import torch
assert not {META_KERNELS}
"""


@pytest.mark.parametrize(
    "use",
    [
        "gelu = torch.nn.functional.gelu; x = torch.ones(3, requires_grad=True)\n"
        "assert torch.equal(torch.compile(gelu, backend='aot_eager')(x), gelu(x))",
        "torch.export.export(torch.nn.GELU(), (torch.ones(3),))",
        "assert torch.broadcast_shapes((2, 1), (1, 3)) == (2, 3)",
        "torch._meta_registrations.meta_embedding_bag",
    ],
)
def test_meta_kernels_are_executed_when_pytorch_needs_them(use: str) -> None:
    done = python("-c", f"{POSTPONED}\n{use}\nprint({META_KERNELS})")
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_every_model_is_built_on_the_meta_device_without_these_kernels() -> None:
    """A missing kernel would be reported as a damaged checkpoint."""
    sizes = {"kind": "encoder_decoder", "vocab_size": 12, "d_model": 16, "n_heads": 2, "d_ff": 24}
    translators = [{**sizes, "positions": positions} for positions in ("sinusoidal", "learned", "rotary")]
    kinds = f"""
from glassformer.models.registry import build_model
for values in {[*VARIANTS.values(), *translators]}:
    with torch.device("meta"):
        build_model(values, "test")
"""
    done = python("-c", f"{POSTPONED}\n{kinds}\nprint({META_KERNELS})")
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


@pytest.mark.parametrize(("engine", "kind"), [("", "adam"), ("torch", "adamw")])
def test_a_run_is_trained_without_the_compiler_of_pytorch(
    tiny: TinyRun, tmp_path: Path, engine: str, kind: str
) -> None:
    """PyTorch's own optimizers import it when they are given parameters, and again at their first step."""
    config, run = tmp_path / "run.toml", str(tmp_path / "run")
    for steps, more in ((2, []), (3, ["--resume"])):
        tiny.write_config(config, {"train.max_steps": steps, "optimizer.kind": kind})
        assert modules_of_a_command(["train", str(config), "--run", run, *more], tmp_path, engine) == "True False True"


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


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["info", "/nowhere"], 2)])
def test_the_command_ends_at_once_after_threads_and_functions_at_exit(arguments: list[str], code: int) -> None:
    script = """
import atexit, sys, threading, time
from glassformer.cli import console_main

def later():
    time.sleep(0.5)
    print("thread")

class Registering:
    def find_spec(self, name, *rest):
        if name == "glassformer.cli.app":
            atexit.register(print, "at exit")

sys.meta_path.insert(0, Registering())
threading.Thread(target=later).start()
console_main()
"""
    done = python("-c", TELL_THE_END + script, *arguments)
    assert (done.returncode, done.stdout.splitlines()[-3:]) == (code, ["thread", "at exit", "at once"])


@pytest.mark.parametrize(
    ("before", "run", "after", "code", "last"),
    [
        ("atexit.register(print, 'early')", "console_main()", "", 0, ["early"]),  # as a tracing tool does
        ("", RUN_BY_ANOTHER, "sys.exit(3)", 3, []),
        ("", RUN_BY_ANOTHER, "raise ValueError", 1, []),
    ],
)
def test_what_comes_before_and_after_the_command_is_respected(
    before: str, run: str, after: str, code: int, last: list[str]
) -> None:
    script = f"""
import atexit, runpy, sys
from glassformer.cli import console_main

{before}
{run}
{after}
"""
    done = python("-c", TELL_THE_END + script, "--version")
    assert (done.returncode, done.stdout.splitlines()[1:]) == (code, last)


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
