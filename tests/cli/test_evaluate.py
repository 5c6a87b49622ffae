"""``glassformer evaluate``: the files that it reads, and the metrics that it computes."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.run_folder import resolve
from tiny_run import TinyRun, write_lines

Cli = Callable[..., Any]
Refused = Callable[..., str]


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


def test_every_form_that_training_reads_has_the_scores_of_the_two_files(
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


def test_the_languages_are_those_of_the_checkpoint_wherever_it_lies(
    tiny: TinyRun, pairs: list[tuple[str, str]], score: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    alone = shutil.copytree(resolve(tiny.run), tmp_path / "alone")
    jsonl = write_lines(tmp_path / "test.jsonl", [json.dumps({"en": one, "fr": other}) for one, other in pairs])
    assert score(jsonl, model=alone) == score(jsonl)


def test_metrics_are_those_that_are_named_in_that_order(
    cli: Cli, tiny: TinyRun, score: Callable[..., dict[str, Any]]
) -> None:
    file = tiny.folder / "validation"
    report = score(file, "--metrics", "exact,wer,ter,cer", "--against", tiny.run)
    assert list(report) == ["exact", "wer", "ter", "cer", "sentences", "against"]
    assert report["wer"]["signature"] == "nrefs:1|case:mixed|unit:word|norm:no"
    assert report["against"]["cer"]["first"] == report["against"]["cer"]["second"] == report["cer"]["score"]
    lines = cli("evaluate", tiny.run, file, "-s", "beam_size=1", "--metrics", "wer, bleu").out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["BLEU", "WER"]
    assert f"{report['wer']['score']:.2f}" in lines[1]


def test_what_cannot_be_measured(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    file, alone = tiny.folder / "validation", write_lines(tmp_path / "one.tsv", ["one column"])
    assert refused("evaluate", tiny.run, alone) == (
        f"{alone}, line 1: holds no pair of texts: has one column and no tab; put a tab between source and target, "
        "or remove the line"
    )
    way_out = "give two, of source lines and of reference translations, or a .tsv or .jsonl with both"
    assert refused("evaluate", tiny.run) == f"no files are named; {way_out}"
    assert refused("evaluate", tiny.run, f"{file}.en") == f"1 file is named; {way_out}"
    assert refused("evaluate", tiny.run, alone, f"{file}.en") == f"2 files are named; {way_out}"
    assert refused("evaluate", tiny.run, file, "--metrics", "bleu,cerr").startswith("'cerr' is not a metric; did you")
    assert refused("evaluate", tiny.run, file, "--metrics", ",").startswith("--metrics ',' names none; choose from")
    told = refused("evaluate", tiny.run, file, "--metrics", "wer", "--tokenize", "char")
    assert told == "--tokenize is for BLEU, and --metrics has wer; add bleu or leave it out"
    told = refused("evaluate", tiny.run, file, "--comet", tmp_path)
    assert told == f"{tmp_path}: has no checkpoints/model.ckpt; name the folder of a downloaded COMET model"
