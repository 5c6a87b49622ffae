"""Process settings of the command: the pages of libraries, malloc and the number of threads."""

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_run
from glassformer.cli.process import prepare_training, release_libraries
from glassformer.errors import ConfigError
from own_process import ENVIRONMENT, running

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="mallopt and madvise are called on Linux only")

LOADING = """
import sys
from pathlib import Path
import glassformer.predict.translator
from glassformer.cli.process import loading

def pages():
    status = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in status if line.startswith("RssFile")), 0)

before = pages()
with loading():
    translator = glassformer.predict.translator.Translator.load(sys.argv[1])
print(before, pages(), *translator.translate(["a"]))
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "2000 None"), ({"GOMP_SPINCOUNT": "5"}, "5 None"), ({"OMP_WAIT_POLICY": "active"}, "None active")],
)
def test_waiting_is_shortened_unless_the_environment_says_how(given: dict[str, str], expected: str) -> None:
    code = "import os, sys; from glassformer.cli.process import shorten_waiting; shorten_waiting(); "
    code += "print(*map(os.environ.get, ['GOMP_SPINCOUNT', 'OMP_WAIT_POLICY'])); assert 'torch' not in sys.modules"
    clean = {name: value for name, value in ENVIRONMENT.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run([sys.executable, "-c", code], env=clean | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


@on_linux
def test_loading_releases_the_pages_of_libraries(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running("-c", LOADING, tiny_run.made(tmp_path_factory).run, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    before, after = map(int, out.split()[:2])
    if before == 0:
        pytest.skip("this system does not count the pages of files")
    assert after < 0.35 * before  # 0.12 to 0.17; 0.4 to 0.65 without the release after loading


@on_linux
def test_release_libraries_keeps_code_that_was_changed_in_memory(tmp_path: Path) -> None:
    """Such as where a debugger stops: read from the file again, it would run on."""
    file = tmp_path / "code"
    file.write_bytes(b"a" * 2 * mmap.PAGESIZE)
    with file.open("r+b") as opened:
        code = mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    code[0] = ord("b")
    start = ctypes.addressof(ctypes.c_char.from_buffer(code))
    read_and_run = mmap.PROT_READ | mmap.PROT_EXEC
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(len(code)), read_and_run) != 0:
        pytest.skip("nothing may be run from this folder")
    release_libraries()
    assert ctypes.string_at(start, 2) == b"ba"


TRAINING = """
import sys
import glassformer.cli.process as process
import torch
calls = []
process.keep_freed_memory = lambda: calls.append("malloc")
torch.set_num_threads(2)
sys.argv[1:] = ["train", sys.argv[1], "--run", sys.argv[2]]
from glassformer.cli import main
try:
    main()
finally:
    print(*calls, torch.get_num_threads())
"""


def test_train_command_sets_malloc_and_threads(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    config = tiny_run.made(tmp_path_factory).write_config(tmp_path / "tiny.toml", {"train.max_steps": 1})
    with running("-c", TRAINING, config, tmp_path / "run", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, "malloc 1\n"), err


LARGE_PAGES = """
import re
from pathlib import Path
from glassformer.cli.process import keep_freed_memory, use_large_pages

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

keep_freed_memory()
before = resident()
print(use_large_pages(), resident() - before, use_large_pages())
kept = bytearray(100 << 20)  # from the heap, since blocks of up to a gibibyte are no mappings of their own
print(re.findall(r"heap][^[]*?VmFlags:(.*)", Path("/proc/self/smaps").read_text()))
"""


@on_linux
def test_large_pages_are_requested_for_the_heap_and_take_no_memory() -> None:
    code = [sys.executable, "-c", LARGE_PAGES]
    done = subprocess.run(code, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    (first, grown, second), flags = (line.split(maxsplit=2) for line in done.stdout.splitlines())
    if first == "False":
        pytest.skip("this system has no large pages, or no heap that grows")
    assert int(grown) < 4096
    assert second == "False"  # the same heap has room
    assert "hg" in " ".join(flags)


@on_linux
def test_large_pages_are_not_requested_where_malloc_writes_to_all_memory() -> None:
    code = [sys.executable, "-c", "from glassformer.cli.process import *; print(use_large_pages())"]
    environment = ENVIRONMENT | {"MALLOC_PERTURB_": "85"}
    done = subprocess.run(code, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"


def test_train_command_resumes_with_the_threads_of_the_run(
    cli: Any, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's own choice is 2 threads in the first process and 1 in the second."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    changes = {"train.threads": 0, "train.save_every": 2, "train.engine": "torch", "data.validation": []}
    config = tiny_run.made(tmp_path_factory).write_config(tmp_path / "tiny.toml", changes)
    before = torch.get_num_threads()

    def train(*arguments: object, threads: int) -> Any:
        torch.set_num_threads(threads)
        return cli("train", config, *arguments)

    try:
        assert train("train.max_steps=6", "--run", tmp_path / "undisturbed", threads=2).code == 0
        assert train("train.max_steps=2", "--run", tmp_path / "run", threads=2).code == 0
        assert train("train.max_steps=4", "--run", tmp_path / "run", "--resume", threads=1).code == 0
        assert torch.get_num_threads() == 2
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
        result = train("train.max_steps=6", "--run", tmp_path / "run", "--resume", threads=1)
        assert result.code == 2
        assert "step_00000004: trained with 2 threads, but this process computes" in result.err
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
        assert train("train.max_steps=6", "--run", tmp_path / "run", "--resume", threads=1).code == 0
        assert tiny_run.state_of(tmp_path / "run")["weights"] == tiny_run.state_of(tmp_path / "undisturbed")["weights"]
        changed = "train.threads=1", "train.override_on_resume=true", "train.max_steps=7"
        result = train(*changed, "--run", tmp_path / "run", "--resume", threads=2)
        assert result.code == 0
        assert "override from step 6 on: train.threads: 2 → 1\n" in result.err
    finally:
        torch.set_num_threads(before)


def test_prepare_training_without_threads_keeps_their_number() -> None:
    before = torch.get_num_threads()
    prepare_training(0)
    assert torch.get_num_threads() == before


def test_threads_beyond_the_cores_are_refused_before_data_are_read(
    cli: Any, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    before, changes = torch.get_num_threads(), {"train.threads": 64, "data.train": ["/nowhere/train"]}
    config = tiny_run.made(tmp_path_factory).write_config(tmp_path / "tiny.toml", changes)
    result = cli("train", config, "--run", tmp_path / "run")
    rule = "choose 1 to 2, or 0 for PyTorch's choice (on a resume, the run's own number)"
    message = f"train.threads=64, but this machine has 2 cores; {rule}"
    assert (result.code, result.err) == (2, f"glassformer: error: {message}\n")
    assert not (tmp_path / "run").exists()
    assert torch.get_num_threads() == before
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    with pytest.raises(ConfigError, match=r"^train.threads=2, but this machine has 1 core; choose 1, or 0 for PyTorch"):
        prepare_training(2)
