"""The logit lens ends with the model's logits, and ranks what it sees."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer import Trace, trace
from glassformer.explain.analysis.interventions import Inputs, run
from glassformer.explain.analysis.lens import Lens, logit_lens
from glassformer.explain.formula.dataflow import residual_stream
from glassformer.models.encoder_decoder import EncoderDecoder

KINDS = [
    {"norm_order": order, "tie_embeddings": tied, "positions": positions, "output_bias": not tied}
    for order, tied, positions in (
        ("post", True, "sinusoidal"),
        ("post", False, "rotary"),
        ("pre", True, "learned"),
        ("pre", False, "rotary"),
    )
]


def inputs() -> tuple[Inputs, Tensor]:
    source_mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    given = Inputs(torch.randint(3, 12, (2, 6)), torch.randint(3, 12, (2, 5)), source_mask)
    return given, torch.randint(3, 12, (2, 5))


def recorded(model: EncoderDecoder, given: Inputs) -> Trace:
    with trace(model) as t:
        model(*given.arguments)
    return t


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_after_the_last_layer_it_is_the_logits(
    make_model: Callable[..., EncoderDecoder], kind: dict, dtype: torch.dtype
) -> None:
    model, (given, predicted) = make_model(**kind).to(dtype), inputs()
    t = recorded(model, given)
    lens = logit_lens(t, predicted)
    assert lens.places == tuple(residual_stream(model, "decoder"))
    assert lens.logits.shape == (3, 2, 5, 12)
    assert torch.equal(lens.logits[-1], t["output_projection.logits"])
    assert not torch.equal(lens.logits[-2], t["output_projection.logits"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_layer_is_the_logits_of_the_model_that_ends_there(
    make_model: Callable[..., EncoderDecoder], kind: dict
) -> None:
    """And the embedding, which no model can end with, through the last norm and the projection by hand."""
    model, (given, predicted) = make_model(**kind), inputs()
    lens, layers = logit_lens(recorded(model, given), predicted), model.decoder.layers
    for kept in (1, 2):
        model.decoder.layers = layers[:kept]
        assert torch.equal(run(model, given), lens.logits[kept])
    x = model.target_embedding(given.target)
    norm = torch.nn.Identity() if model.decoder.final_norm is None else model.decoder.final_norm
    torch.testing.assert_close(lens.logits[0], model.output_projection(norm(x)))


def test_the_last_norm_is_not_forgotten(make_model: Callable[..., EncoderDecoder]) -> None:
    """Without it, or with another, the comparison with the logits fails."""
    model, (given, predicted) = make_model(norm_order="pre"), inputs()
    t = recorded(model, given)
    raw = model.output_projection(t[residual_stream(model, "decoder")[-1]])
    assert not torch.allclose(raw, t["output_projection.logits"])
    with torch.no_grad():
        model.decoder.final_norm.bias += 0.1
    assert not torch.allclose(logit_lens(t, predicted).logits[-1], t["output_projection.logits"])


def test_probability_and_rank_are_those_of_the_predicted_token(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (given, predicted) = make_model(), inputs()
    t = recorded(model, given)
    lens = logit_lens(t, predicted)
    expected = t["output_projection.probabilities"].gather(-1, predicted[..., None])[..., 0]
    torch.testing.assert_close(lens.probability[-1], expected)
    order = lens.logits.argsort(-1, descending=True)
    assert torch.equal(order.gather(-1, lens.rank[..., None] - 1)[..., 0], predicted.expand(3, -1, -1))
    assert not torch.equal(logit_lens(t, predicted.flip(1)).rank, lens.rank)
    best = logit_lens(t, t["output_projection.logits"].argmax(-1))
    assert (best.rank[-1] == 1).all()
    assert (best.rank[0] > 1).any()


def test_equal_logits_share_the_best_rank(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (given, predicted) = make_model(), inputs()
    with torch.no_grad():
        model.output_projection.weight.zero_()
    lens = logit_lens(recorded(model, given), predicted)
    assert (lens.rank == 1).all()
    torch.testing.assert_close(lens.probability, torch.full((3, 2, 5), 1 / 12, dtype=torch.float64))


def test_a_trace_around_it_stays_as_it_was(make_model: Callable[..., EncoderDecoder]) -> None:
    model, (given, predicted) = make_model(norm_order="pre"), inputs()
    with trace(model) as t:
        model(*given.arguments)
        before = {name: len(t.all(name)) for name in t}
        assert isinstance(logit_lens(t, predicted), Lens)
    assert {name: len(t.all(name)) for name in t} == before
