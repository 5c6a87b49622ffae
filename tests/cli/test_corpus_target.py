"""The target of a corpus: options that are refused before any work, and compression by name."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus_lines import LINES, TRANSLATE, VERBS
from stored_models import table

from glassformer.cli.io import open_output
from tiny_run import TinyRun, write_lines

Cli = Callable[..., Any]
Refused = Callable[..., str]


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1/0", "1", "a/b", "-1/3", "1/3/5", ""])
def test_a_shard_that_cannot_be_is_refused(refused: Refused, tiny: TinyRun, shard: str) -> None:
    told = f"--shard {shard}: has the form i/n, i from 1 to n; give for example --shard 1/4"
    assert refused("translate", tiny.run, "--shard", shard, stdin="I\n") == told


def test_a_shard_of_a_pipe_is_refused(refused: Refused, tiny: TinyRun) -> None:
    told = "--shard 1/2: reads the input twice; name regular files, not standard input"
    assert refused("translate", tiny.run, "--shard", "1/2", stdin="I\n") == told


BAD_TARGETS = {
    "--shard 0/2": "--shard 0/2: has the form i/n",
    "--shard 1/2": "--shard 1/2: reads the input twice",
    "--restart": "--restart is for an output that is a file",
    "-o {}/missing/out": "cannot be written (there is no folder",
    "-o {}/out.zst": "/out.zst: an output is not compressed by zstd; name it .gz, or without .zst",
}


@pytest.mark.parametrize("verb", [*VERBS, "score"])
def test_options_of_the_output_are_checked_before_the_model_is_loaded(
    refused: Refused, run_of: Callable[[str], Path], tmp_path: Path, verb: str
) -> None:
    """The model cannot be loaded."""
    run = shutil.copytree(run_of(VERBS[verb][0] if verb in VERBS else ""), tmp_path / "run", symlinks=True)
    for weights in run.rglob("model.safetensors"):
        weights.write_bytes(b"")
    files = [] if verb != "score" else ["-", write_lines(tmp_path / "in", LINES)]
    assert "model.safetensors" in refused(verb, run, *files, stdin="I\n")
    for options, told in BAD_TARGETS.items():
        assert told in refused(verb, run, *files, *options.format(tmp_path).split(), stdin="I\n")


def test_a_compressed_array_is_refused(refused: Refused, run_of: Callable[[str], Path], tmp_path: Path) -> None:
    told = refused("embed", run_of("masked"), "-", "--format", "npy", "-o", tmp_path / "v.npy.gz", stdin="I\n")
    assert told == f"{tmp_path}/v.npy.gz: --format npy is not compressed; name the output .npy, or use --format jsonl"


def test_a_table_is_not_read_as_lines(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "in.parquet", LINES)
    told = f"{file}: is a table, not lines of text; write its column of text to a file, one text a line"
    for arguments in (["translate", tiny.run, file], ["score", tiny.run, file, file], ["tokenize", tiny.run, file]):
        assert refused(*arguments) == told


@pytest.mark.parametrize(("name", "target"), [("out.gz", "data"), ("out", "data.gz")])
def test_the_name_of_a_link_decides_the_compression(
    cli: Cli, tiny: TinyRun, small_windows: None, tmp_path: Path, name: str, target: str
) -> None:
    file = write_lines(tmp_path / "in", LINES)
    (tmp_path / name).symlink_to(tmp_path / target)
    assert cli("translate", tiny.run, file, *TRANSLATE, "-o", tmp_path / name).code == 0
    data = (tmp_path / target).read_bytes()
    plain = cli("translate", tiny.run, file, *TRANSLATE).out
    assert (gzip.decompress(data) if name.endswith(".gz") else data).decode() == plain


COMMANDS = {"tokenize": "", "align": "", "fill": "masked", "generate": "language", "forecast": "forecasting"}
"""Task of the run of each verb whose output does not continue after an interruption."""


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_output_is_compressed_by_its_name(
    cli: Cli, refused: Refused, run_of: Callable[[str], Path], tmp_path: Path, verb: str
) -> None:
    run = run_of(COMMANDS[verb])
    file = write_lines(tmp_path / "in", ["the cat", "you sleep"])
    options: list[object] = {
        "tokenize": [file],
        "align": [file, file],
        "fill": ["I [MASK]"],
        "generate": ["the", "-s", "max_length=3"],
        "forecast": [table(tmp_path)],
    }[verb]
    plain = cli(verb, run, *options)
    assert plain.code == 0 and plain.out
    assert cli(verb, run, *options, "-o", tmp_path / "out.gz").code == 0
    data = (tmp_path / "out.gz").read_bytes()
    assert gzip.decompress(data).decode() == plain.out
    assert data[3:8] == bytes(5)  # neither name nor time: equal text gives equal bytes
    told = f"{tmp_path}/out.zst: an output is not compressed by zstd; name it .gz, or without .zst"
    assert refused(verb, tmp_path / "no_run", *options, "-o", tmp_path / "out.zst") == told


def test_a_page_is_compressed_by_its_name(cli: Cli, refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    assert cli("walkthrough", tiny.run, "the cat", "--html", tmp_path / "page.html.gz").code == 0
    assert gzip.decompress((tmp_path / "page.html.gz").read_bytes()).startswith(b"<!doctype html>")
    told = f"{tmp_path}/page.zst: an output is not compressed by zstd; name it .gz, or without .zst"
    assert refused("walkthrough", tiny.run, "the cat", "--html", tmp_path / "page.zst") == told


def test_batches_do_not_make_a_compressed_output_larger(tmp_path: Path) -> None:
    for name, every in (("often.gz", 1), ("once.gz", 1000)):
        with open_output(str(tmp_path / name)) as stream:
            for number in range(1000):
                stream.write("word ")
                if (number + 1) % every == 0:
                    stream.flush()
    assert (tmp_path / "often.gz").read_bytes() == (tmp_path / "once.gz").read_bytes()


def test_restart_needs_a_file(refused: Refused, tiny: TinyRun) -> None:
    told = "--restart is for an output that is a file; name one with --output"
    assert refused("translate", tiny.run, "--restart", stdin="I\n") == told
