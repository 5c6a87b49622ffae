"""Former spellings of options keep working, and say the present one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_run import TinyRun
from tiny_tasks import TinyTask, made


@pytest.fixture
def masked(tmp_path_factory: pytest.TempPathFactory) -> TinyTask:
    return made(tmp_path_factory, "masked")


def test_npy_writes_the_same_array_as_format_npy(cli: Callable[..., Any], masked: TinyTask, tmp_path: Path) -> None:
    former = cli("embed", masked.run, "--npy", tmp_path / "a.npy", stdin="the dog\n")
    assert former.code == 0
    assert "--npy is now --format npy --output" in former.err
    assert cli("embed", masked.run, "--format", "npy", "-o", tmp_path / "b.npy", stdin="the dog\n").code == 0
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


def test_format_npy_needs_a_file(refused: Callable[..., str], masked: TinyTask) -> None:
    assert refused("embed", masked.run, "--format", "npy") == "--format npy writes a file; name it with --output"


def test_refuse_long_is_no_truncate(cli: Callable[..., Any], tiny: TinyRun) -> None:
    result = cli("translate", tiny.run, "--refuse-long", "--max-source", 3, stdin="the cat sleeps often\n")
    assert result.code == 2
    assert "--refuse-long is now --no-truncate" in result.err
    assert "more than the limit of 3" in result.err


def test_view_and_output_of_figure_are_arguments(
    cli: Callable[..., Any], refused: Callable[..., str], tiny: TinyRun, tmp_path: Path
) -> None:
    view, former, current = "encoder.0.self_attention", tmp_path / "a.svg", tmp_path / "b.svg"
    result = cli("figure", tiny.run, "the cat", "--view", view, "-o", former)
    assert (result.code, result.out) == (0, "")
    assert "--view is now the argument VIEW" in result.err
    assert "--output is now the argument FILE" in result.err
    assert cli("figure", tiny.run, "the cat", view, current) == (0, "", "")
    assert former.read_bytes() == current.read_bytes()
    fault = "Missing argument 'FILE'; write glassformer figure RUN TEXT VIEW FILE"
    assert refused("figure", tiny.run, "the cat", view) == fault


def test_a_former_and_a_present_spelling_exclude_each_other(
    refused: Callable[..., str], tiny: TinyRun, masked: TinyTask, tmp_path: Path
) -> None:
    told = "--refuse-long is now --no-truncate; give one of them"
    assert refused("translate", tiny.run, "--truncate", "--refuse-long", stdin="I") == told
    told = "--npy is now --format npy --output; give one of them"
    assert refused("embed", masked.run, "--npy", tmp_path / "a", "-o", tmp_path / "b", stdin="I") == told
    assert not list(tmp_path.iterdir())


FORMER = [("evaluate", "--against"), ("translate", "--refuse-long"), ("generate", "--refuse-long")]
FORMER += [("generate", "--search"), ("embed", "--npy"), ("figure", "--view"), ("figure", "--output")]


@pytest.mark.parametrize(("command", "option"), FORMER)
def test_former_spellings_are_not_in_the_help(cli: Callable[..., Any], command: str, option: str) -> None:
    shown = cli(command, "--help").out
    assert option not in shown
    assert "--output" in shown or command in ("evaluate", "figure")
