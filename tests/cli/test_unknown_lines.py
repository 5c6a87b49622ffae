"""Commands warn of unknown text at its first line and print totals."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_models import stored

from glassformer import predict
from glassformer.text.errors import UnknownWarning
from tiny_run import TinyRun, run_to_the_end, write_lines

Cli = Callable[..., Any]
START = "glassformer: warning: "
FIRST = "not in the vocabulary: 'П', 'р', 'и' and 3 more; read as <unk>"
LINES = ["the cat", "Привет cat", "", "🚀 sleeps", "she sleeps"]
KNOWN = [LINES[0], LINES[2], LINES[4]]


def messages_about(file: str) -> list[str]:
    """Messages of a command about ``LINES``."""
    share = "2 of 5 lines have text outside the vocabulary, 7 different: 'П', 'р', 'и' and 4 more"
    return [f"{START}{file}, line 2: {FIRST}", f"{START}{file}: {share}"]


def test_translate_warns_once_of_unknown_text_and_prints_totals(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "text", LINES)
    plain = cli("translate", tiny.run, file)
    assert plain.code == 0
    assert plain.err.splitlines() == messages_about(file)
    assert cli("translate", tiny.run, stdin="\n".join(LINES)).err.splitlines() == messages_about("standard input")
    known = cli("translate", tiny.run, stdin="\n".join(KNOWN))
    assert known.err == ""
    assert known.out.splitlines() == [plain.out.splitlines()[place] for place in (0, 2, 4)]


def test_unknown_line_numbers_count_across_chunks(cli: Cli, tiny: TinyRun) -> None:
    lines = ["she sleeps"] * 600 + ["🚀"]
    result = cli("translate", tiny.run, "-s", "max_length=1", "--beam-size", 1, stdin="\n".join(lines))
    assert result.err == f"{START}standard input, line 601: not in the vocabulary: '🚀'; read as <unk>\n"


def test_translate_json_flags_every_line_with_unknown_text(cli: Cli, tiny: TinyRun) -> None:
    lines = cli("translate", tiny.run, "--json", "--alignments", stdin="\n".join(LINES))
    found = [json.loads(line).get("unknown") for line in lines.out.splitlines()]
    assert found == [None, list("Привет"), None, ["🚀"], None]
    assert lines.err.splitlines() == messages_about("standard input")


def test_score_and_align_name_the_side_with_unknown_text(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "s", ["the 🚀", "the cat"]), write_lines(tmp_path / "t", ["le", "le П"])
    warned = [f"{START}{source}, line 1: not in the vocabulary: '🚀'; read as <unk>"]
    warned += [f"{START}{target}, line 2: not in the vocabulary: 'П'; read as <unk>"]
    result = cli("score", tiny.run, source, target, "--json")
    assert result.err.splitlines() == warned
    first, second = map(json.loads, result.out.splitlines())
    assert (first["unknown_source"], second["unknown_target"]) == (["🚀"], ["П"])
    assert "unknown_target" not in first
    assert "unknown_source" not in second
    assert cli("align", tiny.run, source, target).err.splitlines() == warned


def test_translate_names_the_prefix_file_with_unknown_text(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    starts = write_lines(tmp_path / "starts", ["le", "le Ж"])
    result = cli("translate", tiny.run, "--prefix", starts, "--json", stdin="the cat\nthe cat 🚀\n")
    assert f"{START}{starts}, line 2: not in the vocabulary: 'Ж'; read as <unk>" in result.err.splitlines()
    first, second = map(json.loads, result.out.splitlines())
    assert "unknown_prefix" not in first
    assert (second["unknown"], second["unknown_prefix"]) == (["🚀"], ["Ж"])


def test_evaluate_warns_of_unknown_source_text(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "s", LINES), write_lines(tmp_path / "t", ["le chat"] * 5)
    result = cli("evaluate", tiny.run, source, target, "--baseline", tiny.run)
    assert result.err.splitlines() == messages_about(source)


@pytest.mark.parametrize(
    ("verb", "task", "suffix"),
    [
        ("classify", "classification", ""),
        ("tag", "tagging", ""),
        ("generate", "language", ""),
        ("fill", "masked", " [MASK]"),
        ("embed", "masked", ""),
    ],
)
def test_commands_of_other_tasks_warn_of_unknown_text(
    cli: Cli, tmp_path: Path, verb: str, task: str, suffix: str
) -> None:
    run = stored(tmp_path, task)
    lines = ["a small dog", "a Ж dog", "Ж 🚀 cat"]
    text = "".join(f"{line}{suffix}\n" for line in lines)
    result = cli(verb, run, *(["--json"] if verb != "embed" else []), stdin=text)
    assert result.code == 0
    warnings_told = [line for line in result.err.splitlines() if "vocabulary" in line]
    assert warnings_told[0] == f"{START}standard input, line 2: not in the vocabulary: 'Ж'; read as <unk>"
    assert "2 of 3 lines have text outside the vocabulary, 2 different: 'Ж', '🚀'" in warnings_told[1]
    assert len(warnings_told) == 2
    if verb != "embed":
        flags = [json.loads(line).get("unknown") for line in result.out.splitlines()]
        assert flags == [None, ["Ж"], ["Ж", "🚀"]]


@pytest.mark.parametrize(("verb", "task"), [("classify", "classification"), ("generate", "language")])
def test_unknown_text_in_an_argument_has_no_line_number(cli: Cli, tmp_path: Path, verb: str, task: str) -> None:
    result = cli(verb, stored(tmp_path, task), "a Ж dog")
    what = "prompt" if verb == "generate" else "text"
    assert f"{START}{what} 1: not in the vocabulary: 'Ж'; read as <unk>" in result.err.splitlines()


@pytest.mark.parametrize("task", ["classification", "tagging", "masked", "language"])
def test_predictors_warn_once_a_call_of_unknown_text(tmp_path: Path, task: str) -> None:
    model = predict.load(stored(tmp_path, task))
    methods = {"classification": "classify", "tagging": "tag", "masked": "fill", "language": "generate"}
    call, texts = getattr(model, methods[task]), ["a [MASK] dog", "Ж [MASK]", "🚀 [MASK]"]
    with pytest.warns(UnknownWarning) as caught:
        call(texts if task == "masked" else [text.replace(" [MASK]", "") for text in texts])
    (warning,) = [one for one in caught if isinstance(one.message, UnknownWarning)]
    assert warning.message.found == {2: ["Ж"], 3: ["🚀"]}


def test_translator_warns_at_the_calling_line(tiny: TinyRun) -> None:
    for call in (tiny.translator.translate, tiny.translator.hypotheses):
        with pytest.warns(UnknownWarning) as caught:
            call(["the cat", "", "🚀"])
        assert [one.message.found for one in caught] == [{3: ["🚀"]}]  # type: ignore[union-attr]
        assert caught[0].filename == __file__


def test_validation_does_not_warn_of_unknown_text(tiny: TinyRun, tmp_path: Path) -> None:
    for language in ("en", "fr"):
        write_lines(tmp_path / f"unseen.{language}", ["the 🚀", "Привет"])
    config = tiny.config({"data.validation": [str(tmp_path / "unseen")], "train.max_steps": 2, "validation.every": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownWarning)
        run_to_the_end(config, tmp_path / "run")
