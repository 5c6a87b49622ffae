"""Language of the code: docstrings and comments begin with a noun phrase or an imperative; names are standard."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "glassformer"

RELATIVE = {
    "what",
    "which",
    "whether",
    "who",
    "whom",
    "whose",
    "where",
    "wherever",
    "when",
    "how",
    "why",
    "that",
    "those",
    "of",
    "its",
    "it",
    "their",
    "they",
    "and",
    "as",
    "if",
    "but",
    "so",
}
"""First words of a docstring that make it a relative clause or a genitive without its noun."""

OLD_NAMES = {
    "told",
    "said",
    "wanted",
    "asked",
    "opened",
    "examined",
    "shown",
    "overheard",
    "undrawn",
    "impatient",
    "abreast",
    "worth",
    "smoothed",
    "heatmap",
} | {"left_out", "at_hand", "why_not", "close_up", "spread_out", "over_keys", "side_by_side"}
"""Names that have been replaced by words of the field; each is wrong as a part of any name."""

KERNELS = SOURCES / "native" / "csrc"

OLD_WORDS_OF_KERNELS = (OLD_NAMES - {"smoothed"}) | {
    "kept",
    "whole",
    "turned",
    "put_in",
    "site",
    "rejoin",
    "asking",
    "ancestor",
    "further",
    "scratch",
    "given",
    "seen",
    "see",
    "sees",
    "room",
    "apart",
    "some",
    "dots",
    "weigh",
    "nobody",
    "anew",
    "lest",
}
"""Words that neither names nor comments of the C++ sources may contain."""


def first_word(docstring: str) -> str:
    match = re.match(r"[^A-Za-z`]*([A-Za-z]+)\b", docstring)
    return match.group(1).lower() if match else ""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a module, class, function or attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield node.body[0].lineno, text
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.AnnAssign | ast.Assign) and isinstance(after, ast.Expr):
                    value = after.value
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield after.lineno, value.value


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of each class, function, argument, field and variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def is_old(name: str, old_names: set[str] = OLD_NAMES) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    return any(f"_{old}_" in f"_{words}_" for old in old_names)


def faults(source: str) -> list[str]:
    tree = ast.parse(source)
    listed = [f"{line}: {text.splitlines()[0]}" for line, text in docstrings(tree) if first_word(text) in RELATIVE]
    return listed + [f"{line}: {name}" for line, name in names(tree) if is_old(name)]


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each block of ``//`` comments."""
    block: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], start=1):
        code, mark, comment = line.partition("//")
        continues = mark and not code.strip() and block
        if block and not continues:
            yield number - len(block), " ".join(block)
            block = []
        if mark:
            block.append(comment.strip())
            if code.strip():
                yield number, block.pop()


def kernel_faults(source: str) -> list[str]:
    """Old words in names and comments, and comments of a block that begin with a relative clause."""
    listed = []
    for number, text in comments(source):
        words = set(re.findall(r"[a-z_]+", text.lower()))
        if old := words & OLD_WORDS_OF_KERNELS:
            listed.append(f"{number}: {min(old)} in: {text[:80]}")
        if text[:1].isupper() and first_word(text) in RELATIVE:
            listed.append(f"{number}: {text[:80]}")
    for number, line in enumerate(source.splitlines(), start=1):
        code = re.sub(r'"[^"]*"', "", line.partition("//")[0])
        listed += [
            f"{number}: {name}" for name in re.findall(r"[A-Za-z_]\w*", code) if is_old(name, OLD_WORDS_OF_KERNELS)
        ]
    return listed


@pytest.mark.parametrize("path", sorted([*KERNELS.glob("*.h"), *KERNELS.glob("*.cpp")]), ids=lambda path: path.name)
def test_comments_and_names_of_kernels_use_the_field_s_language(path: Path) -> None:
    assert kernel_faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("// What a thread keeps.", 1),
        ("// Buffers of a thread.\n// What follows is a sentence.", 0),
        ("int64_t room;", 1),
        ("int64_t rooms;  // the whole row", 1),
        ("int a;  // what follows code is a phrase", 0),
        ('#include "some.h"', 0),
        ("struct SeenRows {};", 1),
    ],
)
def test_linter_counts_faults_of_kernels(source: str, expected: int) -> None:
    assert len(kernel_faults(source)) == expected


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_docstrings_and_names_use_the_field_s_language(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""What is asked of a model."""', 1),
        ('"""Model and its inputs."""', 0),
        ('def f():\n    """Of the drawing."""', 1),
        ('SIZE = 3\n"""Whether it fits."""', 1),
        ('class A:\n    x: int\n    """Where it stands."""', 1),
        ('"""``whether`` is a name here."""', 0),
        ("def f(text_told): pass", 1),
        ("class LeftOut: pass", 1),
        ("self.is_shown = True", 1),
        ("showing, retold = 1, 2", 0),
    ],
)
def test_linter_counts_faults(source: str, expected: int) -> None:
    assert len(faults(source)) == expected
