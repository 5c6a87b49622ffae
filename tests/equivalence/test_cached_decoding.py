"""Decoding with the keys and values kept gives what computing the whole prefix again would give."""

import random
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor

from glassformer.generate import DecodingConfig, SpecialTokens, generate
from glassformer.layers.position import Encoding
from glassformer.models.encoder_decoder import EncoderDecoder

SYMBOLS = SpecialTokens(pad=0, start=1, end=2)
SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "n_best": 3},
    "sampling": {"sample": True, "n_best": 3},
}


def sources() -> tuple[Tensor, Tensor]:
    return torch.randint(3, 12, (2, 6)), torch.arange(6) < torch.tensor([[6], [4]])


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("positions", get_args(Encoding))
def test_cached_logits_equal_those_of_the_full_prefix(
    make_model: Callable[..., EncoderDecoder], positions: str, norm_order: str, use_cache: bool
) -> None:
    """Three hypotheses a sentence, shuffled at every step, over more steps than the cache's first buffer holds."""
    model, rng = make_model(positions=positions, norm_order=norm_order), random.Random(0)
    source, visible = sources()
    state = model.begin(source, visible, use_cache)
    prefixes, sentences = [[1], [1]], [0, 1]
    for step in range(20):
        logits = model.step(torch.tensor([[prefix[-1]] for prefix in prefixes]), state)
        asked = [sentence for sentence in sentences for _ in range(len(prefixes) // 2)]
        alone = model(source[asked], torch.tensor(prefixes), visible[asked])[:, -1]
        torch.testing.assert_close(logits, alone, atol=1e-10, rtol=1e-10)
        if step == 10:
            sentences = [1, 0]
            state.select_sentences(torch.tensor(sentences))
        k = len(prefixes) // 2
        first, second = ([row + rng.randrange(k) for _ in range(3)] for row in (0, k))
        rows = second + first if step == 10 else first + second
        state.select(torch.tensor(rows))
        prefixes = [[*prefixes[row], rng.randrange(3, 12)] for row in rows]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("positions", get_args(Encoding))
def test_searches_find_the_same_with_and_without_cache(
    make_model: Callable[..., EncoderDecoder], positions: str, search: str
) -> None:
    model = make_model(positions=positions, tie_embeddings=False)
    prompts = [[3, 7, 5, 9, 2], [4, 2], [8, 8, 6, 2]]
    found = [
        generate(model, prompts, SYMBOLS, DecodingConfig(max_length=18, use_cache=use_cache, **SEARCHES[search]))
        for use_cache in (True, False)
    ]
    for cached, uncached in zip(*found, strict=True):
        assert [h.tokens for h in cached] == [h.tokens for h in uncached]
        for one, other in zip(cached, uncached, strict=True):
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-10)
            assert one.score == pytest.approx(other.score, abs=1e-10)
