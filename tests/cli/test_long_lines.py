"""Long lines on the command line: limits, messages with line numbers, and consistent output formats."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiny_run import TinyRun, run_to_the_end, write_lines

Cli = Callable[..., Any]
Refused = Callable[..., str]
START = "glassformer: warning: standard input"
SENTENCES = ["the old cat sleeps.", "she sees a tree.", "you sleep.", "the dog sees a cat!"]
LONG = " ".join(SENTENCES * 20)


def of_length(err: str) -> list[str]:
    return [line for line in err.splitlines() if " the vocabulary" not in line]


def test_translate_splits_long_lines_and_warns_once(cli: Cli, tiny: TinyRun) -> None:
    result = cli("translate", tiny.run, stdin=f"the cat\n{LONG}\nyou sleep\n{LONG}\n")
    assert result.code == 0
    first, summary = of_length(result.err)
    told = r", line 2: \d+ tokens exceed the limit of 256; it is translated in 80 pieces"
    assert re.fullmatch(START + told, first)
    assert summary == f"{START}: 2 of 4 lines exceed the token limit, translated in 160 pieces"
    lines = result.out.splitlines()
    alone = cli("translate", tiny.run, stdin="\n".join(SENTENCES)).out.splitlines()
    assert lines[1] == lines[3] == " ".join(text for text in alone * 20 if text)
    assert cli("translate", tiny.run, stdin="the cat\nyou sleep\n").out.splitlines() == [lines[0], lines[2]]


def test_translate_json_has_the_pieces_of_both_sides(cli: Cli, tiny: TinyRun) -> None:
    result = cli("translate", tiny.run, "--json", "--alignments", "--attention", stdin=f"the cat\n{LONG}\n")
    short, long = map(json.loads, result.out.splitlines())
    assert "pieces" not in short
    assert [piece.strip() for piece in long["pieces"]] == SENTENCES * 20
    (found,) = long["translations"]
    assert " ".join(text for text in found["pieces"] if text) == found["text"]
    assert len(found["tokens"]) == len(found["token_log_probs"])
    assert len(found["alignment"].split()) == len(found["text"].split())
    assert [len(one["source"]) for one in found["cross_attention"][:4]] == [
        len(tiny.translator.tokenizers.source.encode(sentence)) + 1 for sentence in SENTENCES
    ]
    assert isinstance(short["translations"][0]["cross_attention"], dict)


def test_translate_truncates_or_refuses_long_lines(cli: Cli, refused: Refused, tiny: TinyRun, tmp_path: Path) -> None:
    result = cli("translate", tiny.run, "--truncate", "--max-source", 10, "--json", stdin=f"I\n{LONG}\n")
    (told,) = of_length(result.err)
    assert re.fullmatch(START + r", line 2: \d+ tokens exceed the limit of 10; it is truncated", told)
    long = json.loads(result.out.splitlines()[1])
    assert long["long"] == {"tokens": len(tiny.translator.tokenizers.source.encode(LONG)) + 1, "limit": 10}
    assert long["source"] == LONG
    file = write_lines(tmp_path / "text", ["I", LONG])
    line = cli("translate", tiny.run, file, "--no-truncate", "-o", tmp_path / "out").err.splitlines()[-1]
    fault = rf"glassformer: error: {file}, line 2: has \d+ tokens, more than the limit of 256; shorten .*"
    assert re.fullmatch(fault, line)
    assert not (tmp_path / "out").exists()
    assert "max_source=1: input should be greater than 1" in refused("translate", tiny.run, "--max-source", 1)


def test_translate_splits_long_lines_with_learned_positions(cli: Cli, tiny: TinyRun, tmp_path: Path) -> None:
    """``score`` cannot cut its texts, so it still refuses them."""
    values = {"model.positions": "learned", "model.max_length": 40, "data.max_length": 40}
    config = tiny.config({**values, "train.max_steps": 1, "data.validation": []})
    run_to_the_end(config, tmp_path / "run")
    line = "the cat " * 60
    result = cli("translate", tmp_path / "run", stdin=f"she sleeps\n{line}\n")
    assert result.code == 0
    assert "line 2: 181 tokens exceed the limit of 40; it is translated in" in result.err
    source, target = write_lines(tmp_path / "s", [line]), write_lines(tmp_path / "t", ["le"])
    scored = cli("score", tmp_path / "run", source, target)
    assert scored.code == 2
    assert "tokens are longer than max_length=40, and learned positions end there" in scored.err


@pytest.mark.parametrize(
    "line",
    ["the old cat sees a tree " * 1000, "she sees a tree. The cat sleeps. " * 860, "x" * 100_000],
    ids=["words", "sentences", "one word"],
)
def test_translate_finishes_lines_of_thousands_of_words(cli: Cli, tiny: TinyRun, line: str) -> None:
    result = cli("translate", tiny.run, "--json", "-s", "max_extra=0", "--beam-size", 1, stdin=f"{line}\n")
    assert result.code == 0
    pieces = json.loads(result.out)["pieces"]
    assert "".join(pieces) == line.rstrip("\n")
    assert max(len(tiny.translator.tokenizers.source.encode(piece)) + 1 for piece in pieces) <= 256
