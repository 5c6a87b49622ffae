"""Attention of checkpoints that was computed for a series, remembered within a bound."""

from collections import OrderedDict
from dataclasses import dataclass

from glassformer.explain.analysis.learning import HeadSnapshot

REMEMBERED = 128
LARGEST = 1 << 16
"""Numbers of an attention of one checkpoint; a longer text has too many for a series."""


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot, or the sentence that says why there is none."""

    snapshot: HeadSnapshot | None
    problem: str = ""


class SnapshotStore:
    """Snapshots by checkpoint, text and attention; the least recently used ones are dropped."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, ...], StoredSnapshot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: tuple[object, ...]) -> StoredSnapshot | None:
        """The snapshot of ``key``; None if it is not known."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def add(self, key: tuple[object, ...], one: StoredSnapshot) -> None:
        self._known[key] = one
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
