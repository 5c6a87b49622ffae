"""Parity of two models: logits of the same random inputs, and what each makes of the same texts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.errors import CheckpointError

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}
LONGEST = 20
"""Tokens of a compared text that is generated."""

Logits = Callable[..., Tensor]
"""The inputs of a model → logits."""


@dataclass(frozen=True)
class ParityInputs:
    """What both sides are given, and where their logits are compared: everywhere, or where ``judged`` is True."""

    given: tuple[Tensor, ...]
    judged: Bool[Tensor, "*places"] | None = None


@dataclass(frozen=True)
class Sample:
    """One text, and what ours and theirs make of it in float64: by greedy search, or the likeliest label."""

    source: str
    ours: str
    theirs: str


@dataclass(frozen=True)
class Parity:
    """The largest difference of logits in each type, over the largest logit where that is above 1.

    A type without a tolerance (weights in eight bits) is measured and not judged.
    """

    differences: dict[str, float]
    samples: list[Sample]

    def refuse(self, origin: str) -> None:
        """A ``CheckpointError`` where the two sides are not the same."""
        if not self.differences.keys() <= TOLERANCES.keys():
            return
        for dtype, difference in self.differences.items():
            if not difference <= TOLERANCES[dtype]:
                raise CheckpointError(
                    f"{origin}: the two sides differ by {difference:.1e} in {dtype}, more than {TOLERANCES[dtype]:g}; "
                    "nothing was written"
                )
        for sample in self.samples:
            if sample.ours != sample.theirs:
                raise CheckpointError(
                    f"{origin}: {sample.source!r} becomes {sample.ours!r} here and {sample.theirs!r} there; "
                    "nothing was written"
                )


def random_rows(
    size: int, never: set[int], lengths: list[int], pad: int, generator: torch.Generator
) -> tuple[Int[Tensor, "rows longest"], Bool[Tensor, "rows longest"]]:
    """Ids below ``size`` but those of ``never``, padded on the right, and where they are no padding."""
    allowed = torch.tensor([i for i in range(size) if i not in never])
    longest = max(lengths)
    drawn = torch.randint(len(allowed), (len(lengths), longest), generator=generator)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return allowed[drawn].masked_fill(~mask, pad), mask


@torch.inference_mode()
def largest_difference(ours: Logits, theirs: Logits, inputs: ParityInputs) -> float:
    """Over all that is judged."""
    a, b = (side(*inputs.given) for side in (ours, theirs))
    if inputs.judged is not None:
        a, b = a[inputs.judged], b[inputs.judged]
    if a.shape != b.shape or not (a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    return float((a - b).abs().max() / a.abs().max().clamp(min=1))


@dataclass(frozen=True)
class Conversion:
    """``notes``: what the other side cannot say, or what its user must know, a sentence each."""

    path: Path
    kind: str
    parity: Parity
    notes: list[str] = field(default_factory=list)
