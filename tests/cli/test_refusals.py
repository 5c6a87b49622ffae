"""What a user can mend is one line on stderr and exit code 2, and leaves nothing half written."""

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassformer.errors import DataError
from glassformer.text.errors import LongTextWarning
from tiny_run import TinyRun, write_lines

Refused = Callable[..., str]
Cli = Callable[..., Any]


def test_input_and_output_that_cannot_be(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    output = tmp_path / "out.fr"
    output.write_text("before\n")
    line = refused("translate", tiny.run, tmp_path / "nowhere.en", "-o", output)
    assert line.endswith("nowhere.en: cannot be read (No such file or directory); choose a readable file")
    broken = tmp_path / "broken.en"
    broken.write_bytes(b"she sleeps\n" * 3 + b"\xe9t\xe9\n")
    line = refused("translate", tiny.run, broken, "-o", output)
    assert re.search(r"broken\.en, line 4: not valid UTF-8 .*; fix the line, or convert the text: iconv ", line)
    assert "standard input, line 1: not valid UTF-8" in refused("tokenize", tiny.run, stdin=b"\xff\n")
    assert output.read_text() == "before\n"
    assert "no folder" in refused("translate", tiny.run, "-o", tmp_path / "none" / "out.fr")
    assert "is a folder" in refused("translate", tiny.run, "-o", tmp_path)
    assert {item.name for item in tmp_path.iterdir()} == {"broken.en", "out.fr"}
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"she sleeps")[:-6])
    assert refused("tokenize", tiny.run, tmp_path / "cut.gz").endswith("; copy or compress it again")


def test_standard_input_is_one_file(refused: Refused, tiny: TinyRun) -> None:
    told = "standard input cannot be both files; name a file for one of them"
    for arguments in (["score", tiny.run, "-", "-"], ["evaluate", tiny.run, "-", "-"]):
        assert refused(*arguments, stdin="a\nb\n") == told
    assert refused("translate", tiny.run, "--prefix", "-", stdin="a\n") == told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["translate", "run", "a", "b"], "Invalid value for 'KEY=VALUE': 'b' has no '='; write for"),
        (["train"], "Missing argument 'config'; see glassformer train --help"),
        (["translate", "run", "--beam-size", "x"], "Invalid value for '--beam-size': "),
        (["embed", "run", "--pooling", "x"], "Invalid value for '--pooling': 'x' is not one of 'mean', 'cls', 'max'"),
        (["trian"], "No such command 'trian'. Did you mean 'train'?; see glassformer --help"),
        (["--bogux"], "No such option: --bogux; see glassformer --help"),
    ],
)
def test_a_command_written_wrongly_is_one_line(refused: Refused, arguments: list[str], told: str) -> None:
    assert refused(*arguments).startswith(told)


def test_nothing_asked_is_answered_with_help(cli: Cli) -> None:
    assert cli().code == 0
    assert "demo " in cli().out
    assert cli().out == cli("--help").out


def test_decoding_settings_that_cannot_be(refused: Refused, tiny: TinyRun) -> None:
    assert "unknown key decoding.beamsize; did you mean decoding.beam_size?" in refused(
        "translate", tiny.run, "-s", "beamsize=3"
    )
    assert "beam_size=0: input should be greater than 0" in refused("translate", tiny.run, "--beam-size", "0")
    line = refused("translate", tiny.run, "--n-best", "5", "--beam-size", "2")
    assert "n_best=5 exceeds beam_size=2; raise beam_size or lower n_best" in line
    line = refused("translate", tiny.run, "-s", "min_length=3", "-s", "max_length=2")
    assert line.endswith("min_length=3 is more than max_length=2; lower the first or raise the second")
    line = refused("translate", tiny.run, "-s", "min_length=70", "-s", "max_extra=60", stdin="the cat\n\n")
    assert re.fullmatch(r"min_length=70 is more than the maximum of 6\d tokens for a text of \d; lower it, or .*", line)
    assert "alpha=inf: input should be a finite number" in refused("translate", tiny.run, "-s", "alpha=inf")


def test_a_line_too_long_for_the_memory(refused: Refused, cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    """It would be 320 GB of scores. Translating holds none."""
    text = write_lines(tmp_path / "text", ["the cat", "a " * 200_000])
    told = "a text of 200,001 tokens does not fit in memory; split it into sentences"
    assert cli("score", tiny.run, text, text).err.splitlines()[-1] == f"glassformer: error: {told}"
    with pytest.warns(LongTextWarning), pytest.raises(DataError, match=told):
        tiny.translator.align("a " * 200_000, "b")


def test_files_that_do_not_pair_up(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    three, two = write_lines(tmp_path / "three", list("abc")), write_lines(tmp_path / "two", list("ab"))
    for verb in ("score", "evaluate"):
        told = f"{three} has 3 lines and {two} 2; the first without a partner is line 3, which {two} does not have"
        assert refused(verb, tiny.run, three, two) == told
    assert "two has fewer lines than" in refused("translate", tiny.run, three, "--prefix", two, "-o", tmp_path / "o")
    assert "three has more lines than the 2 of" in refused(
        "translate", tiny.run, two, "--prefix", three, "-o", tmp_path / "o"
    )
    assert not (tmp_path / "o").exists()
    assert "tokenize='14a' is not known; choose from 13a" in refused(
        "evaluate", tiny.run, two, two, "--tokenize", "14a"
    )


def test_a_picture_of_the_demo_that_cannot_be_is_refused_before_training(refused: Refused, tmp_path: Path) -> None:
    line = refused("demo", "--run", tmp_path / "run", "--picture", tmp_path)
    assert line == f"{tmp_path}: is a folder; name a file in it"
    assert not list(tmp_path.iterdir())


def test_no_line_to_evaluate(refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    empty = write_lines(tmp_path / "empty", [])
    fault = f"{empty} and {empty} are empty; give at least one line in each"
    assert refused("evaluate", tiny.run, empty, empty) == fault


def test_a_link_is_followed_a_pipe_is_written_to_and_the_mode_is_kept(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", ["the cat"])
    expected = cli("translate", tiny.run, source).out
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    assert cli("translate", tiny.run, source, "-o", link).code == 0
    assert link.is_symlink()
    assert real.read_text() == expected
    assert real.stat().st_mode & 0o777 == 0o600
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert cli("translate", tiny.run, source, "-o", pipe).code == 0
    assert os.read(reader, 1000).decode() == expected
    assert pipe.is_fifo()
    os.close(reader)
