"""Repetition penalty, logit bias and temperature 0: formulas, batches and routes."""

from collections.abc import Callable

import pytest
import torch

from glassformer.errors import ConfigError
from glassformer.generate import DecodingConfig, LanguageDecodingConfig, SpecialTokens, StopStrings, generate
from glassformer.generate.filters import logit_bias, repetition_penalty
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.native.decoding import NativeDecoder
from glassformer.native.library import kernels

Maker = Callable[..., EncoderDecoder]
SOURCES = [[5, 2], [3, 8, 7, 4, 6, 5, 2], [4, 4, 2], [7, 8, 3, 2], [6, 2], [8, 5, 3, 6, 2]]
SEARCHES = [{"beam_size": 1}, {"beam_size": 4, "n_best": 3}, {"sample": True, "n_best": 2}]


def biased(bias: dict[int, float]) -> SpecialTokens:
    return SpecialTokens(pad=0, start=1, end=2, bias=bias)


def test_repetition_penalty_equals_its_formula() -> None:
    """Keskar et al. (2019); the end token (2) and the start token are exempt."""
    logits = torch.randn(3, 9, generator=torch.Generator().manual_seed(1))
    tokens, sentence, before = (
        torch.tensor([[1, 4, 4, 2], [1, 5, 3, 8], [7, 6, 6, 6]]),
        torch.tensor([1, 0, 1]),
        [[5], [2, 8]],
    )
    seen = [{4, 8}, {5, 3, 8}, {6, 8}]
    expected = logits.clone()
    for row, ids in enumerate(seen):
        for id in ids:
            expected[row, id] = logits[row, id] / 1.3 if logits[row, id] > 0 else logits[row, id] * 1.3
    found = repetition_penalty(1.3, 2, before)(logits.clone(), tokens, sentence)
    torch.testing.assert_close(found, expected)
    assert (found != logits).sum() == 7


def test_repetition_penalty_equals_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    logits, tokens = torch.randn(4, 30), torch.randint(3, 30, (4, 12))
    theirs = transformers.RepetitionPenaltyLogitsProcessor(1.7)(tokens, logits.clone())
    start = torch.ones(4, 1, dtype=torch.long)
    found = repetition_penalty(1.7, 2)(logits.clone(), torch.cat([start, tokens], 1), torch.arange(4))
    torch.testing.assert_close(found, theirs)


def test_logit_bias_is_added_to_the_logits() -> None:
    logits = torch.randn(2, 6)
    found = logit_bias({3: 2.5, 5: -1.0})(logits.clone(), torch.ones(2, 1), torch.arange(2))
    torch.testing.assert_close(found - logits, torch.tensor([[0, 0, 0, 2.5, 0, -1.0]]).expand(2, -1))


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_search_log_probabilities_follow_bias_and_penalty(make_peaked: Maker, search: dict[str, object]) -> None:
    """Each log-probability comes from the softmax over logits after bias and penalty."""
    model, config = make_peaked(3), DecodingConfig(max_length=8, repetition_penalty=1.8, **search)
    plain = generate(model, SOURCES, biased({}), DecodingConfig(max_length=8, **search))
    found = generate(model, SOURCES, biased({4: 1.5, 7: -2.0}), config)
    assert [[h.tokens for h in one] for one in found] != [[h.tokens for h in one] for one in plain]
    for source, hypotheses in zip(SOURCES, found, strict=True):
        for one in hypotheses:
            written = one.predicted(2)
            rows = model(torch.tensor([source]), torch.tensor([[1, *written[:-1]]]))[0]
            for step, value in enumerate(one.token_log_probs):
                row = rows[step].clone()
                row[4] += 1.5
                row[7] -= 2.0
                for id in set(written[:step]):
                    row[id] = row[id] / 1.8 if row[id] > 0 else row[id] * 1.8
                assert value == pytest.approx(row.log_softmax(-1)[written[step]].item(), abs=1e-9)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_bias_and_penalty_do_not_depend_on_batch_or_route(make_peaked: Maker, search: dict[str, object]) -> None:
    model, symbols = make_peaked(3).float(), biased({4: 1.5, 7: -2.0, 5: float("-inf")})
    config = DecodingConfig(max_length=8, repetition_penalty=1.8, **search)
    together = [[h.tokens for h in one] for one in generate(model, SOURCES, symbols, config)]
    alone = [[h.tokens for h in generate(model, [source], symbols, config)[0]] for source in SOURCES]
    assert together == alone
    assert all(5 not in tokens for one in together for tokens in one)
    if (functions := kernels()) is not None:
        found = generate(NativeDecoder(model, functions), SOURCES, symbols, config)
        assert [[h.tokens for h in one] for one in found] == together


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_search_with_a_forbidden_end_runs_to_max_length(make_peaked: Maker, search: dict[str, object]) -> None:
    found = generate(make_peaked(2), SOURCES, biased({2: float("-inf")}), DecodingConfig(max_length=5, **search))
    assert {(len(h.tokens), h.finish_reason) for one in found for h in one} == {(5, "length")}


def test_forced_prefix_may_contain_a_forbidden_token(make_peaked: Maker) -> None:
    for search in SEARCHES:
        config = DecodingConfig(max_length=5, **search)
        found = generate(make_peaked(2), SOURCES[:1], biased({6: float("-inf")}), config, [[6, 6]])
        assert all(h.tokens[:2] == [6, 6] and 6 not in h.tokens[2:] for h in found[0])


def test_temperature_0_equals_greedy_search(make_peaked: Maker, symbols: SpecialTokens) -> None:
    for seed in range(3):
        model = make_peaked(seed)
        cold = generate(model, SOURCES, symbols, DecodingConfig(sample=True, n_best=2, temperature=0, max_length=9))
        greedy = generate(model, SOURCES, symbols, DecodingConfig(beam_size=1, max_length=9))
        for drawn, (one,) in zip(cold, greedy, strict=True):
            for draw in drawn:
                assert draw.tokens == one.tokens
                assert draw.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-10)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"repetition_penalty": 0.9}, "repetition_penalty=0.9: input should be greater than or equal to 1"),
        ({"temperature": -0.1}, "temperature=-0.1: input should be greater than or equal to 0"),
        ({"logit_bias": {"a": float("nan")}}, "'a' = nan cannot be added to a logit; choose a finite number, or -inf"),
        ({"logit_bias": {"a": float("inf")}}, "'a' = inf cannot be added to a logit"),
        ({"stop": ["."]}, "unknown key stop"),
    ],
)
def test_decoding_config_rejects_invalid_values(values: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        DecodingConfig.parse(values, "decoding")


def test_decoding_config_rejects_an_empty_stop_string() -> None:
    with pytest.raises(ConfigError, match="an empty stop string would end every text"):
        LanguageDecodingConfig.parse({"stop": ["x", ""]}, "decoding")


def test_decoding_config_round_trips_a_forbidden_token(tmp_path: object) -> None:
    config = LanguageDecodingConfig.parse({"logit_bias": {"the": float("-inf"), 7: 1.5}, "stop": "\n\n"})
    assert config.logit_bias == {"the": float("-inf"), "#7": 1.5}
    config.write(f"{tmp_path}/c.toml")
    assert LanguageDecodingConfig.read(f"{tmp_path}/c.toml") == config
    assert LanguageDecodingConfig.parse(config.model_dump(mode="json")) == config


def test_stop_strings_cut_streamed_and_complete_text_alike() -> None:
    """For every chunk size, the result ends before the first occurrence in the complete text."""
    stops = StopStrings(("abcd", "bc", "x\n"))
    for whole, expected in [("zabcdz", 1), ("zabcz", 2), ("zab", None), ("ax\nbc", 1), ("ax bc", 3)]:
        for size in range(1, 6):
            text = ""
            for start in range(0, len(whole), size):
                text += whole[start : start + size]
                if stops.complete(text):
                    break
            assert stops.cut(text) == expected == stops.cut(whole)
