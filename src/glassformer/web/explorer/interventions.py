"""Heads that are switched off: their form in the address, and the edits of the model that they mean."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from glassformer.explain.analysis.interventions import Inputs, Off, attentions, switch_off
from glassformer.explain.example import Example
from glassformer.taps import Edit

MAX_INTERVENTIONS = 64


@dataclass(frozen=True)
class HeadOff:
    """A head whose context is replaced: by zero, or by its mean over the positions."""

    path: str
    head: int
    by: Off

    @property
    def text(self) -> str:
        """``decoder.layers.1.cross_attention.3:zero``, as in the address."""
        return f"{self.path}.{self.head}:{self.by}"

    @property
    def title(self) -> str:
        """``decoder layer 1 cross-attention, head 3: zero``"""
        place = self.path.replace(".layers.", " layer ").replace(".", " ").replace("_", "-")
        return f"{place}, head {self.head}: {self.by}"


def parse_interventions(texts: Iterable[str], example: Example, notes: list[str]) -> list[HeadOff]:
    """The heads of an address that the model has; ``notes`` gets a line for each other."""
    known = attentions(example.model)
    found: dict[tuple[str, int], HeadOff] = {}
    for text in texts:
        place, _, by = text.rpartition(":")
        path, _, head = place.rpartition(".")
        valid = by in get_args(Off) and head.isdigit() and path in known and int(head) < known[path].n_heads
        if not valid or len(found) == MAX_INTERVENTIONS:
            notes.append(f"{text[:60]!r} is no head of this model, or one too many, and is ignored.")
            continue
        found[path, int(head)] = HeadOff(path, int(head), by)  # type: ignore[arg-type]
    return list(found.values())


def is_replaced(interventions: Iterable[str], name: str, head: int | None) -> bool:
    """True if an intervention replaces the numbers of this tensor and head, which no formula gives then."""
    path, _, tap = name.rpartition(".")
    return tap == "context" and any(text.startswith(f"{path}.{head or 0}:") for text in interventions)


def edits_of(heads: Iterable[HeadOff], example: Example) -> dict[str, Edit]:
    """Edits of the tensors of ``example`` that switch the heads off."""
    edits: dict[str, Edit] = {}
    groups: dict[tuple[str, Off], list[int]] = {}
    for one in heads:
        groups.setdefault((one.path, one.by), []).append(one.head)
    for (path, by), numbers in groups.items():
        for name, edit in switch_off(example.model, {path: numbers}, by, Inputs.of(example)).items():
            before = edits.get(name)
            edits[name] = edit if before is None else _both(before, edit)
    return edits


def _both(first: Edit, second: Edit) -> Edit:
    return lambda tensor: second(first(tensor))
