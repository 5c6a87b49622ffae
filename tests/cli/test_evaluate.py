"""``glassformer evaluate``: input files and metrics."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from stored_models import stored

import glassformer
import glassformer.predict
from glassformer.cli.class_report import confusion_text, confusion_view, rates_table
from glassformer.explain.figures.view import view_as_svg
from glassformer.metrics.class_report import Confusion, span_report
from glassformer.storage.checkpoint import save_checkpoint
from glassformer.storage.run_folder import resolve
from tiny_run import TinyRun, run_to_the_end, write_lines
from tiny_tasks import TinyTask, made

Cli = Callable[..., Any]
Refused = Callable[..., str]


@pytest.fixture
def task(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TinyTask]:
    return lambda name: made(tmp_path_factory, name)


@pytest.fixture
def pairs(tiny: TinyRun) -> list[tuple[str, str]]:
    sides = ((tiny.folder / f"validation.{code}").read_text(encoding="utf-8").splitlines() for code in ("en", "fr"))
    return list(zip(*sides, strict=True))


@pytest.fixture
def score(cli: Cli, tiny: TinyRun) -> Callable[..., dict[str, Any]]:
    def run(*arguments: object, model: Path = tiny.run) -> dict[str, Any]:
        result = cli("evaluate", model, *arguments, "-s", "beam_size=1", "--json")
        assert (result.code, result.err) == (0, "")
        report: dict[str, Any] = json.loads(result.out)
        del report["seconds"]
        return report

    return run


def test_evaluate_scores_every_training_format_alike(
    tiny: TinyRun, pairs: list[tuple[str, str]], score: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    expected = score(tiny.folder / "validation.en", tiny.folder / "validation.fr")
    tsv = write_lines(tmp_path / "test.tsv", [f"{source}\t{target}\tignored" for source, target in pairs])
    jsonl = write_lines(tmp_path / "test.jsonl", [json.dumps({"en": one, "fr": other}) for one, other in pairs])
    (tmp_path / "test.tsv.gz").write_bytes(gzip.compress(Path(tsv).read_bytes()))
    for file in (tsv, jsonl, tmp_path / "test.tsv.gz", tiny.folder / "validation"):
        assert score(file) == expected
    halves = [write_lines(tmp_path / f"{i}.tsv", ["\t".join(p) for p in pairs[i::2]]) for i in (0, 1)]
    assert score(*halves)["sentences"] == len(pairs)


def test_evaluate_reads_languages_from_a_copied_checkpoint(
    tiny: TinyRun, pairs: list[tuple[str, str]], score: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    alone = shutil.copytree(resolve(tiny.run), tmp_path / "alone")
    jsonl = write_lines(tmp_path / "test.jsonl", [json.dumps({"en": one, "fr": other}) for one, other in pairs])
    assert score(jsonl, model=alone) == score(jsonl)


def test_evaluate_reports_the_selected_metrics_in_order(
    cli: Cli, tiny: TinyRun, score: Callable[..., dict[str, Any]]
) -> None:
    file = tiny.folder / "validation"
    report = score(file, "--metrics", "exact,wer,ter,cer", "--baseline", tiny.run)
    assert list(report) == ["exact", "wer", "ter", "cer", "sentences", "against"]
    assert report["wer"]["signature"] == "nrefs:1|case:mixed|unit:word|norm:no"
    assert report["against"]["cer"]["first"] == report["against"]["cer"]["second"] == report["cer"]["score"]
    lines = cli("evaluate", tiny.run, file, "-s", "beam_size=1", "--metrics", "wer, bleu").out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["BLEU", "WER"]
    assert f"{report['wer']['score']:.2f}" in lines[1]


def test_evaluate_rejects_unusable_files_and_metrics(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    file, alone = tiny.folder / "validation", write_lines(tmp_path / "one.tsv", ["one column"])
    assert refused("evaluate", tiny.run, alone) == (
        f"{alone}, line 1: holds no pair of texts: has one column and no tab; put a tab between source and target, "
        "or remove the line"
    )
    way_out = "give a source and a reference file, or a .tsv or .jsonl with both"
    assert refused("evaluate", tiny.run) == f"no files are given; {way_out}"
    assert refused("evaluate", tiny.run, f"{file}.en") == f"1 file is given; {way_out}"
    assert refused("evaluate", tiny.run, alone, f"{file}.en") == f"2 files are given; {way_out}"
    assert refused("evaluate", tiny.run, file, "--metrics", "bleu,cerr").startswith("'cerr' is not a metric; did you")
    fault = "--metrics ',' names no metric; choose from"
    assert refused("evaluate", tiny.run, file, "--metrics", ",").startswith(fault)
    told = refused("evaluate", tiny.run, file, "--metrics", "wer", "--tokenize", "char")
    assert told == "--tokenize is for BLEU, but --metrics has wer; add bleu or leave it out"
    told = refused("evaluate", tiny.run, file, "--comet", tmp_path)
    assert told == f"{tmp_path}: has no checkpoints/model.ckpt; choose the folder of a downloaded COMET model"


@pytest.mark.parametrize(
    ("name", "file", "unit"),
    [("classification", "train.tsv", "texts"), ("tagging", "train.conll", "words"), ("images", "train.npz", "images")],
)
def test_evaluate_reports_rates_and_confusion_by_class(
    cli: Cli, task: Callable[[str], TinyTask], tmp_path: Path, name: str, file: str, unit: str
) -> None:
    tiny = task(name)
    arguments = ["evaluate", tiny.run, tiny.folder / file, "--figure", tmp_path / "confusion.svg"]
    report = json.loads(cli(*arguments, "--json").out)
    matrix = np.array(report["confusion"]["matrix"])
    assert matrix.sum() == report[unit] == sum(one["support"] for one in report["classes"].values())
    assert report["accuracy"] == pytest.approx(matrix.trace() / matrix.sum())
    assert report["macro_f1"] == report["averages"]["macro"]["f1"]
    assert list(report["classes"]) == report["confusion"]["labels"]
    assert "spans" not in report  # its tags have no prefixes
    lines = cli(*arguments).out.splitlines()
    assert lines[4].split() == ["precision", "recall", "F1", unit]
    first = lines[5].split()
    assert float(first[3]) == pytest.approx(min(one["f1"] for one in report["classes"].values()), abs=1e-4)
    assert lines[-1].split()[1:] == [str(count) for count in matrix[-1]]
    svg = (tmp_path / "confusion.svg").read_text(encoding="utf-8")
    assert f"of {report[unit]:,} {unit}" in svg
    for label in report["confusion"]["labels"]:
        assert f">{label}</text>" in svg


def test_evaluate_scores_prefixed_tags_as_spans(cli: Cli, task: Callable[[str], TinyTask], tmp_path: Path) -> None:
    tiny = task("tagging")
    text = (tiny.folder / "train.conll").read_text(encoding="utf-8")
    for old, new in ((" DET", " B-NP"), (" NOUN", " I-NP"), (" VERB", " O")):
        text = text.replace(old, new)
    (tmp_path / "spans.conll").write_text(text, encoding="utf-8")
    config = tiny.config(max_steps=10)
    files = {"train": [str(tmp_path / "spans.conll")], "validation": []}
    run_to_the_end(config.model_copy(update={"data": config.data.model_copy(update=files)}), tmp_path / "run")
    report = json.loads(cli("evaluate", tmp_path / "run", tmp_path / "spans.conll", "--json").out)
    sentences = [[line.split() for line in block.splitlines()] for block in text.strip().split("\n\n")]
    true = [[tag for _, tag in sentence] for sentence in sentences]
    predicted = glassformer.load(tmp_path / "run").tag([[word for word, _ in sentence] for sentence in sentences])
    assert report["spans"] == json.loads(json.dumps(span_report(predicted, true).as_json()))
    assert report["spans"]["classes"]["NP"]["support"] == len(sentences)
    out = cli("evaluate", tmp_path / "run", tmp_path / "spans.conll").out
    assert f"span F1 (micro)    {report['spans']['averages']['micro']['f1']:.4f}" in out
    assert out.splitlines()[-1].split()[-1] == str(len(sentences))


def many_classes(n_classes: int) -> Confusion:
    labels = [f"intent_{number:03d}_with_a_long_name_indeed" for number in range(n_classes)]
    predicted = [labels[(number + (number % 5 == 0)) % n_classes] for number in range(n_classes)]
    return Confusion.of(predicted * 3, labels * 3)


def test_rates_table_lists_the_lowest_f1_first() -> None:
    confusion = many_classes(77)
    lines = rates_table(confusion.report(), "texts").splitlines()
    assert len(lines) == 1 + 77 + 3
    rates = [float(line.split()[3]) for line in lines[1:78]]
    assert rates == sorted(rates)
    assert lines[-3].startswith("macro average ")
    assert lines[-1].endswith(" 231")
    errors = confusion_text(confusion).splitlines()
    assert errors[0] == "most frequent errors"
    assert len(errors) == 2 + 10
    assert errors[2].split() == [*(f"intent_00{number}_with_a_long_name_indeed" for number in (0, 1)), "3", "of", "3"]
    assert confusion_text(Confusion.of(list("abcdefghijklm"), list("abcdefghijklm"))) == "no errors"


def test_confusion_figure_labels_all_77_classes() -> None:
    view = confusion_view(many_classes(77), "texts")
    assert view.pooled() is view
    assert view_as_svg(view).count(">intent_000_w…deed<") == 2  # row label and column label
    assert "0.5 or more: brightest" in view_as_svg(view)
    assert "pooled by max" in view_as_svg(confusion_view(many_classes(300), "texts"))


def test_evaluate_figure_needs_classes_and_a_known_format(
    refused: Refused, tiny: TinyRun, task: Callable[[str], TinyTask], tmp_path: Path
) -> None:
    told = refused("evaluate", tiny.run, tiny.folder / "validation", "--figure", "x.svg")
    fault = "--figure draws a confusion matrix, but task=translation has no classes; leave it out"
    assert told == f"{tiny.run}: {fault}"
    file = task("tagging").folder / "train.conll"
    assert "no kind of figure" in refused("evaluate", task("tagging").run, file, "--figure", tmp_path / "x.jpg")
    told = refused("evaluate", task("tagging").run, file, "--figure", tmp_path / "none" / "x.svg")
    assert "cannot be written" in told


def as_task(checkpoint: Path, task: str) -> Path:
    """The same checkpoint, of another task."""
    config, other = json.loads((checkpoint / "config.json").read_text()), checkpoint.with_name(task)
    weights, tokenizer = load_file(checkpoint / "model.safetensors"), (checkpoint / "tokenizer.json").read_bytes()
    save_checkpoint(other, config={**config, "task": task}, tokenizer=tokenizer, weights=weights)
    return other


def test_evaluate_refuses_tasks_that_have_no_scores(refused: Refused, tmp_path: Path) -> None:
    run = as_task(stored(tmp_path, "masked"), "embedding")
    told = refused("evaluate", run, "text.txt")
    assert told.startswith(f"{run}: a run of task=embedding has no scores; evaluate a run of translation, language, ")
    assert "task=embedding has no classes" in refused("evaluate", run, "text.txt", "--figure", "x.svg")
    run = as_task(stored(tmp_path, "language"), "dreaming")
    assert "task='dreaming' is not a task" in refused("evaluate", run, "text.txt")
    assert "task=dreaming has no classes" in refused("evaluate", run, "text.txt", "--figure", "x.svg")


def test_evaluate_images_needs_no_settings_of_a_training(
    cli: Cli, task: Callable[[str], TinyTask], tmp_path: Path
) -> None:
    images = task("images")
    checkpoint = shutil.copytree(resolve(images.run), tmp_path / "copy" / "images")
    (tmp_path / "config.toml").write_text("[other]\nkey = 1\n")
    assert cli("evaluate", checkpoint, images.folder / "train.npz", "--json").code == 0


@pytest.mark.parametrize("name", ["language", "tagging", "forecasting"])
def test_evaluate_checks_its_files_before_it_loads_the_model(
    refused: Refused, task: Callable[[str], TinyTask], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = shutil.copytree(resolve(task(name).run), tmp_path / "elsewhere" / "copy")
    monkeypatch.setattr(glassformer.predict, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    files = ["a.csv", "b.csv"] if name == "forecasting" else []
    told = refused("evaluate", checkpoint, *files)
    assert "no file is named" in told or "2 tables are named" in told


def test_evaluate_limits_the_lines_of_a_table(refused: Refused, task: Callable[[str], TinyTask]) -> None:
    tiny = task("forecasting")
    told = refused("evaluate", tiny.run, tiny.folder / "series.csv", "--max-line-bytes", 5)
    assert told.endswith("series.csv, line 1: has more than 5 bytes; break the line, or raise --max-line-bytes")
