"""Change what a model computes and see what becomes of it: edits for ``trace(model, edits={name: edit})``.

An edit gets the tensor that passes and gives the one that the model goes on with. What it shows is what this model does
without a part, or with another value in its place: later parts may make up for it (McGrath et al. 2023, "The Hydra
Effect", arXiv:2307.15771), and values that no sentence would bring about may say little about those that one does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from glassformer.errors import ConfigError, nearest
from glassformer.explain.example import Example
from glassformer.explain.trace import Trace, trace
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import has_active_dropout
from glassformer.layers.mask import Sentences
from glassformer.models.bert import BERT
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT
from glassformer.models.vit import ViT
from glassformer.taps import Edit
from glassformer.text.decimals import decimal

Off = Literal["zero", "mean"]
"""Replacement of a head that is off: zero, or its mean over positions."""


class Inputs(NamedTuple):
    """Arguments of a model, ``model(*inputs.arguments)``.

    A model of one stack has a source only: the tokens of GPT or BERT, or the images of a Vision Transformer. The
    ``target`` of an encoder–decoder starts with the start token (teacher forcing).
    """

    source: Tensor
    target: Int[Tensor, "batch target"] | None = None
    source_mask: Sentences | None = None
    target_mask: Sentences | None = None
    segments: Int[Tensor, "batch source"] | None = None
    """Text that each token of BERT belongs to."""
    predicts: Bool[Tensor, "batch source"] | None = None
    """True where predictions count, such as the hidden tokens of BERT; by default where there is no padding."""

    @classmethod
    def of(cls, example: Example) -> Self:
        """Inputs of ``example``, a batch of one."""
        device = next(example.model.parameters()).device
        ids = [torch.tensor([list(side.ids)], device=device) for side in example.sides]
        if example.translated:
            return cls(*ids)
        predicts = torch.zeros(1, len(example.source_ids), dtype=torch.bool, device=device)
        predicts[0, list(example.positions)] = True
        segmented = bool(example.segments) and example.model.embedding.segment is not None  # only of tokens
        segments = torch.tensor([example.segments], device=device) if segmented else None
        return cls(ids[0], segments=segments, predicts=predicts if example.task == "masked" else None)

    @property
    def arguments(self) -> tuple[Tensor | None, ...]:
        """Arguments of the call: only BERT has segments, and images have no mask."""
        if self.target is not None:
            return self.source, self.target, self.source_mask, self.target_mask
        if self.segments is not None:
            return self.source, self.source_mask, self.segments
        return (self.source,) if self.source_mask is None else (self.source, self.source_mask)

    @property
    def counted(self) -> Bool[Tensor, "batch ..."]:
        """True where predictions count: one for each token of the last stack, or one for an image."""
        if self.predicts is not None:
            return self.predicts
        mask = self.source_mask if self.target is None else self.target_mask
        tokens = self.source if self.target is None else self.target
        shape = tokens.shape if tokens.ndim == 2 else tokens.shape[:1]
        return torch.ones(shape, dtype=torch.bool, device=tokens.device) if mask is None else mask != 0

    def seen(self, path: str) -> Sentences | None:
        """Mask of the queries of the attention at ``path``: their padding."""
        return self.target_mask if self.target is not None and path.startswith("decoder.") else self.source_mask

    def row(self, row: int) -> "Inputs":
        """One row of the batch, as a batch of one."""
        if not 0 <= row < len(self.source):
            raise ConfigError(f"row={row} is outside the batch; choose from 0 to {len(self.source) - 1}")
        return Inputs(*(None if tensor is None else tensor[row : row + 1] for tensor in self))  # type: ignore[arg-type]


Predictor = EncoderDecoder | GPT | BERT | ViT
"""Models that give a probability to what is predicted."""


def run(
    model: Predictor, inputs: Inputs, edits: Mapping[str, Edit] | None = None
) -> Float[Tensor, "batch *target vocab"]:
    """The logits of ``model`` under ``edits``, by the definition of attention; a gradient can go through them."""
    check_repeatable(model)
    if not isinstance(model, Predictor):
        raise ConfigError(
            f"{type(model).__name__} is not asked for probabilities here; this works with encoder_decoder, gpt, bert "
            "and vit"
        )
    with trace(model, keep="output_projection.logits", edits=edits):
        logits: Tensor = model(*inputs.arguments)
    return logits


def check_repeatable(model: nn.Module) -> None:
    """``ConfigError`` when dropout would make two runs differ by more than their edits."""
    if has_active_dropout(model):
        raise ConfigError("the model is in training mode, and dropout changes every run; call model.eval() first")


def attentions(model: nn.Module) -> dict[str, MultiHeadAttention]:
    """Every attention of ``model`` by its path, in the order in which they are computed."""
    return {path: module for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)}


def zero_heads(*heads: int) -> Edit:
    """An edit of ``….context``: nothing comes from these heads. (Zero may be far from what any sentence gives.)"""

    def edit(context: Float[Tensor, "batch head query d_v"]) -> Tensor:
        return context.masked_fill(_chosen(heads, context), 0.0)

    return edit


def mean_heads(*heads: int, causal: bool, seen: Bool[Tensor, "batch query"] | None = None) -> Edit:
    """An edit of ``….context``: these heads give their mean over positions, so they no longer tell one from another.

    ``causal``: the mean over the positions so far, so that none learns of a later one; the first keeps its value.
    Only positions that are True in ``seen`` count. Needs a whole sentence at once: a search passes a position a step,
    and its hypotheses side by side.
    """

    def edit(context: Float[Tensor, "batch head query d_v"]) -> Tensor:
        if context.size(2) == 1:
            raise ConfigError("the mean over 1 position is that position; switch heads off by zero, or pass more")
        counted = context.new_ones(1, 1, context.size(2), 1) if seen is None else seen[:, None, :, None].to(context)
        if causal:
            mean = (context * counted).cumsum(2) / counted.cumsum(2).clamp(min=1)
        else:
            mean = (context * counted).sum(2, keepdim=True) / counted.sum(2, keepdim=True).clamp(min=1)
        return torch.where(_chosen(heads, context), mean, context)

    return edit


def switch_off(
    model: nn.Module, heads: Mapping[str, Sequence[int]], by: Off = "zero", inputs: Inputs | None = None
) -> dict[str, Edit]:
    """The edits that switch off ``{"decoder.layers.1.cross_attention": [0, 3]}``; an empty list switches nothing off.

    ``by="mean"`` leaves padding out of the mean where the masks of ``inputs`` tell it; see ``mean_heads``.
    """
    known = attentions(model)
    edits = {}
    for path, chosen in heads.items():
        if path not in known:
            raise ConfigError(f"no attention is called {path!r}; {nearest(path, list(known))}")
        _check_heads(chosen, known[path].n_heads, path)
        edits[f"{path}.context"] = zero_heads(*chosen) if by == "zero" else _mean_of(path, chosen, inputs)
    return edits


def overwrite_row(head: int, query: int, row: Float[Tensor, " key"], batch: int = 0) -> Edit:
    """An edit of ``….weights``: this head's query looks at the keys by ``row``, which sums to 1.

    A row may look where the mask forbids it: the position then reads what the model never let it read.
    """
    total, lowest = float(row.double().sum()), float(row.min())
    if not abs(total - 1) <= max(1e-4, torch.finfo(row.dtype).eps) or lowest < 0:
        raise ConfigError(
            f"the row sums to {decimal(total)} and its smallest weight is {decimal(lowest)}; "
            "weights are at least 0 and sum to 1, so divide them by their sum"
        )

    def edit(weights: Float[Tensor, "batch head query key"]) -> Tensor:
        for axis, chosen, size in zip(("batch", "head", "query"), (batch, head, query), weights.shape):
            _check_place(axis, chosen, size)
        if len(row) != weights.size(-1):
            raise ConfigError(f"the row has {len(row)} weights for {weights.size(-1)} keys; give one for each key")
        edited = weights.clone()
        edited[batch, head, query] = row.to(weights)
        return edited

    return edit


def patch(donor: Tensor, positions: Sequence[int] | None = None, donor_positions: Sequence[int] | None = None) -> Edit:
    """An edit of any tensor: that of a ``donor`` run takes its place, at all ``positions`` (queries, keys) or at some.

    Vig et al. 2020 (causal mediation, arXiv:2004.12265), Meng et al. 2022 (causal tracing, arXiv:2202.05262).
    ``donor_positions`` are those taken from the donor, the same ones when None.
    """
    taken = positions if donor_positions is None else donor_positions

    def edit(tensor: Tensor) -> Tensor:
        if positions is None or taken is None:
            return donor
        if len(positions) != len(taken):
            raise ConfigError(f"{len(positions)} positions and {len(taken)} of the donor; give as many")
        for chosen, size in ((positions, tensor.size(-2)), (taken, donor.size(-2))):
            for position in chosen:
                _check_place("position", position, size)
        edited = tensor.clone()
        edited[..., list(positions), :] = donor[..., list(taken), :].to(tensor)
        return edited

    return edit


def patch_from(donor: Trace, names: Iterable[str], positions: Sequence[int] | None = None) -> dict[str, Edit]:
    """The edits that put the tensors of ``donor`` in the place of those of the same names."""
    return {name: patch(donor[name], positions) for name in names}


def in_turn(*edits: Edit) -> Edit:
    """One edit after another, as for two rows of the same attention."""

    def edit(tensor: Tensor) -> Tensor:
        for each in edits:
            tensor = each(tensor)
        return tensor

    return edit


def _mean_of(path: str, heads: Sequence[int], inputs: Inputs | None) -> Callable[[Tensor], Tensor]:
    """The encoder sees whole sentences; in the decoder no position may learn of a later one."""
    causal = path.startswith("decoder.")
    seen = None if inputs is None else inputs.seen(path)
    if seen is not None and seen.dtype != torch.bool:
        raise ConfigError("the rows hold several sentences, whose means would mix; give one sentence a row")
    return mean_heads(*heads, causal=causal, seen=seen)


def _chosen(heads: Sequence[int], context: Tensor) -> Bool[Tensor, "1 heads 1 1"]:
    _check_heads(heads, context.size(1), "the attention")
    chosen = torch.zeros(context.size(1), dtype=torch.bool, device=context.device)
    chosen[list(heads)] = True
    return chosen[None, :, None, None]


def _check_heads(heads: Sequence[int], n_heads: int, path: str) -> None:
    for head in heads:
        if not 0 <= head < n_heads:
            raise ConfigError(f"head={head} is outside {path}; choose from 0 to {n_heads - 1}")


def _check_place(axis: str, chosen: int, size: int) -> None:
    if not 0 <= chosen < size:
        raise ConfigError(f"{axis}={chosen} is outside the tensor; choose from 0 to {size - 1}")
