"""``glassformer figure``: a picture of one sentence, or one line that says why not."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_models import GIVEN, stored

from glassformer.explain import examine
from glassformer.explain import view as view_of
from glassformer.explain.figures.view import view_as_csv, view_as_latex, view_as_svg
from tiny_run import TinyRun

Cli = Callable[..., Any]
CROSS = "decoder.1.cross_attention"
TEXT = "the old cat sleeps"


def test_a_file_is_the_view_of_the_models_own_translation(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    view = view_of(examine(tiny.translator, TEXT), CROSS, head=1, words=True)
    for suffix, text in ((".svg", view_as_svg(view)), (".csv", view_as_csv(view)), (".tex", view_as_latex(view))):
        file = tmp_path / f"figure{suffix}"
        assert cli("figure", tiny.run, TEXT, CROSS, "--head", 1, "--words", file) == (0, "", "")
        assert file.read_text(encoding="utf-8") == text
    assert cli("figure", tiny.run, TEXT, "norms", tmp_path / "norms.png") == (0, "", "")
    assert (tmp_path / "norms.png").read_bytes().startswith(b"\x89PNG")


def test_the_target_and_the_tokens_can_be_chosen(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    file = tmp_path / "figure.csv"
    options = ["--target", "le vieux chat", "--words", "--average", "--no-specials"]
    assert cli("figure", tiny.run, TEXT, CROSS, *options, file).code == 0
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert list(dict.fromkeys(row["row_label"] for row in rows)) == ["le", "vieux", "chat"]
    assert list(dict.fromkeys(row["column_label"] for row in rows)) == TEXT.split()


def test_steps_are_named_by_what_they_predict_or_by_what_they_read(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    views = []
    for option in ([], ["--shifted"]):
        file, options = tmp_path / "figure.csv", ["--target", "le chat", "--head", 0, *option]
        assert cli("figure", tiny.run, TEXT, CROSS, *options, file).code == 0
        with file.open(encoding="utf-8", newline="") as lines:
            views.append(list(csv.DictReader(lines)))
    (naive, shifted), ends = views, ("<s>", "</s>")
    assert [row["value"] for row in naive] == [row["value"] for row in shifted]
    rows = [list({row["row"]: row["row_label"] for row in view}.values()) for view in views]
    assert rows[0] == [*rows[1][1:], ends[1]]
    assert rows[1][0] == ends[0]
    view = view_of(examine(tiny.translator, TEXT, "le chat"), CROSS, head=0, shifted=True)
    assert view.title.endswith("head 0, shifted")
    assert view.row_axis == "target, as read (query)"


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        (
            TEXT,
            ["decoder.1.self_attention", "--shifted"],
            r"^decoder\.1\.self_attention has no second reading; only cross-attention can be shifted$",
        ),
        (
            TEXT,
            ["decoder.1.cros_attention"],
            r"^'decoder\.1\.cros_attention' is no view; did you mean decoder",
        ),
        (TEXT, ["decoder.9.self_attention"], r"^layer=9 is outside the decoder; choose from 0 to 1$"),
        (TEXT, [CROSS, "--head", "7"], rf"^head=7 is outside {CROSS}; choose from 0 to 1$"),
        (
            TEXT,
            ["mask", "--words"],
            r"^mask has neither heads nor words; leave out what goes with attention$",
        ),
        ("  ", [CROSS], r"^the sentence is empty; give one with at least one word$"),
        (
            "a " * 200_000,
            [CROSS, "--target", "b"],
            r"^a text of 200,001 tokens does not fit in memory; split",
        ),
    ],
)
def test_what_cannot_be_drawn(
    refused: Callable[..., str], tiny: TinyRun, tmp_path: Path, text: str, arguments: list[str], told: str
) -> None:
    line = refused("figure", tiny.run, text, *arguments, tmp_path / "f.svg")
    assert re.search(told, line), line
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_written(refused: Callable[..., str], tiny: TinyRun, tmp_path: Path) -> None:
    line = refused("figure", tmp_path / "nowhere", TEXT, CROSS, tmp_path / "f.gif")
    assert line == f"{tmp_path}/f.gif: .gif is no kind of figure; known: .csv .pdf .png .svg .tex"
    for output in (tmp_path / "fig", "-"):
        line = refused("figure", tiny.run, TEXT, CROSS, output)
        assert line == (
            f"{output}: no suffix says what kind of figure it is; end it in one of .csv .pdf .png .svg .tex"
        )
    line = refused("figure", tiny.run, TEXT, CROSS, tmp_path / "none" / "f.svg")
    assert "cannot be written (No such file or directory); name another file" in line


VIEWS = {
    "language": ["decoder.1.self_attention", "logit_lens", "mask", "norms", "positions"],
    "masked": ["encoder.0.self_attention", "logit_lens", "norms", "positions"],
    "classification": ["encoder.1.self_attention", "norms"],
    "tagging": ["encoder.1.self_attention"],
    "images": ["encoder.1.class_attention", "encoder.0.self_attention", "norms", "positions"],
    "forecasting": ["encoder.0.self_attention", "norms"],
}


@pytest.mark.parametrize("task", VIEWS)
def test_views_of_a_run_of_each_task(cli: Cli, tmp_path: Path, task: str) -> None:
    run, given, file = stored(tmp_path, task), GIVEN[task](tmp_path), tmp_path / "figure.svg"
    for view in VIEWS[task]:
        assert cli("figure", run, given, view, file) == (0, "", "")
        assert file.read_text(encoding="utf-8").startswith("<svg")


def test_views_that_another_run_lacks(refused: Callable[..., str], tmp_path: Path) -> None:
    run, file = stored(tmp_path, "language"), tmp_path / "f.svg"
    for view, told in [
        (CROSS, "'decoder.1.cross_attention' is no view; did you mean decoder"),
        ("decoder.7.self_attention", "layer=7 is outside the decoder; choose from 0 to 1"),
    ]:
        assert told in refused("figure", run, "a small dog", view, file)
    images = stored(tmp_path, "images")
    line = refused("figure", images, GIVEN["images"](tmp_path), "encoder.0.self_attention", "--words", file)
    assert line == "what stands here is no text and has no words; leave words out"
    assert "'logit_lens' is no view" in refused("figure", images, tmp_path / "cat.png", "logit_lens", file)


def test_course_of_a_head_is_drawn_and_what_cannot_be_drawn_is_refused(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    file = tmp_path / "course.svg"
    assert cli("figure", tiny.run, TEXT, CROSS, file, "--over-training", "--head", 1) == (0, "", "")
    assert file.read_text(encoding="utf-8").startswith("<svg")
    for arguments, message in (
        ((CROSS, tmp_path / "course.png"), "--over-training draws .svg files; end the name in .svg"),
        (("encoder.0.self_attention", file), "a course is drawn of the cross-attention of a translator"),
        ((CROSS, file, "--head", 9), "head=9 is not among the 2 heads; choose from 0 to 1"),
    ):
        answer = cli("figure", tiny.run, TEXT, *arguments, "--over-training")
        assert answer.code == 2
        assert message in answer.err
