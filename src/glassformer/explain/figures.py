"""Pictures of an example by name: attention, positions, the causal mask, norms, the logit lens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glassformer.config import ConfigError, nearest
from glassformer.evaluate.word_links import grouped
from glassformer.explain.lens import logit_lens
from glassformer.explain.view import Panel, View
from glassformer.explain.wiring import residual_stream
from glassformer.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from glassformer.explain.example import Example

DIMENSIONS = 64
_LAYERED = {
    "encoder": ("self_attention",),
    "decoder": ("self_attention", "cross_attention"),
}


@dataclass(frozen=True)
class Choice:
    """Of an attention view: one ``head``, their ``average``, or every head; by ``words``; with ``specials`` or not.

    By words, an asked word has the sum of its pieces and an asking word the mean of its own, so rows sum to 1 still.
    Without special tokens (start, end) rows keep what is left: they are not scaled up, and the title says so.
    """

    head: int | None = None
    average: bool = False
    words: bool = False
    specials: bool = True


class _Side(NamedTuple):
    """The tokens or words along an axis, and for each position the one that it is part of, -1 for none."""

    labels: list[str]
    groups: list[int]


def view_names(example: "Example") -> list[str]:
    """Every view of ``example``: those of attention per layer, then those of the whole model."""
    config = example.translator.models[0].config
    layers = {"encoder": config.n_encoder_layers, "decoder": config.n_decoder_layers}
    names = [
        f"{stack}.{layer}.{kind}"
        for stack, kinds in _LAYERED.items()
        for layer in range(layers[stack])
        for kind in kinds
    ]
    return [*names, *_WHOLE]


def view(example: "Example", name: str, choice: Choice | None = None) -> View:
    """The view called ``name``; ``ConfigError`` names what exists when it does not."""
    if choice is None:
        choice = Choice()
    if name in _WHOLE:
        if choice != Choice():
            raise ConfigError(f"{name} has neither heads nor words; leave out what goes with attention")
        return _WHOLE[name](example)
    stack, _, rest = name.partition(".")
    number, _, kind = rest.partition(".")
    names = view_names(example)
    if kind in _LAYERED.get(stack, ()) and number.isdecimal() and name not in names:
        last = sum(known.startswith(f"{stack}.") and known.endswith(kind) for known in names) - 1
        raise ConfigError(f"layer={number} is outside the {stack}; choose from 0 to {last}")
    if name not in names:
        raise ConfigError(f"{name!r} is no view; {nearest(name, names)}")
    return _attention(example, name, choice)


def _attention(example: "Example", name: str, choice: Choice) -> View:
    stack, number, kind = name.split(".")
    weights = example.trace[f"{stack}.layers.{number}.{kind}.weights"][0]
    asking, asked, row_axis, column_axis = _sides(example, stack, kind, choice)
    heads = _heads(weights.double().cpu(), name, choice)
    title = f"{stack} layer {number}, {kind.replace('_', '-')}"
    if len(heads) == 1:
        title += f", {next(iter(heads))}"
    if not choice.specials:
        title += " · special tokens left out, so rows sum to less than 1"
    panels = []
    for head, matrix in heads.items():
        values = grouped(matrix, asking.groups, asked.groups).numpy()
        panels.append(Panel(head if len(heads) > 1 else "", asking.labels, asked.labels, values))
    return View(name, title, f"{row_axis}: who asks", f"{column_axis}: who is asked", "attention", panels)


def _heads(weights: Tensor, name: str, choice: Choice) -> dict[str, Tensor]:
    if choice.head is not None and choice.average:
        raise ConfigError("one head and the average of all exclude each other; leave one out")
    if choice.average:
        return {f"mean of {len(weights)} heads": weights.mean(0)}
    if choice.head is None:
        return {f"head {number}": one for number, one in enumerate(weights)}
    if not 0 <= choice.head < len(weights):
        raise ConfigError(f"head={choice.head} is outside {name}; choose from 0 to {len(weights) - 1}")
    return {f"head {choice.head}": weights[choice.head]}


def _sides(example: "Example", stack: str, kind: str, choice: Choice) -> tuple[_Side, _Side, str, str]:
    """Who asks and who is asked. Of cross-attention the rows are named by what each step predicts."""
    tokenizers = example.translator.tokenizers
    source = _side(tokenizers.source, example.source_ids, example.source, choice)
    if stack == "encoder":
        return source, source, "source", "source"
    ids = example.predicted_ids if kind == "cross_attention" else example.target_ids
    target = _side(tokenizers.target, ids, example.target, choice)
    if kind == "cross_attention":
        return target, source, "target, as predicted", "source"
    return target, target, "target, as read", "target, as read"


def _side(tokenizer: Tokenizer, ids: Sequence[int], text: str, choice: Choice) -> _Side:
    """Words are named as they stand in ``text``, where an unknown sign is still itself."""
    special = set(tokenizer.special_tokens.values()) - {tokenizer.unknown_id}
    words, written = tokenizer.word_of(ids), text.split()
    keys = [
        (position, -1) if word < 0 or token in special or not choice.words else (-1, word)
        for position, (token, word) in enumerate(zip(ids, words, strict=True))
    ]
    kept = [key for key, token in zip(keys, ids, strict=True) if choice.specials or token not in special]
    order = {key: index for index, key in enumerate(dict.fromkeys(kept))}
    labels = []
    for position, word in order:
        pieces = [ids[position]] if word < 0 else [token for token, one in zip(ids, words, strict=True) if one == word]
        named = word >= 0 and len(written) == max(words) + 1
        labels.append(written[word] if named else "".join(tokenizer.tokens(pieces)))
    return _Side(labels, [order.get(key, -1) for key in keys])


def _positions(example: "Example") -> View:
    """The longer side has all rows of the shorter one, unless each has learned its own."""
    config = example.translator.models[0].config
    if config.positions == "rotary":
        raise ConfigError("positions=rotary adds nothing to the embedding: q and k are turned; look at rotated_q, _k")
    sides = {"source": example.source_ids, "target": example.target_ids}
    if config.positions != "learned" or config.tie_embeddings:
        longer = max(sides, key=lambda side: len(sides[side]))
        sides = {longer: sides[longer]}
    panels = []
    for side, ids in sides.items():
        encoding = _numbers(example.trace[f"{side}_embedding.encoding"])
        shown = _dimensions(encoding.shape[1])
        rows = [str(position) for position in range(len(ids))]
        title = side if len(sides) > 1 else ""
        panels.append(Panel(title, rows, [str(dimension) for dimension in shown], encoding[:, shown]))
    title = f"positional encoding, {config.positions}"
    if config.d_model > DIMENSIONS:
        title += f" · {DIMENSIONS} of {config.d_model} dimensions, in pairs"
    high = max(float(np.abs(panel.values).max()) for panel in panels) if config.positions == "learned" else 1.0
    return View("positions", title, "position", "dimension", "encoding", panels, -high, high)


def _dimensions(d_model: int) -> list[int]:
    """At most 64, evenly spread, each sine with its cosine."""
    pairs = np.unique(np.linspace(0, (d_model - 1) // 2, min(DIMENSIONS, d_model + 1) // 2).round().astype(int))
    return [dimension for pair in pairs for dimension in (2 * int(pair), 2 * int(pair) + 1) if dimension < d_model]


def _mask(example: "Example") -> View:
    mask = _numbers(example.trace["decoder.layers.0.self_attention.mask"][0, 0])
    tokens = example.target_tokens
    title = "causal mask of the decoder: no token sees a later one"
    axes = "target, as read: who asks", "target, as read: who is asked"
    return View("mask", title, *axes, "1 = may be seen", [Panel("", tokens, tokens, mask)])


def _norms(example: "Example") -> View:
    model = example.translator.models[0]
    panels = []
    for side, tokens in (("encoder", example.source_tokens), ("decoder", example.target_tokens)):
        names = residual_stream(model, side)
        lengths = [example.trace[name][0].double().norm(dim=-1) for name in names]
        panels.append(Panel(side, _places(len(names)), tokens, _numbers(torch.stack(lengths))))
    low = min(float(panel.values.min()) for panel in panels)
    high = max(float(panel.values.max()) for panel in panels)
    title = "length of the residual stream, after the embedding and after each layer"
    return View("norms", title, "place", "token", "Euclidean norm", panels, low, high)


def _logit_lens(example: "Example") -> View:
    lens = logit_lens(example.trace, torch.tensor([example.predicted_ids]))
    probability = _numbers(lens.probability[:, 0])
    title = "logit lens: the probability of each target token, had the decoder ended there"
    panel = Panel("", _places(len(probability)), example.predicted_tokens, probability)
    return View("logit_lens", title, "place", "target: the predicted token", "probability", [panel])


def _places(count: int) -> list[str]:
    return ["embedding", *(f"layer {layer}" for layer in range(count - 1))]


def _numbers(tensor: Tensor) -> np.ndarray:
    return np.asarray(tensor.double().cpu().numpy())


_WHOLE = {"positions": _positions, "mask": _mask, "norms": _norms, "logit_lens": _logit_lens}
