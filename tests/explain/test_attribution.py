"""Contributions sum to the logit, gradients are the differences they stand for, and who cannot be seen gets nothing."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer import ConfigError, Trace, trace
from glassformer.explain.analysis.attribution import (
    DirectAttribution,
    Goal,
    IntegratedGradients,
    direct_logit_attribution,
    gradient_times_input,
    integrated_gradients,
)
from glassformer.explain.analysis.interventions import Inputs, run, switch_off
from glassformer.models.encoder_decoder import EncoderDecoder

ORDERS = [{"norm_order": order, "tie_embeddings": tied} for order in ("post", "pre") for tied in (True, False)]
KINDS = [
    {**order, "positions": positions, "output_bias": bias, "attention_bias": not bias}
    for order in ORDERS
    for positions, bias in (("sinusoidal", False), ("learned", True), ("rotary", True))
]
KINDS += [
    {**order, "positions": "learned", "output_bias": False, "attention_bias": True}
    | {"scale_embeddings": scaled, "norm_embeddings": True}
    for order, scaled in ((ORDERS[0], False), (ORDERS[3], True))
]
GOALS = ["logit", "log_probability"]


def inputs() -> Inputs:
    """The second row ends with padding: 2 tokens of the source, 1 of the target."""
    source_mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    target_mask = torch.tensor([[True] * 5, [True] * 4 + [False]])
    return Inputs(torch.randint(3, 12, (2, 6)), torch.randint(3, 12, (2, 5)), source_mask, target_mask)


def recorded(model: EncoderDecoder, given: Inputs, edits: dict | None = None) -> Trace:
    with trace(model, edits=edits) as t:
        model(*given.arguments)
    return t


def everywhere(t: Trace) -> list[DirectAttribution]:
    places = [(position, 0) for position in range(5)] + [(position, 1) for position in range(4)]
    return [direct_logit_attribution(t, position, token, row) for position, row in places for token in (0, 5, 11)]


def error_of_logit(found: DirectAttribution) -> float:
    return abs(float(found.contributions.sum()) - found.logit) / abs(found.logit)


@pytest.mark.parametrize("kind", KINDS)
def test_contributions_sum_to_the_logit(make_model: Callable[..., EncoderDecoder], kind: dict) -> None:
    """At every position that is no padding; with a part left out, or a deviation that was not recorded, they do not."""
    t = recorded(make_model(**kind), inputs())
    attributions = everywhere(t)
    assert max(found.error for found in attributions) < 1e-12
    assert max(error_of_logit(found) for found in attributions) < 1e-12
    for found in attributions[:3]:
        for left_out in range(len(found.parts)):
            kept = torch.arange(len(found.parts)) != left_out
            part = found.contributions[left_out]
            assert part == 0 or DirectAttribution((), found.contributions[kept], found.logit).error > 1e-12
    last = "decoder.final_norm" if kind["norm_order"] == "pre" else "decoder.layers.1.feed_forward_norm.norm"
    t[f"{last}.deviation"].mul_(1.01)
    assert min(found.error for found in everywhere(t)) > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_is_named_once(make_model: Callable[..., EncoderDecoder], kind: dict) -> None:
    model = make_model(**kind)
    found = direct_logit_attribution(recorded(model, inputs()), 2, 5)
    kinds = [part.kind for part in found.parts]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    biases = 2 * (3 + 1 + 2 * kind["attention_bias"]) + kind["output_bias"] + (kind["norm_order"] == "pre")
    biases -= 6 * (kind["norm_order"] == "pre")  # those norms stand before the sub-layers
    biases += "norm_embeddings" in kind
    rotary = kind["positions"] == "rotary"
    assert counts == {
        "embedding": 1,
        "head": 8,
        "feed_forward": 2,
        "bias": biases,
        **({} if rotary else {"position": 1}),
    }
    assert len({part.name for part in found.parts}) == len(found.parts)
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert all(part.name in parameters for part in found.parts if part.kind == "bias")
    assert sum(found.by_kind().values()) == pytest.approx(found.logit, rel=1e-12)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_a_head_that_is_off_contributes_zero(make_model: Callable[..., EncoderDecoder], order: str) -> None:
    """And a sub-layer's result that is not that of its heads is noticed."""
    model, given, path = make_model(norm_order=order), inputs(), "decoder.layers.1.cross_attention"
    off = direct_logit_attribution(recorded(model, given, switch_off(model, {path: [1]})), 2, 5)
    shares = {part.name: share for part, share in zip(off.parts, off.contributions.tolist())}
    assert shares[f"{path}.heads.1"] == 0 != shares[f"{path}.heads.0"]
    assert off.error < 1e-12
    edited = recorded(model, given, {f"{path}.result": lambda result: result * 1.1})
    assert direct_logit_attribution(edited, 2, 5).error > 1e-6


@pytest.mark.parametrize("order", ["post", "pre"])
def test_a_contribution_is_the_slope_with_statistics_frozen(
    make_model: Callable[..., EncoderDecoder], order: str
) -> None:
    """Of a head of the last layer, by adding it once more: the logit changes by its share where no norm's statistics
    and no later sub-layer do. Where they do, it does not."""
    model, given, path = make_model(norm_order=order), inputs(), "decoder.layers.1"
    t = recorded(model, given)
    found = direct_logit_attribution(t, 4, 5)
    share = found.contributions[[part.name for part in found.parts].index(f"{path}.cross_attention.heads.1")]
    attention = model.decoder.layers[1].cross_attention
    added = t[f"{path}.cross_attention.context"][:, 1] @ attention.output.weight[:, 4:].T
    frozen = {f"{path}.feed_forward.result": lambda _: t[f"{path}.feed_forward.result"]}

    def logit(edits: dict) -> Tensor:
        return run(model, given, edits)[0, 4, 5].detach()

    def normed(x: Tensor, name: str) -> Tensor:
        norm = model.get_submodule(name)
        return (x - x.mean(-1, keepdim=True)) / t[f"{name}.deviation"][..., None] * norm.weight

    more = {**frozen, f"{path}.cross_attention.result": lambda result: result + added}
    assert float(logit(more) - found.logit) != pytest.approx(float(share), rel=1e-6)
    if order == "pre":
        moved = normed(added, "decoder.final_norm")
        held = {**frozen, "decoder.normed": lambda x: x + moved}
    else:
        names = [f"{path}.cross_attention_norm.norm", f"{path}.feed_forward_norm.norm"]
        moved = normed(normed(added, names[0]), names[1])
        held = {**frozen, f"{path}.feed_forward_norm.normed": lambda x: x + moved}
    assert float(logit(held) - found.logit) == pytest.approx(float(share), rel=1e-9)


def test_in_float32_the_error_is_its_rounding(make_model: Callable[..., EncoderDecoder]) -> None:
    t = recorded(make_model().float(), inputs())
    errors = [found.error for found in everywhere(t)]
    assert 1e-12 < max(errors) < 1e-5


def scaled(model: EncoderDecoder, given: Inputs, name: str, place: int, by: float, goal: Goal) -> float:
    """The goal with the embedding of one token of the goal's row × ``by``."""

    def edit(tokens: Tensor) -> Tensor:
        factor = torch.ones(tokens.shape[:2], dtype=tokens.dtype)
        factor[goal.row, place] = by
        return tokens * factor[..., None]

    logits = run(model, given, {f"{name}_embedding.tokens": edit})
    scores = logits if goal.of == "logit" else logits.log_softmax(-1)
    return float(scores[goal.row, goal.position, goal.token].detach())


@pytest.mark.parametrize("of", GOALS)
@pytest.mark.parametrize("kind", ORDERS)
def test_gradient_times_input_is_the_central_difference(
    make_model: Callable[..., EncoderDecoder], kind: dict, of: str
) -> None:
    """Of stretching each token's embedding; that of the token beside it is another number."""
    model, given, goal = make_model(**kind), inputs(), Goal(position=2, token=7, of=of, row=1)
    found = gradient_times_input(model, given, goal)
    for name, shares in (("source", found.source), ("target", found.target)):
        differences = [
            (scaled(model, given, name, place, 1 + 1e-5, goal) - scaled(model, given, name, place, 1 - 1e-5, goal))
            / 2e-5
            for place in range(len(shares))
        ]
        expected = torch.tensor(differences, dtype=torch.float64)
        torch.testing.assert_close(shares, expected, atol=1e-9, rtol=1e-6)
        assert not torch.allclose(shares, expected.roll(1), atol=1e-9, rtol=1e-6)
    assert found.value == pytest.approx(scaled(model, given, "source", 0, 1.0, goal), rel=1e-12)


@pytest.mark.parametrize("method", [gradient_times_input, integrated_gradients])
@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_later_tokens_get_exactly_zero(
    make_model: Callable[..., EncoderDecoder], kind: dict, method: Callable
) -> None:
    """And no other token does, nor padding that no mask tells of, nor a later token once it is not later."""
    model, given = make_model(**kind), inputs()
    found = method(model, given, Goal(position=2, token=7, row=1))
    assert found.source[4:].count_nonzero() == 0
    assert found.target[3:].count_nonzero() == 0
    assert (found.source[:4] != 0).all()
    assert (found.target[:3] != 0).all()
    unmasked = method(model, Inputs(given.source, given.target), Goal(position=4, token=7, row=1))
    assert (unmasked.source != 0).all()
    assert (unmasked.target != 0).all()


@pytest.mark.parametrize("of", GOALS)
@pytest.mark.parametrize("kind", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_integrated_gradients_are_complete_to_one_percent_at_64_steps(
    make_model: Callable[..., EncoderDecoder], kind: dict, of: str, seed: int
) -> None:
    """With one step they are not, nor with a share forgotten; the error is what it says it is."""
    torch.manual_seed(seed)
    model, given, goal = make_model(seed, **kind), inputs(), Goal(position=3, token=5, of=of, row=1)
    found = integrated_gradients(model, given, goal)
    assert found.steps == 64
    assert found.completeness_error < 0.01
    change = abs(found.value - found.baseline)
    assert abs(found.gap) < 0.01 * change or change < 0.1  # next to nothing is no measure
    assert found.value == pytest.approx(scaled(model, given, "source", 0, 1.0, goal), rel=1e-12)
    nothing = {f"{name}_embedding.tokens": torch.zeros_like for name in ("source", "target")}
    logits = run(model, given, nothing)
    scores = logits if of == "logit" else logits.log_softmax(-1)
    assert found.baseline == pytest.approx(float(scores[1, 3, 5].detach()), rel=1e-9)
    assert integrated_gradients(model, given, goal, steps=1).completeness_error > 0.01
    largest = found.source.abs() == found.source.abs().max()
    forgotten = dataclasses.replace(found, source=found.source.masked_fill(largest, 0.0))
    assert forgotten.completeness_error > 0.01


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_more_steps_come_closer_where_a_norm_stands_near_a_baseline_of_zero(
    make_model: Callable[..., EncoderDecoder], order: str, positions: str
) -> None:
    model, given = make_model(norm_order=order, positions=positions), inputs()
    goal = Goal(position=3, token=5, of="logit")
    few, many = (integrated_gradients(model, given, goal, steps).completeness_error for steps in (8, 256))
    assert many < 0.01
    assert many < few


def test_a_baseline_that_is_the_sentence_leaves_nothing_to_share(make_model: Callable[..., EncoderDecoder]) -> None:
    model, given, goal = make_model(), Inputs(torch.full((1, 4), 6), torch.full((1, 3), 6)), Goal(1, 5)
    found = integrated_gradients(model, given, goal, baseline=model.source_embedding.weight[6])
    assert found.source.count_nonzero() == found.target.count_nonzero() == 0
    assert found.value == pytest.approx(found.baseline, abs=1e-12)
    assert found.completeness_error < 1e-12
    elsewhere = integrated_gradients(model, given, goal, baseline=model.source_embedding.weight[7])
    assert elsewhere.completeness_error < 0.01
    assert elsewhere.source.count_nonzero() == 4


def test_other_rows_and_the_surroundings_do_not_matter(make_model: Callable[..., EncoderDecoder]) -> None:
    """Nor do the model's own gradients."""
    model, given, goal = make_model(), inputs(), Goal(position=2, token=7, row=1)
    with torch.no_grad():
        found = integrated_gradients(model, given, goal, steps=5)
    alone = integrated_gradients(model, given.row(1), dataclasses.replace(goal, row=0), steps=5)
    assert torch.equal(found.source, alone.source)
    assert torch.equal(found.target, alone.target)
    assert not torch.equal(found.source, integrated_gradients(model, given.row(0), Goal(2, 7), steps=5).source)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_error_is_that_of_the_shares() -> None:
    exact = IntegratedGradients(torch.tensor([3.0, -1]), torch.tensor([2.0]), value=5.0, baseline=1.0, steps=1)
    assert exact.completeness_error == 0 == exact.gap
    assert exact.total == 4
    off = dataclasses.replace(exact, source=torch.tensor([3.5, -1]))
    assert off.gap == 0.5
    assert off.completeness_error == pytest.approx(0.5 / 6.5)
    nothing = dataclasses.replace(exact, source=torch.zeros(2), target=torch.zeros(1))
    assert nothing.completeness_error == 4
    assert dataclasses.replace(nothing, baseline=5.0).completeness_error == 0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m, g: gradient_times_input(m, g, Goal(5, 7)), "position=5 is outside what .*; choose from 0 to 4"),
        (lambda m, g: integrated_gradients(m, g, Goal(0, 12)), "token=12 is outside what .*; choose from 0 to 11"),
        (lambda m, g: integrated_gradients(m, g, Goal(0, 7, row=2)), "row=2 is outside the batch; choose from 0 to 1"),
        (lambda m, g: integrated_gradients(m, g, Goal(0, 7), steps=0), "steps=0 leaves no point on the line"),
        (lambda m, g: direct_logit_attribution(recorded(m, g), 5, 7), "position=5 is outside .*; choose from 0 to 4"),
        (lambda m, g: direct_logit_attribution(recorded(m, g), 0, 7, 2), "batch=2 is outside .*; choose from 0 to 1"),
        (lambda m, g: gradient_times_input(m.train(), g, Goal(0, 7)), r"call model\.eval\(\) first"),
    ],
)
def test_what_cannot_be_done_is_said(
    make_model: Callable[..., EncoderDecoder], ask: Callable[[EncoderDecoder, Inputs], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(make_model(dropout=0.1), inputs())
