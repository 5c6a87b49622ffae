"""Language of the code: docstrings start with a noun phrase or an imperative, and names are words of the field.

Files of ``NOT_YET`` still contain faults: lower the number of a file that you mend. An empty table is the goal. As a
program, this file prints the current table.
"""

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

NOT_YET: dict[str, int] = {
    "explain/analysis/attribution.py": 3,
    "explain/analysis/heads.py": 3,
    "explain/analysis/lens.py": 2,
    "explain/figures/panels.py": 1,
    "explain/figures/svg.py": 3,
    "explain/page/links.py": 1,
    "explain/page/matrices.py": 4,
    "explain/page/numbers.py": 2,
    "explain/page/sheets.py": 3,
    "explain/page/wording.py": 1,
    "explain/report.py": 7,
    "explain/walkthrough/step.py": 7,
}


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


def is_old(name: str) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    return any(f"_{old}_" in f"_{words}_" for old in OLD_NAMES)


def faults(source: str) -> list[str]:
    tree = ast.parse(source)
    listed = [f"{line}: {text.splitlines()[0]}" for line, text in docstrings(tree) if first_word(text) in RELATIVE]
    return listed + [f"{line}: {name}" for line, name in names(tree) if is_old(name)]


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_docstrings_and_names_use_the_field_s_language(path: Path) -> None:
    found = faults(path.read_text(encoding="utf-8"))
    limit = NOT_YET.get(str(path.relative_to(SOURCES)), 0)
    assert len(found) == limit, f"{path}: {len(found)} faults, NOT_YET has {limit}:\n" + "\n".join(found)


def test_listed_files_exist() -> None:
    assert [path for path in NOT_YET if not (SOURCES / path).is_file()] == []


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


if __name__ == "__main__":
    for file in sorted(SOURCES.rglob("*.py")):
        if count := len(faults(file.read_text(encoding="utf-8"))):
            print(f'    "{file.relative_to(SOURCES)}": {count},')
