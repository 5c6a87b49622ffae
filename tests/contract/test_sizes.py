"""Sizes of files, functions and lines of text, as ARCHITECTURE.md gives them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "glassformer"
PAGES = ("benchmarks", "docs", "examples")
MAX_LINES, MAX_LINES_OF_A_MODEL = 400, 200
MAX_FUNCTION_LINES, MAX_PARAMETERS, MAX_COLUMNS = 50, 8, 120


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Yield each function, and True if it is a method that has ``self`` or ``cls``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args]
            yield node, bool(arguments) and arguments[0].arg in ("self", "cls")


def oversized(source: str, max_lines: int, *, verb: bool = False) -> list[str]:
    """List what exceeds its limit. ``verb``: typer reads its options from the parameters of ``command``."""
    lines = source.count("\n")
    listed = [f"{lines} lines"] if lines > max_lines else []
    for node, is_method in functions(ast.parse(source)):
        size = (node.end_lineno or 0) - node.lineno + 1
        parameters = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - is_method
        if size > MAX_FUNCTION_LINES:
            listed.append(f"{node.name}: {size} lines")
        if parameters > MAX_PARAMETERS and not (verb and node.name == "command"):
            listed.append(f"{node.name}: {parameters} parameters")
    return listed


def wide_lines(text: str) -> list[int]:
    """Numbers of the lines that are too long. A row of a table cannot be wrapped."""
    return [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if len(line) > MAX_COLUMNS and not line.startswith("|")
    ]


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCES)))
def test_files_and_functions_of_the_package_are_small(path: Path) -> None:
    room = path.relative_to(SOURCES).parts[0]
    limit = MAX_LINES_OF_A_MODEL if room in ("layers", "models") else MAX_LINES
    assert oversized(path.read_text(encoding="utf-8"), limit, verb=room == "cli") == []


def test_lines_of_markdown_are_short() -> None:
    paths = [*ROOT.glob("*.md"), *(path for room in PAGES for path in (ROOT / room).rglob("*.md"))]
    assert len(paths) > 20
    wide = {str(path.relative_to(ROOT)): wide_lines(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: numbers for name, numbers in wide.items() if numbers} == {}


FUNCTION = "def f({}):\n{}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n" * 9, []),
        ("x = 1\n" * 10, ["10 lines"]),
        (FUNCTION.format("a, b, c, d, e, f, g, h", "    pass"), []),
        (FUNCTION.format("a, b, c, d, e, f, g, *, h, i", "    pass"), ["f: 9 parameters"]),
        ("class A:\n    def f(self, a, b, c, d, e, f, g, h): pass", []),
        ("def command(a, b, c, d, e, f, g, h, i): pass", ["command: 9 parameters"]),
    ],
)
def test_linter_lists_what_is_oversized(source: str, expected: list[str]) -> None:
    assert oversized(source, max_lines=9) == expected


def test_linter_lists_long_functions_and_exempts_parameters_of_verbs() -> None:
    long = FUNCTION.format("", "    pass\n" * 50)
    assert oversized(long, MAX_LINES) == ["f: 51 lines"]
    assert oversized(long.replace("    pass\n", "", 1), MAX_LINES) == []
    verb = "def command(a, b, c, d, e, f, g, h, i):\n" + "    pass\n" * 50
    assert oversized(verb, MAX_LINES, verb=True) == ["command: 51 lines"]


def test_linter_lists_wide_lines_outside_tables() -> None:
    assert wide_lines("a" * 120 + "\n" + "a" * 121 + "\n| " + "a" * 121) == [2]
