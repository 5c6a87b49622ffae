"""``--device``: where a verb computes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from second_device import second_device
from tiny_run import TinyRun, write_lines
from tiny_tasks import made

VERBS = {
    "translate": "translation",
    "score": "translation",
    "align": "translation",
    "evaluate": "translation",
    "generate": "language",
    "fill": "masked",
    "classify": "classification",
    "tag": "tagging",
    "embed": "masked",
    "forecast": "forecasting",
    "figure": "translation",
    "walkthrough": "translation",
}


def test_the_help_names_every_verb_that_computes(cli: Callable[..., Any]) -> None:
    """Training has a setting for it; a plan is of a device that need not be there."""
    named = {line.split()[0] for line in cli("--help").out.splitlines() if line.startswith("  ") and line.strip()}
    told = {verb for verb in named if verb.isalpha() and "--device" in cli(verb, "--help").out}
    assert told == {*VERBS, "import", "export", "plan"}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_told(
    refused: Callable[..., str],
    tiny: TinyRun,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    verb: str,
) -> None:
    task, text = VERBS[verb], write_lines(tmp_path / "text", ["she sleeps"])
    run = tiny.run if task == "translation" else made(tmp_path_factory, task).run
    files = [text, text] if verb in ("score", "align", "evaluate") else [text]
    if verb == "figure":
        files += ["decoder.0.self_attention", str(tmp_path / "figure.svg")]
    told = "device='cuda', but PyTorch finds no GPU here; choose auto or cpu"
    assert refused(verb, run, *files, "--device", "cuda") == told


def test_auto_is_the_cpu_where_there_is_nothing_else(cli: Callable[..., Any], tiny: TinyRun) -> None:
    told = [cli("translate", tiny.run, "--device", device, stdin="the cat\n") for device in ("cpu", "auto")]
    assert told[0].out.strip()
    assert told[0] == told[1]


def test_what_is_told_does_not_depend_on_it(cli: Callable[..., Any], tiny: TinyRun) -> None:
    """That both models of an ensemble lie there: tensors of two devices may not meet."""
    ask = "translate", tiny.run, "--ensemble", tiny.run
    here = cli(*ask, stdin="the cat\na dog\n")
    with second_device() as device:
        there = cli(*ask, "--device", device, stdin="the cat\na dog\n")
    assert here.code == 0
    assert here.out.strip()
    assert here == there


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("gpu", r"^device='gpu' is not a device; choose auto, cpu or cuda$"),
        ("", r"^device='' is not a device; choose"),
        ("meta", r"^device='meta' is not a device that can be used here; choose auto, cpu or cuda$"),
        ("xla", r"^device='xla' is not a device that can be used here; choose auto, cpu or cuda$"),
    ],
)
def test_a_device_that_cannot_be_used_is_told(
    refused: Callable[..., str], tiny: TinyRun, device: str, told: str
) -> None:
    assert re.search(told, refused("translate", tiny.run, "--device", device, stdin="a"))
