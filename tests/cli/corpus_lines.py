"""Lines and options for tests of the verbs that predict each line of a corpus."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]
LINES = [
    "the old cat sleeps",
    "",
    "she sees a tree",
    "  ",
    "I love you",
    "a Ж dog",
    "the cat",
    "you sleep",
    "a bird",
    "I",
]
WORDS = [line for line in LINES if line.strip()]
TRANSLATE = ["--beam-size", 1, "-s", "max_extra=2"]
VERBS = {
    "translate": ("", [*TRANSLATE, "--json"], LINES),
    "classify": ("classification", ["--json"], WORDS),
    "tag": ("tagging", [], LINES),
    "embed": ("masked", [], LINES),
}
"""Task of the run, options and lines of each verb that reads one text per line."""


def interrupted(cli: Cli, verb: str, run: Path, output: Path, options: list[Any], lines: list[str]) -> Any:
    """End a command by an invalid line after ``lines``."""
    text = "".join(f"{line}\n" for line in lines).encode()
    return cli(verb, run, "-", "-o", output, *options, stdin=text + b"\xff\n")
