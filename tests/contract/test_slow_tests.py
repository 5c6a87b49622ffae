"""The list of slow tests: each entry is a test, since one that was renamed would count as fast again."""

import ast
from pathlib import Path

from slow_tests import listed

ROOT = Path(__file__).parents[2]


def test_listed_slow_tests_exist() -> None:
    missing = []
    for entry in sorted(listed()):
        path, _, function = entry.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8")) if (ROOT / path).is_file() else ast.Module([], [])
        if function not in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}:
            missing.append(entry)
    assert missing == []
