"""A class has a name of its own, so that a name in a message, a test or a talk means one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import glassformer

SOURCE = Path(glassformer.__file__).parent


def test_no_two_classes_share_a_name() -> None:
    homes = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(SOURCE)))
    assert len(homes) > 200
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
