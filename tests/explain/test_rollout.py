"""Rollout rows sum to 1 over keys, are causal where the model is, and identity attention gives the identity."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from glassformer import ConfigError, Trace, trace
from glassformer.explain.analysis.interventions import Inputs
from glassformer.explain.analysis.rollout import attention_rollout
from glassformer.generate import DecodingConfig, SpecialTokens, generate
from glassformer.models.encoder_decoder import EncoderDecoder

STACKS = ["encoder", "decoder"]
LENGTHS = {"encoder": 6, "decoder": 5}


def recorded(model: EncoderDecoder, edit: Callable[[Tensor], Tensor] = lambda weights: weights) -> Trace:
    source_mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    given = Inputs(torch.randint(3, 12, (2, 6)), torch.randint(3, 12, (2, 5)), source_mask)
    edits = {f"{stack}.layers.{n}.self_attention.weights": edit for stack in STACKS for n in (0, 1)}
    with trace(model, edits=edits) as t:
        model(*given.arguments)
    return t


def sums_to_one(rollout: Tensor) -> bool:
    return torch.allclose(rollout.sum(-1), torch.ones((), dtype=rollout.dtype), atol=1e-12)


def is_causal(rollout: Tensor) -> bool:
    return rollout.triu(1).count_nonzero() == 0


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("order", ["post", "pre"])
def test_rows_sum_to_one(make_model: Callable[..., EncoderDecoder], stack: str, order: str) -> None:
    """Columns do not; and weights that do not sum to 1 are seen, for nothing rescales them in silence."""
    model = make_model(norm_order=order)
    rollout = attention_rollout(recorded(model), stack)
    assert rollout.layers.shape == (2, 2, LENGTHS[stack], LENGTHS[stack])
    assert sums_to_one(rollout.layers)
    assert torch.equal(rollout.last, rollout.layers[-1])
    assert not sums_to_one(rollout.layers.transpose(-2, -1))
    assert not sums_to_one(attention_rollout(recorded(model, lambda weights: 1.1 * weights), stack).layers)


def test_the_decoder_is_causal_and_the_encoder_is_not(make_model: Callable[..., EncoderDecoder]) -> None:
    t = recorded(make_model())
    assert is_causal(attention_rollout(t, "decoder").layers)
    assert not is_causal(attention_rollout(t, "encoder").layers)
    leaking = recorded(make_model(), lambda weights: weights.flip(-1))
    assert not is_causal(attention_rollout(leaking, "decoder").layers)


def test_padding_is_found_nowhere_but_at_itself(make_model: Callable[..., EncoderDecoder]) -> None:
    rollout = attention_rollout(recorded(make_model()), "encoder").last
    assert rollout[1, :4, 4:].count_nonzero() == 0 < rollout[0, :4, 4:].count_nonzero()


@pytest.mark.parametrize("stack", STACKS)
def test_identity_attention_gives_the_identity(make_model: Callable[..., EncoderDecoder], stack: str) -> None:
    """And so does attention that sees nothing; other attention does not."""
    identity = torch.eye(LENGTHS[stack], dtype=torch.float64).expand(2, 2, -1, -1)

    def kept(weights: Tensor) -> Tensor:
        return torch.eye(weights.size(-1), dtype=weights.dtype).expand_as(weights)

    assert torch.equal(attention_rollout(recorded(make_model(), kept), stack).layers, identity)
    assert torch.equal(attention_rollout(recorded(make_model(), torch.zeros_like), stack).layers, identity)
    assert not torch.equal(attention_rollout(recorded(make_model()), stack).layers, identity)


def test_two_layers_of_looking_one_back_are_known_exactly(make_model: Callable[..., EncoderDecoder]) -> None:
    """Each layer keeps half and takes half from the token before: 1/4, 1/2, 1/4 after two of them."""

    def one_back(weights: Tensor) -> Tensor:
        rows = torch.eye(weights.size(-1), dtype=weights.dtype).roll(1, 0)
        rows[0] = torch.eye(weights.size(-1), dtype=weights.dtype)[0]
        return rows.expand_as(weights)

    last = attention_rollout(recorded(make_model(), one_back), "decoder").last[0]
    assert last[4].tolist() == [0, 0, 0.25, 0.5, 0.25]
    assert last[1].tolist() == [0.75, 0.25, 0, 0, 0]
    assert last[0].tolist() == [1, 0, 0, 0, 0]


def test_what_cannot_be_done_is_said(make_model: Callable[..., EncoderDecoder]) -> None:
    model, symbols = make_model(), SpecialTokens(pad=0, start=1, end=2)
    with trace(model) as t:
        generate(model, [[5, 7, 2]], symbols, DecodingConfig(beam_size=1, max_length=3))
    if len(t.all("output_projection.logits")) > 1:
        with pytest.raises(ConfigError, match=r"1 queries for \d keys, .*; trace the whole target at once"):
            attention_rollout(t, "decoder")
    with trace(model, keep="*logits") as t:
        model(torch.tensor([[5]]), torch.tensor([[1]]))
    with pytest.raises(ConfigError, match=r"nothing was recorded under 'encoder\.layers\.0\.self_attention\.weights'"):
        attention_rollout(t, "encoder")
