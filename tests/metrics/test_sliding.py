"""Each token is counted once with the context it was promised; known models have known likelihoods."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.errors import ConfigError, DataError
from glassformer.metrics.likelihood import TextLikelihood, sliding_likelihood


def bigram(vocab: int, seed: int = 0) -> Callable[[Tensor], Tensor]:
    table = torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return lambda tokens: table[tokens]


def counting(vocab: int) -> Callable[[Tensor], Tensor]:
    """The logit of token v is how often it has been seen in the window: what is seen decides."""
    return lambda tokens: torch.nn.functional.one_hot(tokens, vocab).cumsum(1).double()


def text(n: int, vocab: int = 7) -> np.ndarray:
    return np.random.default_rng(n).integers(0, vocab, n).astype("<u2")


def test_a_uniform_model_is_as_perplexed_as_its_vocabulary_is_large() -> None:
    found = sliding_likelihood(lambda tokens: torch.zeros(*tokens.shape, 8), text(100), context=16, stride=4)
    assert found.tokens == 99
    assert found.perplexity == pytest.approx(8)
    assert found.nll_per_token == pytest.approx(math.log(8))
    assert TextLikelihood(found.nll, 99, characters=99).bits_per_character == pytest.approx(3)
    assert TextLikelihood(found.nll, 99, characters=99, bytes=198).bits_per_byte == pytest.approx(1.5)


@pytest.mark.parametrize("batch_tokens", [1, 16, 1000])
@settings(max_examples=30, deadline=None)
@given(st.integers(2, 80), st.integers(1, 20), st.integers(1, 20))
def test_windows_do_not_affect_a_model_of_context_one(batch_tokens: int, n: int, context: int, stride: int) -> None:
    model, ids = bigram(7), text(n)
    tokens = torch.from_numpy(ids.astype(np.int64))
    direct = torch.nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:], reduction="sum").item()
    found = sliding_likelihood(model, ids, context, min(stride, context), batch_tokens=batch_tokens)
    assert found.tokens == n - 1
    assert found.nll == pytest.approx(direct, rel=1e-12)


@pytest.mark.parametrize("context", [39, 40, 1000])
def test_a_text_that_fits_one_window_has_its_own_likelihood(context: int) -> None:
    model, ids = counting(7), text(40)
    tokens = torch.from_numpy(ids.astype(np.int64))
    direct = torch.nn.functional.cross_entropy(model(tokens[None, :-1])[0], tokens[1:], reduction="sum").item()
    assert sliding_likelihood(model, ids, context, 3).nll == pytest.approx(direct, rel=1e-12)


@pytest.mark.parametrize(("n", "context", "stride"), [(50, 8, 1), (50, 8, 3), (50, 8, 8), (49, 8, 4), (10, 8, 5)])
def test_every_token_but_the_first_is_predicted_once_from_enough_before_it(n: int, context: int, stride: int) -> None:
    """A model that puts e⁻ⁿ on what follows n tokens tells, in its likelihood, how many those were."""
    ids = np.arange(n)

    def model(tokens: Tensor) -> Tensor:
        assert tokens.shape[1] <= context
        logits = torch.full((*tokens.shape, n), -math.inf, dtype=torch.float64)
        for row, line in enumerate(tokens.tolist()):
            for place, token in enumerate(line):
                logits[row, place, token + 1] = 0.0
                logits[row, place, 0] = math.log(math.expm1(place + 1))  # so that the next one has e^-(place + 1)
        return logits

    found = sliding_likelihood(model, ids, context, stride)
    before = []
    end = 0
    for begin in [*range(0, max(0, n - 1 - context), stride), max(0, n - 1 - context)]:
        stop = min(begin + context, n - 1)
        before += [place + 1 - begin for place in range(end, stop)]
        end = stop
    assert len(before) == found.tokens == n - 1
    assert all(many >= min(context - stride, i + 1) for i, many in enumerate(before))
    assert found.nll == pytest.approx(sum(before), rel=1e-9)


def test_a_start_token_makes_the_first_token_count() -> None:
    model, ids = bigram(9), text(30)
    with_start = sliding_likelihood(model, ids, 8, start_id=8)
    assert with_start.tokens == 30
    first = -torch.log_softmax(model(torch.tensor(8)), 0)[int(ids[0])].item()
    assert with_start.nll == pytest.approx(first + sliding_likelihood(model, ids, 8).nll)


def test_low_precision_is_summed_in_float32() -> None:
    model, ids = bigram(7), text(3000)
    exact = sliding_likelihood(lambda tokens: model(tokens).bfloat16().double(), ids, 64).nll
    assert sliding_likelihood(lambda tokens: model(tokens).bfloat16(), ids, 64).nll == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("stride", [-1, 9])
def test_a_stride_that_leaves_tokens_out_is_refused(stride: int) -> None:
    with pytest.raises(ConfigError, match=f"stride={stride} is not from 1 to context=8"):
        sliding_likelihood(bigram(7), text(30), 8, stride)


@pytest.mark.parametrize("n", [0, 1])
def test_text_without_predicted_tokens_is_refused(n: int) -> None:
    with pytest.raises(DataError, match="less than two tokens"):
        sliding_likelihood(bigram(7), text(n), 8)
    if n:
        assert sliding_likelihood(bigram(7), text(n), 8, start_id=0).tokens == 1
