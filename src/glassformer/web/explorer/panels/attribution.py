"""Attribution of the selected word: to the tokens that the model reads, to the parts of its decoder, and by rollout."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from glassformer.explain.analysis.attribution import (
    DirectAttribution,
    Goal,
    IntegratedGradients,
    Part,
    direct_logit_attribution,
    integrated_gradients,
)
from glassformer.explain.analysis.interventions import Inputs
from glassformer.explain.analysis.rollout import attention_rollout
from glassformer.explain.example import Example
from glassformer.explain.matrix import WEIGHTS, Label
from glassformer.explain.page.sheets import shade_class
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.gpt import GPT
from glassformer.text.decimals import aligned, decimal, difference
from glassformer.text.decimals import weight as weight_text
from glassformer.web.explorer.panels.wording import in_quotes
from glassformer.web.explorer.places import labels_of, plain_name, select, split_name, steps_of
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.traced import TracedSelection

STEPS = 64
"""Points of the integral."""
MOST_ERROR = 0.01
"""Error of the integral up to which the shares are called complete."""
MOST_ROUNDING = 1e-4
"""Relative error of the direct attribution that rounding explains in float32."""
LISTED = 16
"""Parts of the decoder; those of smaller size are summed."""
LONGEST = 24
"""Rows and columns of the rollout."""
LOGITS = "output_projection.logits"
KINDS = {
    "embedding": "embedding",
    "position": "position",
    "head": "heads",
    "feed_forward": "feed-forward",
    "bias": "biases",
}


@dataclass(frozen=True)
class Share:
    """A part of a sum: its number, the length of its bar from −100 to 100, and its place."""

    label: Label
    value: float
    text: str
    bar: int
    address: str


@dataclass(frozen=True)
class TokenShares:
    """Shares of the tokens of each input, and the sum that they must have."""

    sides: tuple[tuple[str, tuple[Share, ...]], ...]
    summary: str
    check: str
    passed: bool


@dataclass(frozen=True)
class PartShares:
    """Parts of the logit, the largest first, and their sums by kind."""

    parts: tuple[Share, ...]
    rest: str
    kinds: tuple[Share, ...]
    check: str
    passed: bool


@dataclass(frozen=True)
class RolloutTable:
    title: str
    labels: tuple[Label, ...]
    rows: tuple[tuple[tuple[str, str, float], ...], ...]
    """Shade, text and value of each number."""
    limit: str
    check: str
    passed: bool


@dataclass(frozen=True)
class AttributionView:
    """``tokens`` is None while it follows in a second answer."""

    word: str
    where: str
    tokens: TokenShares | None
    parts: PartShares
    rollout: RolloutTable
    note: str


def has_attribution(example: Example) -> bool:
    """True for models that predict the next word by a decoder."""
    return isinstance(example.model, EncoderDecoder | GPT) and example.task in ("translation", "language")


def attribution_of(traced: TracedSelection) -> AttributionView:
    """The panel at the selected step. It is about the model itself, without interventions."""
    example, step = traced.original, traced.selection.step or 0
    token = example.predicted_ids[step]
    word = in_quotes(labels_of(example, LOGITS, "vocab")[1][token])
    gradients = traced.result(("attribution", step), lambda: token_attribution(traced, step, token))
    return AttributionView(
        word,
        steps_of(example)[step].plain,
        None if gradients is None else _token_shares(example, traced.selection, gradients, step),
        _part_shares(example, traced.selection, direct_logit_attribution(example.trace, step, token)),
        _rollout(example),
        "This view is about the model without interventions." if traced.interventions else "",
    )


def token_attribution(traced: TracedSelection, step: int, token: int) -> IntegratedGradients:
    """Integrated gradients of the log-probability of a token."""
    traced.give_way()
    example = traced.original
    return integrated_gradients(example.model, Inputs.of(example), Goal(step, token), STEPS)


def _token_shares(example: Example, selection: Selection, found: IntegratedGradients, step: int) -> TokenShares:
    values = [found.source.tolist(), found.target.tolist()][-len(example.sides) :]
    largest = max((abs(value) for side in values for value in side), default=0.0) or 1.0
    sides = []
    best: tuple[float, Label] = (0.0, Label(""))
    for side, numbers in zip(example.sides, values, strict=True):
        place = replace(selection.at_model(), panel="vectors", side=side.name if example.translated else "")
        shares = []
        for position, (label, value) in enumerate(zip(side.labels, numbers, strict=True)):
            if side is example.sides[-1] and position > step:
                continue  # a later token is not read: its share is exactly 0
            address = replace(place, position=position).address
            shares.append(Share(label, value, aligned(value, 3), round(100 * value / largest), address))
            best = max(best, (abs(value), label), key=lambda pair: pair[0])
        sides.append((f"{side.name} token", tuple(shares)))
    change = found.value - found.baseline
    return TokenShares(
        tuple(sides),
        f"{best[1].plain} has the largest share: {aligned(best[0], 3)} nats in size.",
        f"the shares sum to {aligned(found.total, 3)}; the log-probability rises by {aligned(change, 3)}, from "
        f"{aligned(found.baseline, 3)} without any token to {aligned(found.value, 3)}: "
        f"{100 * found.completeness_error:.2g} % apart",
        found.completeness_error < MOST_ERROR,
    )


def _part_shares(example: Example, selection: Selection, found: DirectAttribution) -> PartShares:
    order = sorted(zip(found.parts, found.contributions.tolist(), strict=True), key=lambda pair: -abs(pair[1]))
    largest = abs(order[0][1]) or 1.0
    listed = order[:LISTED]
    rest = order[LISTED:]
    shares = (
        Share(
            Label(part_title(part)),
            value,
            aligned(value, 3),
            round(100 * value / largest),
            _place(example, selection, part),
        )
        for part, value in listed
    )
    by_kind = found.by_kind()
    most = max(map(abs, by_kind.values())) or 1.0
    kinds = (Share(Label(KINDS[kind]), v, aligned(v, 3), round(100 * v / most), "") for kind, v in by_kind.items())
    total = float(found.contributions.sum())
    return PartShares(
        tuple(shares),
        f"{len(rest):,} further parts sum to {aligned(sum(value for _, value in rest), 3)}." if rest else "",
        tuple(kinds),
        f"the parts sum to the logit {decimal(found.logit)}: |Δ| {difference(abs(total - found.logit))}",
        found.error < MOST_ROUNDING,
    )


def part_title(part: Part) -> str:
    """``layer 1 cross-attention, head 2``: the parts are those of the decoder."""
    name = plain_name(part.name.replace(".heads.", ", head ")).removeprefix("decoder ").removeprefix("decoder, ")
    for sublayer in ("cross attention", "self attention", "feed forward"):
        name = name.replace(f", {sublayer}", f" {sublayer.replace(' ', '-')}")
    return name


def _place(example: Example, selection: Selection, part: Part) -> str:
    """The view of a part: a head, a sub-layer or a tensor; empty for a bias, which was learned and not computed."""
    if part.kind == "bias":
        return ""
    if part.kind in ("embedding", "position"):
        return select(selection, example, part.name).address
    path, _, head = part.name.partition(".heads.")
    stack, layer, sublayer, _ = split_name(example.model, f"{path}.output")
    return replace(selection.at_module(stack, layer, sublayer), head=int(head) if head else None).address


def _rollout(example: Example) -> RolloutTable:
    found = attention_rollout(example.trace)
    values = found.last[0].double().cpu()
    labels = example.attention_sides(found.stack, "self_attention")[0].labels
    cells = values[:LONGEST, :LONGEST].tolist()
    apart = float((values.sum(-1) - 1).abs().max())
    return RolloutTable(
        f"Rollout of the {found.stack}",
        tuple(labels[:LONGEST]),
        tuple(tuple(_cells(row)) for row in cells),
        f"The first {LONGEST} of {len(labels)} tokens are shown." if len(labels) > LONGEST else "",
        f"the rows sum to 1: largest deviation {difference(apart)}",
        bool(torch.allclose(values.sum(-1), torch.ones(len(values), dtype=values.dtype), atol=1e-5)),
    )


def _cells(row: Sequence[float]) -> Iterator[tuple[str, str, float]]:
    for value in row:
        yield shade_class(value, WEIGHTS), weight_text(value), value
