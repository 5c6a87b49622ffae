"""Where a verb has no configuration to change, no message sends anybody to one: it says what can be done there."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glassformer.config import read_toml, to_toml
from tiny_run import write_lines
from tiny_tasks import TinyTask, made

Refused = Callable[..., str]
Task = Callable[[str], TinyTask]
SETTING = re.compile(r"\bdata\.[a-z_]+")
TABLES = [
    (["2024-01-01,1,2", "2024-01-02,,3"], ", line 3, column low: '' is not a number; fill it in"),
    (["2024-01-01,1,2", "2024-01-02,x,3"], ", line 3, column low: 'x' is not a number; fix it"),
]


@pytest.fixture
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return lambda name: made(tmp_path_factory, name)


def table(path: Path, rows: list[str], header: str = "date,low,high") -> str:
    return write_lines(path / "table.csv", [header, *rows])


@pytest.mark.parametrize("verb", ["evaluate", "walkthrough", "figure"])
@pytest.mark.parametrize(("rows", "told"), TABLES)
def test_cells_of_a_table(refused: Refused, task: Task, tmp_path: Path, verb: str, rows: list[str], told: str) -> None:
    file = table(tmp_path, rows)
    options = ["norms", tmp_path / "f.svg"] if verb == "figure" else []
    assert refused(verb, task("forecasting").run, file, *options) == f"{file}{told}"
    header = table(tmp_path, ["2024-01-01,1"], "date,low")
    told = "has no column 'high' (known: date, low); add or rename it"
    assert refused(verb, task("forecasting").run, header, *options) == f"{header}: {told}"


def test_dates_of_a_table(refused: Refused, task: Task, tmp_path: Path) -> None:
    run = task("forecasting").run
    file = table(tmp_path, ["2024-13-41,1,2"])
    told = "'2024-13-41' is not a date; write it like 2016-07-01 13:00, or take the column out"
    assert refused("evaluate", run, file) == f"{file}, line 2, column date: {told}"
    told = "date is left out before it; fill it in"
    file = table(tmp_path, [f"2024-01-{day:02},1,2" for day in (1, 2, 3, 5)])
    assert refused("evaluate", run, file).replace("1 date is", "date is") == f"{file}, line 5: {told}"


def test_a_column_without_numbers_is_not_to_be_left_out(refused: Refused, task: Task, tmp_path: Path) -> None:
    file = table(tmp_path, [f"2024-01-{day:02},,2" for day in range(1, 31)])
    told = refused("forecast", task("forecasting").run, file, "--missing", "previous")
    assert told == f"{file}, column low: has no number at all; fill it in"


def test_the_table_of_the_run_that_has_changed(refused: Refused, task: Task, tmp_path: Path) -> None:
    """Its own parts do not fit any more, and cannot be set where it is measured."""
    run = Path(shutil.copytree(task("forecasting").run, tmp_path / "run"))
    short = table(tmp_path, [f"2024-01-{day:02},1,2" for day in range(1, 31)])
    config = read_toml(run / "config.toml")
    for split, told in [
        ([60, 20, 20], "has 30 rows, and the split asks for 100; name a table to measure the run on"),
        ([0.6, 0.2, 0.2], "the 18 rows for train hold no window of 30; name a table to measure the run on"),
    ]:
        config["data"] |= {"file": short, "split": split}
        (run / "config.toml").write_text(to_toml(config))
        assert refused("evaluate", run) == f"{short}: {told}"
    config["data"] |= {"date": "day"}
    (run / "config.toml").write_text(to_toml(config))
    told = "has no column 'day' (did you mean date?); name a table to measure the run on"
    assert refused("evaluate", run) == f"{short}: {told}"


def test_labels_under_another_name(refused: Refused, task: Task, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "test.tsv", ["text", "the dog runs."])
    told = "no column 'label', the only one is 'text'; name the columns in it as they were named for training"
    assert refused("evaluate", task("classification").run, file) == f"{file}, line 1: {told}"


def test_images_of_another_shape_or_class(refused: Refused, task: Task, tmp_path: Path) -> None:
    run, file = task("images").run, tmp_path / "test.npz"
    np.savez(file, images=np.zeros((4, 16, 16), np.uint8), labels=np.array(["dark"] * 4))
    told = "images are 16 × 16 × 1, not 8 × 8 × 1; scale them or give folders of pictures"
    assert refused("evaluate", run, file) == f"{file}: {told}"
    np.savez(file, images=np.zeros((4, 8, 8), np.uint8), labels=np.array(["red"] * 4))
    told = "class 'red' is not among the 2 of the training images; take its images out"
    assert refused("evaluate", run, file) == f"{file}: {told}"


def test_a_cache_that_cannot_be_written(
    refused: Refused, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, text = task("language").run, write_lines(tmp_path / "test.txt", ["the dog sings."])
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    told = refused("evaluate", run, text)
    assert told.startswith("/dev/null/glassformer: the token cache cannot be written (")
    assert told.endswith("); make that folder writable, with room in it")
    assert not SETTING.search(told)
