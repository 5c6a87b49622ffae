"""Activation patching: how far one activation of a second input, the donor, moves the output toward the donor's.

Vig et al. 2020 (arXiv:2004.12265), Meng et al. 2022 (arXiv:2202.05262). The measure is the normalized logit difference
of Zhang & Nanda 2024, "Towards Best Practices of Activation Patching in Language Models" (arXiv:2309.16042).
"""

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.errors import ConfigError
from glassformer.explain.analysis.interventions import Inputs, attentions, check_repeatable
from glassformer.explain.formula.dataflow import residual_stream, stacks
from glassformer.explain.trace import Trace, trace
from glassformer.models.bert import BERT
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT
from glassformer.taps import Edit

WordPredictor = EncoderDecoder | GPT | BERT
"""Models that give a probability to words."""
BATCH_TOKENS = 2048
"""Tokens of a batch of patched copies of the input."""


class Contrast(NamedTuple):
    """The word whose probability falls most from the original to the donor, and the one that rises most.

    ``original`` and ``donor`` are the logit differences, rising − falling, of the two runs.
    """

    falling: int
    rising: int
    original: float
    donor: float

    @classmethod
    def of(cls, original: Float[Tensor, " vocab"], donor: Float[Tensor, " vocab"]) -> "Contrast | None":
        """The contrast of two vectors of logits; None if they give the same probabilities."""
        original, donor = original.double(), donor.double()
        change = donor.softmax(-1) - original.softmax(-1)
        falling, rising = int(change.argmin()), int(change.argmax())
        before, after = (float(logits[rising] - logits[falling]) for logits in (original, donor))
        return None if falling == rising or not after > before else cls(falling, rising, before, after)

    def effect(self, logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows"]:
        """Normalized logit difference: 0 is the original's, 1 the donor's."""
        difference = logits[..., self.rising].double() - logits[..., self.falling].double()
        return (difference - self.original) / (self.donor - self.original)


def patch_groups(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Names of the tensors that a donor can replace, by group and in the order in which they are computed.

    ``encoder.stream`` is the residual stream, ``encoder.self_attention`` the outputs of its attentions; ``memory`` is
    what cross-attention reads.
    """
    groups: dict[str, tuple[str, ...]] = {}
    for stack in stacks(model):
        groups[f"{stack}.stream"] = tuple(residual_stream(model, stack))
        for kind in ("self_attention", "cross_attention"):
            paths = [path for path in attentions(model) if path.startswith(f"{stack}.") and path.endswith(f".{kind}")]
            if paths:
                groups[f"{stack}.{kind}"] = tuple(f"{path}.result" for path in paths)
    if len(stacks(model)) > 1:
        groups["memory"] = ("memory",)
    return groups


@torch.no_grad()
def patch_effects(
    model: WordPredictor,
    inputs: Inputs,
    donor: Trace,
    names: Sequence[str],
    places: Sequence[Sequence[int]],
    step: int,
    contrast: Contrast,
) -> Float[Tensor, "name place"]:
    """Effect of patching each of ``names`` alone, at the positions of each of ``places``, on the output at ``step``.

    ``inputs`` is a batch of one. One row of a batch is computed for each effect, so no number depends on another.
    """
    check_repeatable(model)
    if len(inputs.source) != 1:
        raise ConfigError(f"the batch has {len(inputs.source)} rows; patch one input at a time (Inputs.row)")
    tokens = sum(one.size(1) for one in (inputs.source, inputs.target) if one is not None)
    cells = iter(product(names, places))
    effects = []
    while chunk := list(islice(cells, max(1, BATCH_TOKENS // tokens))):
        edits = {
            name: _row_patches(donor[name], {row: place for row, (one, place) in enumerate(chunk) if one == name})
            for name in dict.fromkeys(name for name, _ in chunk)
        }
        with trace(model, keep=chunk[0][0], edits=edits):
            logits = logits_at(model, _repeated(inputs, len(chunk)), step)
        effects.append(contrast.effect(logits))
    return torch.cat(effects).view(len(names), len(places))


def logits_at(model: WordPredictor, inputs: Inputs, step: int) -> Float[Tensor, "batch vocab"]:
    """Logits of one position. The output projection, the largest product of a small model, skips the others."""
    x = model.hidden(*inputs.arguments)[:, step]  # type: ignore[arg-type]
    if isinstance(model, BERT):
        if model.transform is None:
            raise ConfigError("this model predicts no words; patch one with masked_tokens=true")
        x = model.transform(x)
    assert model.output_projection is not None
    logits: Tensor = model.output_projection(x)
    return logits


def continuation(
    model: GPT, ids: Sequence[int], count: int, edits: Mapping[str, Edit], end: int | None = None
) -> list[int]:
    """The ``count`` most probable next tokens, one after the other, under edits; fewer if ``end`` is among them.

    Each step reads the whole text, so that edits meet each position where they mean it.
    """
    device = model.embedding.weight.device
    read, written = list(ids), list[int]()
    longest = model.config.max_length
    while len(written) < count and len(read) <= longest:
        tokens: Int[Tensor, "1 length"] = torch.tensor([read], device=device)
        with torch.no_grad(), trace(model, keep="output_projection.logits", edits=edits):
            best = int(logits_at(model, Inputs(tokens), -1).argmax())
        if best == end:
            break
        read.append(best)
        written.append(best)
    return written


def _repeated(inputs: Inputs, count: int) -> Inputs:
    """``inputs``, a batch of one, ``count`` times."""
    return Inputs(*(None if one is None else one.expand(count, *one.shape[1:]) for one in inputs))  # type: ignore[arg-type]


def _row_patches(donor: Float[Tensor, "1 position width"], places: Mapping[int, Sequence[int]]) -> Edit:
    """An edit that replaces some positions of each row of a batch by the donor's."""

    def edit(tensor: Float[Tensor, "batch position width"]) -> Tensor:
        edited = tensor.clone()
        for row, positions in places.items():
            edited[row, list(positions)] = donor[0, list(positions)].to(tensor)
        return edited

    return edit
