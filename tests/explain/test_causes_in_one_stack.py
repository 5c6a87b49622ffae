"""Heads switched off, rollout, logit lens and attribution where a model has one stack; refused where there is none."""

import pytest
import torch
from torch import Tensor

from explain.small_examples import EXAMPLES
from explain.small_models import SEGMENTS, TOKENS, inputs, recorded, small_model
from glassformer import ConfigError
from glassformer.explain.analysis.attribution import (
    Goal,
    direct_logit_attribution,
    gradient_times_input,
    integrated_gradients,
)
from glassformer.explain.analysis.heads import head_ablation, head_importance
from glassformer.explain.analysis.interventions import Inputs, run, switch_off
from glassformer.explain.analysis.lens import logit_lens
from glassformer.explain.analysis.rollout import attention_rollout
from glassformer.explain.formula.dataflow import residual_stream

HIDDEN = torch.tensor([[False, False, True, False, True, False]])
GIVEN = {
    "gpt": Inputs(torch.tensor([TOKENS, TOKENS[::-1]])),
    "llama": Inputs(torch.tensor([TOKENS, TOKENS[::-1]])),
    "bert": Inputs(torch.tensor([TOKENS]), segments=torch.tensor([SEGMENTS]), predicts=HIDDEN),
    "vit": Inputs(torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(1)).double()),
}
PREDICTED = {"vit": torch.tensor([1, 3])}


def predicted(variant: str) -> Tensor:
    return PREDICTED.get(variant, GIVEN[variant].source.roll(-1, 1))


@pytest.mark.parametrize("variant", GIVEN)
def test_a_head_that_is_switched_off_is_missed_by_what_it_gave(variant: str) -> None:
    model, given, expected = small_model(variant), GIVEN[variant], predicted(variant)
    found = head_ablation(model, given, expected)
    assert len(found.attentions) == 2
    assert found.loss_change.shape == (2, 4)
    assert torch.equal(found.counted, given.counted)
    without = run(model, given, switch_off(model, {found.attentions[1]: [2]}))
    by_hand = without.log_softmax(-1).gather(-1, expected[..., None])[..., 0]
    torch.testing.assert_close(found.without[1, 2], by_hand)
    nll = -(by_hand[given.counted].mean() - found.log_probability[given.counted].mean())
    torch.testing.assert_close(found.loss_change[1, 2], nll)


@pytest.mark.parametrize("variant", GIVEN)
def test_importance_is_the_slope_of_a_gate(variant: str) -> None:
    model, given, expected = small_model(variant), GIVEN[variant], predicted(variant)
    found, step = head_importance(model, given, expected), 1e-5
    path = found.attentions[0]

    def loss(size: float) -> Tensor:
        gate = torch.ones(4, dtype=torch.float64)
        gate[1] = size
        logits = run(model, given, {f"{path}.context": lambda context: context * gate[:, None, None]})
        chosen = -logits.log_softmax(-1).gather(-1, expected[..., None])[..., 0]
        kept = given.counted.reshape(len(chosen), -1)
        return (chosen.reshape(len(chosen), -1) * kept).sum(1) / kept.sum(1)

    slope = (loss(1 + step) - loss(1 - step)) / (2 * step)
    torch.testing.assert_close(found.gradient[0, :, 1], slope, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("variant", ["gpt", "llama"])
@pytest.mark.parametrize("by", ["mean"])
def test_by_the_mean_no_position_learns_of_a_later_one(variant: str, by: str) -> None:
    model, given = small_model(variant), GIVEN[variant]
    later = Inputs(torch.cat([given.source[:, :4], given.source[:, 4:].flip(1)], 1))
    edits = switch_off(model, {"decoder.layers.0.self_attention": [0, 1]}, by, given)
    torch.testing.assert_close(run(model, given, edits)[:, :4], run(model, later, edits)[:, :4])


@pytest.mark.parametrize("variant", ["gpt", "llama", "bert"])
def test_the_lens_ends_with_the_logits(variant: str) -> None:
    t = recorded(variant)
    lens = logit_lens(t, torch.tensor([TOKENS]))
    assert lens.places == tuple(residual_stream(t.model, "encoder" if variant == "bert" else "decoder"))
    assert torch.equal(lens.logits[-1], t["output_projection.logits"])
    assert not torch.allclose(lens.logits[0], lens.logits[-1])


@pytest.mark.parametrize("variant", ["gpt", "llama", "bert", "vit", "series"])
def test_a_rollout_is_that_of_the_only_stack(variant: str) -> None:
    t = recorded(variant)
    found = attention_rollout(t)
    assert found.stack == ("decoder" if variant in ("gpt", "llama") else "encoder")
    assert len(found.layers) == 2
    torch.testing.assert_close(found.last.sum(-1), torch.ones_like(found.last[..., 0]))
    steps = [
        (t[f"{found.stack}.layers.{n}.self_attention.weights"].mean(1) + torch.eye(found.last.size(-1))) / 2
        for n in (0, 1)
    ]
    torch.testing.assert_close(found.last, steps[1] @ steps[0])


@pytest.mark.parametrize("variant", ["gpt", "llama"])
def test_the_parts_of_a_decoder_sum_to_a_logit(variant: str) -> None:
    """RMSNorm, gates and groups of heads included; without one of the parts they do not."""
    t = recorded(variant)
    for position, token in ((0, 3), (4, 7), (5, 0)):
        found = direct_logit_attribution(t, position, token)
        assert found.error < 1e-12
        assert {"embedding", "head", "feed_forward"} <= set(found.by_kind())
        assert ("position" in found.by_kind()) == (variant == "gpt")
        assert abs(float(found.contributions[1:].sum()) - found.logit) > 1e-6


@pytest.mark.parametrize("variant", ["gpt", "llama"])
def test_shares_of_tokens_are_complete_and_none_is_of_a_later_one(variant: str) -> None:
    model, given, goal = small_model(variant), GIVEN[variant], Goal(position=3, token=7, row=1)
    found = integrated_gradients(model, given, goal, steps=128)
    assert len(found.source) == 0
    assert found.target.shape == (6,)
    assert not found.target[4:].any()
    assert found.completeness_error < 0.05
    plain = gradient_times_input(model, given, goal)
    logits = run(model, given)[1, 3].log_softmax(-1).detach()
    assert plain.value == pytest.approx(float(logits[7]))
    assert not plain.target[4:].any()


def test_where_it_makes_no_sense_it_is_refused_and_says_what_works() -> None:
    bert, series, lstm = recorded("bert"), recorded("series"), recorded("recurrent")
    for call, message in [
        (
            lambda: direct_logit_attribution(bert, 0, 0),
            "no sum over a decoder's parts; this works with encoder_dec",
        ),
        (lambda: gradient_times_input(bert.model, GIVEN["bert"], Goal(0, 0)), "BERT does not say a next word; attribu"),
        (
            lambda: logit_lens(series, torch.tensor([[1]])),
            "SeriesModel says none here; it works with encoder_decoder",
        ),
        (
            lambda: attention_rollout(lstm),
            "Recurrent has none in its encoder; it works with encoder_decoder",
        ),
        (
            lambda: run(series.model, Inputs(inputs("series")[0])),
            "SeriesModel is not asked for probabilities",
        ),
    ]:
        with pytest.raises(ConfigError, match=message):
            call()


def test_inputs_are_those_of_an_example() -> None:
    for name in ("gpt", "masked"):
        example = EXAMPLES[name]()
        given = Inputs.of(example)
        torch.testing.assert_close(run(example.model, given), example.trace["output_projection.logits"])
    assert given.counted[0].nonzero().flatten().tolist() == [2, 6] == list(example.positions)
