"""Lengths, forced prefixes, repeats, and the distributions that samples are drawn from."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from glassformer.errors import ConfigError, DataError
from glassformer.generate import DecodingConfig, Hypothesis, SpecialTokens, generate
from glassformer.generate.filters import Filter, min_p, temperature, top_k, top_p
from glassformer.models.encoder_decoder import EncoderDecoder

Maker = Callable[..., EncoderDecoder]
SOURCES = [[5, 3, 8, 4, 2], [7, 2], [3, 3, 6, 2]]
SEARCHES = [{"beam_size": 1}, {"beam_size": 4, "n_best": 4}, {"sample": True, "n_best": 4}]


def texts(found: list[list[Hypothesis]]) -> list[list[int]]:
    return [hypothesis.tokens for hypotheses in found for hypothesis in hypotheses]


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_lengths_stay_within_their_limits(
    make_peaked: Maker, symbols: SpecialTokens, search: dict[str, object]
) -> None:
    models = [make_peaked(seed) for seed in range(3)]
    found = {}
    for minimum, limits in [(0, {"max_extra": 1}), (3, {"max_length": 4})]:
        config = DecodingConfig(min_length=minimum, **limits, **search)
        found[minimum] = [generate(model, SOURCES, symbols, config) for model in models]
    assert {len(text) for one in found[3] for text in texts(one)} == {3, 4}
    for one in found[0]:
        for source, hypotheses in zip(SOURCES, one, strict=True):
            assert all(len(h.tokens) <= len(source) - 1 + 1 for h in hypotheses)
    assert min(len(text) for one in found[0] for text in texts(one)) < 3


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_forced_prefix_overrides_other_constraints(
    make_peaked: Maker, symbols: SpecialTokens, search: dict[str, object]
) -> None:
    """Even one that repeats itself where repeats are ruled out, and unlikely ones."""
    prefixes = [[4, 4, 4, 4], [], [8]]
    config = DecodingConfig(max_length=7, no_repeat_ngram=1, **search)
    found = generate(make_peaked(0), SOURCES, symbols, config, prefixes)
    for prefix, hypotheses in zip(prefixes, found, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens[: len(prefix)] == prefix
            rest = hypothesis.tokens[len(prefix) :]
            assert len(set(rest) - set(prefix)) == len(rest)


def test_a_prefix_longer_than_the_limit_is_refused(make_peaked: Maker, symbols: SpecialTokens) -> None:
    with pytest.raises(DataError, match="a forced prefix of 3 tokens is longer than the limit of 2"):
        generate(make_peaked(0), [[3, 2]], symbols, DecodingConfig(max_length=2), [[5, 5, 5]])


@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_is_repeated(make_peaked: Maker, symbols: SpecialTokens, n: int, search: dict[str, object]) -> None:
    def repeats(text: list[int]) -> bool:
        return max(Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)).values(), default=0) > 1

    model = make_peaked(4)
    for forbidden in (0, n):
        config = DecodingConfig(max_length=12, min_length=5, no_repeat_ngram=forbidden, **search)
        assert any(map(repeats, texts(generate(model, SOURCES, symbols, config)))) is (forbidden == 0)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_text_ends_if_no_token_is_allowed(
    make_peaked: Maker, symbols: SpecialTokens, search: dict[str, object]
) -> None:
    """Six words, none twice, and a minimum of eight."""
    config = DecodingConfig(min_length=8, max_length=20, no_repeat_ngram=1, **search)
    for hypotheses in generate(make_peaked(0), SOURCES, symbols, config):
        assert hypotheses
        assert all(sorted(h.tokens) == [3, 4, 5, 6, 7, 8] for h in hypotheses)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.parametrize("other", [{"start": 2}, {"pad": 2}], ids=str)
def test_a_start_or_padding_that_is_the_end_may_end_a_text(
    make_peaked: Maker, symbols: SpecialTokens, other: dict[str, int], search: dict[str, object]
) -> None:
    """M2M100 and NLLB start with the end symbol."""
    config = DecodingConfig(max_length=12, **search)
    found = texts(generate(make_peaked(2), SOURCES, replace(symbols, **other), config))
    assert min(map(len, found)) < 12
    assert all(2 not in tokens for tokens in found)


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        (top_k(2), [0, 4, 5, 0, 0]),
        (top_k(4), [1, 4, 5, 1, 0]),
        (top_k(99), [1, 4, 5, 1, 0]),
        (top_p(0.4), [0, 0, 5, 0, 0]),
        (top_p(0.6), [0, 4, 5, 0, 0]),
        (min_p(0.7), [0, 4, 5, 0, 0]),
        (min_p(0.1), [1, 4, 5, 1, 0]),
        (temperature(0.5), [1, 16, 25, 1, 0]),
        (temperature(2.0), [1, 2, 5**0.5, 1, 0]),
    ],
)
def test_sampling_filters_keep_the_expected_tokens(chosen: Filter, kept: list[float]) -> None:
    log_probs = torch.tensor([[1, 4, 5, 1, 0]], dtype=torch.float64).div(11).log()
    filtered = chosen(log_probs, torch.tensor([[1]]), torch.tensor([0])).softmax(-1)
    expected = torch.tensor([kept], dtype=torch.float64)
    torch.testing.assert_close(filtered, expected / expected.sum(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-4}], ids=str)
def test_sampling_from_the_best_token_alone_is_greedy(
    make_peaked: Maker, symbols: SpecialTokens, options: dict[str, float]
) -> None:
    model = make_peaked(3)
    sampled = generate(model, SOURCES, symbols, DecodingConfig(sample=True, n_best=2, max_length=9, **options))
    greedy = generate(model, SOURCES, symbols, DecodingConfig(beam_size=1, max_length=9))
    assert [[h.tokens for h in hs] for hs in sampled] == [[one.tokens] * 2 for (one,) in greedy]


def test_draws_follow_the_distribution(make_peaked: Maker, symbols: SpecialTokens) -> None:
    """3,000 first tokens: each share within 4.5 standard deviations of the model's probability."""
    model, source, draws = make_peaked(0), SOURCES[0], 3000
    config = DecodingConfig(sample=True, n_best=draws, max_length=1, temperature=1.5)
    probabilities = (model(torch.tensor([source]), torch.tensor([[1]]))[0, 0] / 1.5)[2:].softmax(0).tolist()
    counts = Counter((*tokens, 2)[0] for tokens in texts(generate(model, [source], symbols, config)))
    assert sum(probability > 0.05 for probability in probabilities) > 2
    for token, probability in enumerate(probabilities, start=2):
        deviation = (probability * (1 - probability) / draws) ** 0.5
        assert counts[token] / draws == pytest.approx(probability, abs=4.5 * deviation)


def test_a_seed_fixes_the_draws(make_peaked: Maker, symbols: SpecialTokens) -> None:
    model = make_peaked(1)
    found = [
        texts(generate(model, SOURCES, symbols, DecodingConfig(sample=True, n_best=3, seed=seed))) for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
    assert len(set(map(tuple, found[0][:3]))) > 1, "the draws of a sentence differ"


def test_more_hypotheses_than_the_beam_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_best=5 exceeds beam_size=4; raise beam_size or lower n_best"):
        DecodingConfig.parse({"n_best": 5})
