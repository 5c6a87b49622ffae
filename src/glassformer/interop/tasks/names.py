"""Names of classes: a list here, two tables there."""

from typing import Any

from glassformer.errors import CheckpointError


def names_of(theirs: dict[str, Any]) -> list[str]:
    """In the order of their numbers."""
    table = {int(number): str(name) for number, name in (theirs.get("id2label") or {}).items()}
    if sorted(table) != list(range(len(table))) or not table:
        raise CheckpointError(f"config.json: id2label={table} does not number its names from 0; correct it")
    return [table[number] for number in range(len(table))]


def with_names(names: list[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
