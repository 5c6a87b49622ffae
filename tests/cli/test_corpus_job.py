"""A part of a corpus is continued by the job that began it only: the same model, route, settings and lines."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus_lines import LINES, TRANSLATE, WORDS, interrupted
from stored_models import picture as image

import glassformer.cli.corpus as corpus
from glassformer.cli.run import job_of
from glassformer.native import library
from tiny_run import TinyRun, write_lines

Cli = Callable[..., Any]
Refused = Callable[..., str]


def begun(cli: Cli, tiny: TinyRun, tmp_path: Path) -> Path:
    assert interrupted(cli, "translate", tiny.run, tmp_path / "out", TRANSLATE, LINES[:4]).code == 2
    return tmp_path / "out"


def test_changed_settings_are_refused_by_their_name(
    cli: Cli, refused: Refused, tiny: TinyRun, small_windows: None, tmp_path: Path
) -> None:
    output, file = begun(cli, tiny, tmp_path), write_lines(tmp_path / "in", LINES)
    before = (tmp_path / "out.part").read_bytes()
    for changed, difference in {
        ("--beam-size", 2, "-s", "max_extra=2"): "beam_size 1, and now it is 2",
        (*TRANSLATE, "--json"): "json false, and now it is true",
        (*TRANSLATE, "--shard", "1/2"): "shard unset, and now it is 1/2 of 10 lines",
    }.items():
        told = refused("translate", tiny.run, file, "-o", output, *changed)
        assert told == (
            f"{tmp_path}/out.part: was begun with {difference}; use the former, or begin again with --restart"
        )
    assert (tmp_path / "out.part").read_bytes() == before
    assert cli("translate", tiny.run, file, "-o", output, "--json", *TRANSLATE, "--restart").code == 0
    assert (tmp_path / "out").read_text() == cli("translate", tiny.run, file, "--json", *TRANSLATE).out


def test_another_model_is_refused(
    cli: Cli, refused: Refused, tiny: TinyRun, small_windows: None, tmp_path: Path
) -> None:
    output, file = begun(cli, tiny, tmp_path), write_lines(tmp_path / "in", LINES)
    other = tiny.run / "checkpoints" / "step_00000040"
    told = refused("translate", other, file, "-o", output, *TRANSLATE)
    model = r"step_\d{8} \(SHA-256 [0-9a-f]{16}\)"
    assert re.search(rf"out\.part: was begun with model {model}, and now it is step_00000040 \(SHA-256 [0-9a-f]", told)


@pytest.mark.parametrize("first", ["kernels", "torch"])
def test_another_route_is_refused(
    cli: Cli, refused: Refused, tiny: TinyRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str
) -> None:
    """With engine=auto, PyTorch computes a model if there are no kernels."""
    if reason := library.missing_reason():
        pytest.skip(reason)
    monkeypatch.setattr(corpus, "WINDOW_LINES", 3)
    monkeypatch.setattr(library, "_load_once", library.load)
    if first == "torch":
        monkeypatch.setenv(library.ENGINE, "torch")
    output, file = begun(cli, tiny, tmp_path), write_lines(tmp_path / "in", LINES)
    monkeypatch.setenv(library.ENGINE, "" if first == "torch" else "torch")
    told = refused("translate", tiny.run, file, "-o", output, *TRANSLATE)
    before, _, now = told.partition(" was begun with route ")[2].partition(", and now it is ")
    routes = [before, now] if first == "kernels" else [now, before]
    assert [route.partition(":")[0] for route in routes] == ["native", "torch"]
    assert "(GLASSFORMER_ENGINE=torch)" in routes[1]


def test_another_instruction_set_is_refused(
    cli: Cli, refused: Refused, tiny: TinyRun, small_windows: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output, file = begun(cli, tiny, tmp_path), write_lines(tmp_path / "in", LINES)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "ANOTHER")
    told = refused("translate", tiny.run, file, "-o", output, *TRANSLATE)
    assert re.search(r"was begun with instructions PyTorch \S+ \w+.*, and now it is PyTorch \S+ ANOTHER", told)


def test_a_setting_cannot_replace_a_name_of_the_job(tiny: TinyRun) -> None:
    """The setting ``engine`` of decoding had replaced the route."""
    job = job_of(tiny.translator, tiny.translator.decoding, engine="auto")
    assert job["engine"] == '"auto"'
    assert set(job) == {"model", "route", "device", "instructions", "engine"}
    with pytest.raises(ValueError, match="route: is a name of the job itself"):
        job_of(tiny.translator, tiny.translator.decoding, route="auto")


def test_another_picture_of_the_same_name_is_refused(
    cli: Cli, refused: Refused, run_of: Callable[[str], Path], small_windows: None, tmp_path: Path
) -> None:
    run, picture, output = run_of("images"), image(tmp_path), tmp_path / "out"
    names = [str(picture)] * 4
    assert cli("classify", run, *names[:3], tmp_path / "missing.png", "-o", output).code == 2
    before = picture.stat()
    os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    told = refused("classify", run, *names, "-o", output)
    assert told.startswith(f"the input: its first 3 lines are not those that {output}.part was made from")
    os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cli("classify", run, *names, "-o", output).code == 0
    assert output.read_text() == cli("classify", run, *names).out


def test_another_input_is_refused_and_a_longer_one_continued(
    cli: Cli, refused: Refused, tiny: TinyRun, small_windows: None, tmp_path: Path
) -> None:
    """Lines after those that are complete may change: the output is that of the input as it is now."""
    output = begun(cli, tiny, tmp_path)
    changed = write_lines(tmp_path / "changed", ["a dog", *LINES[1:]])
    told = f"its first 3 lines are not those that {tmp_path}/out.part was made from; restore them, or begin again"
    assert refused("translate", tiny.run, changed, "-o", output, *TRANSLATE).startswith(f"{changed}: {told}")
    short = write_lines(tmp_path / "short", LINES[:2])
    assert refused("translate", tiny.run, short, "-o", output, *TRANSLATE).startswith(f"{short}: {told}")
    longer = write_lines(tmp_path / "longer", [*LINES[:3], *WORDS])
    assert cli("translate", tiny.run, longer, "-o", output, *TRANSLATE).code == 0
    assert output.read_text() == cli("translate", tiny.run, longer, *TRANSLATE).out
