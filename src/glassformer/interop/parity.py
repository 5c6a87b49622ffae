"""Parity of two models: logits for the same random inputs, and outputs for the same texts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from glassformer.errors import CheckpointError

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}
LONGEST = 20
"""Maximum tokens of a generated text that is compared."""

Logits = Callable[..., Tensor]
"""Function from the inputs of a model to its logits."""


@dataclass(frozen=True)
class ParityInputs:
    """Inputs of both models, and the positions where logits are compared: all, or those where ``compared`` is True."""

    tensors: tuple[Tensor, ...]
    compared: Bool[Tensor, "*positions"] | None = None

    def to(self, device: torch.device) -> "ParityInputs":
        """The same on ``device``."""
        compared = None if self.compared is None else self.compared.to(device)
        return ParityInputs(tuple(tensor.to(device) for tensor in self.tensors), compared)


@dataclass(frozen=True)
class Sample:
    """One text and the output of both models in float64: greedy search, or the most probable label."""

    source: str
    our_output: str
    their_output: str


@dataclass(frozen=True)
class Parity:
    """Largest difference of logits for each dtype, relative to the largest logit if that is above 1.

    A dtype without a tolerance (8-bit weights) is measured, not checked.
    """

    differences: dict[str, float]
    samples: list[Sample]

    def check(self, origin: str) -> None:
        """Raise ``CheckpointError`` if the two models differ."""
        if not self.differences.keys() <= TOLERANCES.keys():
            return
        for dtype, difference in self.differences.items():
            if not difference <= TOLERANCES[dtype]:
                raise CheckpointError(
                    f"{origin}: the two sides differ by {difference:.1e} in {dtype}, more than {TOLERANCES[dtype]:g}; "
                    "nothing was written"
                )
        for sample in self.samples:
            if sample.our_output != sample.their_output:
                outputs = f"{sample.our_output!r} here and {sample.their_output!r} there"
                raise CheckpointError(f"{origin}: {sample.source!r} becomes {outputs}; nothing was written")


def random_rows(
    size: int, excluded: set[int], lengths: list[int], pad: int, generator: torch.Generator
) -> tuple[Int[Tensor, "rows longest"], Bool[Tensor, "rows longest"]]:
    """Draw ids below ``size``, except those in ``excluded``, padded on the right; and their mask."""
    allowed = torch.tensor([i for i in range(size) if i not in excluded])
    longest = max(lengths)
    drawn = torch.randint(len(allowed), (len(lengths), longest), generator=generator)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return allowed[drawn].masked_fill(~mask, pad), mask


@torch.inference_mode()
def largest_difference(our_logits: Logits, their_logits: Logits, inputs: ParityInputs) -> float:
    """Largest difference of the compared logits, relative to the largest logit if that is above 1."""
    a, b = (logits(*inputs.tensors) for logits in (our_logits, their_logits))
    if inputs.compared is not None:
        a, b = a[inputs.compared], b[inputs.compared]
    if a.shape != b.shape or not (a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    return float((a - b).abs().max() / a.abs().max().clamp(min=1))


@dataclass(frozen=True)
class Conversion:
    """Result of an import or export; ``notes`` are settings without a counterpart, and remarks for the user."""

    path: Path
    kind: str
    parity: Parity
    notes: list[str] = field(default_factory=list)
