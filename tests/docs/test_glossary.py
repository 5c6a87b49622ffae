"""docs/glossary.md is short, sorted, and names existing files."""

import re
from pathlib import Path

import glassformer

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| word |", "| --- |"))
]


def test_glossary_has_fewer_than_twenty_sorted_entries() -> None:
    words = [row[0] for row in ROWS]
    assert 0 < len(words) < 20
    assert words == sorted(set(words))


def test_glossary_gives_meaning_and_reason_of_each_word() -> None:
    assert all(len(row) == 4 and all(row) for row in ROWS)


def test_glossary_names_existing_files() -> None:
    paths = [path for row in ROWS for path in re.findall(r"`([^`]+)`", row[3])]
    assert len(paths) >= len(ROWS)
    assert [path for path in paths if not (Path(glassformer.__file__).parent / path).exists()] == []
