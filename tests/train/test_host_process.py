"""The host process of ``glassformer.train`` and ``glassformer.load``: what they find there, they leave there."""

import json
import os
import random
import re
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassformer
from glassformer.errors import ConfigError, DataError
from glassformer.train import Event, Started, events
from glassformer.train.host_process import seed_generators, with_own_random_state
from own_process import running
from tiny_run import TinyRun, run_to_the_end, state_of

SETTINGS = {
    "model.dropout": 0.2,
    "train.max_steps": 8,
    "train.save_every": 4,
    "validation.every": 4,
    "validation.metric": "loss",
}


def host_state() -> dict[str, Any]:
    """State of this process that a training or a search could change.

    Without the state of ``random``, from which beartype draws the elements that it checks in these tests.
    """
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": (kind, keys.tolist(), *rest),
        "threads": torch.get_num_threads(),
        "environment": dict(os.environ),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
    }


def draw() -> None:
    """Advance every global generator."""
    torch.rand(7), np.random.rand(7), random.random()


def test_train_leaves_the_host_process_as_it_was(tiny: TinyRun, tmp_path: Path) -> None:
    draw()
    before = host_state()
    glassformer.train(tiny.settings(SETTINGS), run=tmp_path / "run")
    assert host_state() == before


def test_events_leave_the_host_process_as_it_was_between_two(tiny: TinyRun, tmp_path: Path) -> None:
    before, names = host_state(), set()
    for event in events(tiny.settings(SETTINGS), run=tmp_path / "run", each_step=True):
        names.add(type(event).__name__)
        assert host_state() == before
        draw()
        before = host_state()
    assert names == {"Started", "Stepped", "Progress", "Validated", "Finished"}


@pytest.mark.parametrize("stop", ["closed", "failed"])
def test_a_training_that_breaks_off_leaves_the_random_state(tiny: TinyRun, tmp_path: Path, stop: str) -> None:
    before = host_state()
    if stop == "closed":
        going = events(tiny.settings(SETTINGS), run=tmp_path / "run")
        next(going)
        going.close()  # type: ignore[attr-defined]
    else:
        with pytest.raises(DataError, match="no pair is left"):
            glassformer.train(tiny.settings(SETTINGS | {"data.max_length": 3}), run=tmp_path / "run")
    assert host_state() == before


def test_load_and_translate_leave_the_host_process_as_it_was(tiny: TinyRun) -> None:
    before = host_state()
    translator = glassformer.load(tiny.run)
    translator.translate(["the cat sees a dog"] * 40, batch_tokens=64)
    translator.hypotheses(["the cat"], sample=True, seed=3)
    assert host_state() == before


def test_draws_of_the_host_change_no_bit_of_a_training(tiny: TinyRun, tmp_path: Path) -> None:
    run_to_the_end(tiny.config(SETTINGS), tmp_path / "alone")
    for number, _ in enumerate(events(tiny.config(SETTINGS), run=tmp_path / "disturbed", each_step=True)):
        torch.manual_seed(number)
        draw()
    assert state_of(tmp_path / "disturbed") == state_of(tmp_path / "alone")


def test_two_trainings_event_by_event_equal_each_alone(tiny: TinyRun, tmp_path: Path) -> None:
    configs = {seed: tiny.config(SETTINGS | {"train.seed": seed}) for seed in (1, 2)}
    for seed, config in configs.items():
        run_to_the_end(config, tmp_path / f"alone-{seed}")
    turns: list[Iterator[Event]] = [
        events(config, run=tmp_path / f"interleaved-{seed}", each_step=True) for seed, config in configs.items()
    ]
    for pair in zip(*turns, strict=True):
        assert len({type(event) for event in pair}) == 1
    for seed in configs:
        assert state_of(tmp_path / f"interleaved-{seed}") == state_of(tmp_path / f"alone-{seed}")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_training_on_a_gpu_has_its_own_random_state() -> None:
    torch.cuda.manual_seed(1)
    alone = [torch.rand(2, device="cuda").tolist() for _ in range(3)]

    def training() -> Generator[list[float], None, None]:
        seed_generators(1, torch.device("cuda"))
        for _ in range(3):
            yield torch.rand(2, device="cuda").tolist()

    found = []
    for numbers in with_own_random_state(training(), "cuda"):
        torch.cuda.manual_seed(5)
        found.append(numbers)
    assert found == alone
    assert torch.cuda.initial_seed() == 5


def test_own_random_state_includes_the_generator_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a counter in place of the GPU's generator."""
    gpu, device = {"cuda:1": torch.tensor([7])}, torch.device("cuda", 1)
    monkeypatch.setattr("glassformer.train.host_process.choose_device", lambda name, setting: device)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: gpu[str(device)].clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: gpu.update({str(device): state.clone()}))

    def training() -> Generator[int, None, None]:
        gpu["cuda:1"].fill_(100)
        for _ in range(3):
            yield int(gpu["cuda:1"].add_(1))

    found = []
    for number, value in enumerate(with_own_random_state(training(), "cuda")):
        assert int(gpu["cuda:1"]) == 7 + number
        gpu["cuda:1"].add_(1)
        found.append(value)
    assert found == [101, 102, 103]
    assert int(gpu["cuda:1"]) == 10


def test_other_number_of_threads_is_refused(tiny: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(4)), raising=False)
    message = (
        "train.threads=2, but this process computes with 1 thread; "
        "call torch.set_num_threads(2) first, or leave train.threads out"
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        glassformer.train(tiny.settings({"train.threads": 2}), run=tmp_path / "run")
    assert torch.get_num_threads() == 1
    message = "train.threads=64, but this machine has 4 cores; choose 1 to 4, or 0 for PyTorch's choice"
    with pytest.raises(ConfigError, match=re.escape(message)):
        glassformer.train(tiny.settings({"train.threads": 64}), run=tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoints"))


def test_any_number_of_threads_may_be_left_out(tiny: TinyRun, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = next(events(tiny.settings({"train.threads": 0}), run=tmp_path / "run"))
        assert isinstance(first, Started)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


WATCHED = """
import ctypes, json, os, random, sys
import numpy, torch

def state():
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}  # PyTorch's
    return environment, random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist()

os.environ.pop("TOKENIZERS_PARALLELISM", None)
before = state()
class Library(ctypes.CDLL):
    def __getattr__(self, name):
        assert name not in ("mallopt", "madvise", "malloc_trim"), name
        return super().__getattr__(name)
ctypes.CDLL = Library
setting, torch.set_num_threads = torch.set_num_threads, None
import glassformer
result = glassformer.train(json.loads(sys.argv[1]), run=sys.argv[2])
translator = glassformer.load(result.run)
translator.translate(["the cat sees a dog"] * 40)
for now, then in zip(state(), before, strict=True):
    assert now == then
assert not [name for name in sys.modules if name.startswith("glassformer.cli")]
"""


def test_library_in_a_fresh_process_changes_neither_settings_nor_random_numbers(tiny: TinyRun, tmp_path: Path) -> None:
    settings = json.dumps(tiny.settings(SETTINGS))
    with running("-c", WATCHED, settings, tmp_path / "run", stderr=subprocess.PIPE) as process:
        _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")


FORBIDDEN = re.compile(r"mallopt|madvise|smaps|manual_seed|set_num_threads|random\.seed|setrlimit")
ALLOWED = {
    ("data/shards/shard_file.py", "madvise"),  # of the mapping of a shard alone
    ("train/host_process.py", "manual_seed"),  # within a random state of its own
    ("train/host_process.py", "set_num_threads"),  # in the words of an error
    ("train/resume.py", "set_num_threads"),  # likewise
    ("train/config.py", "set_num_threads"),  # in the description of train.threads
    ("generate/search.py", "set_num_threads"),  # of threads of its own
    ("data/shards/shard_file.py", "madvise"),  # of its own mapping
}


def test_only_the_command_line_has_process_settings() -> None:
    source = Path(glassformer.__file__).parent
    found = {
        (file.relative_to(source).as_posix(), setting)
        for file in source.rglob("*.py")
        if "cli" not in file.relative_to(source).parts
        for setting in FORBIDDEN.findall(re.sub(r"torch\.Generator\(\)\.manual_seed", "", file.read_text("utf-8")))
    }
    assert found == ALLOWED
