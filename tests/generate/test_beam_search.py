"""Beam search against what it is defined by: exhaustive search, a textbook beam without early stop, and greedy."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from glassformer.generate import DecodingConfig, Hypothesis, SpecialTokens, generate, score_pairs
from glassformer.models.encoder_decoder import EncoderDecoder

Maker = Callable[..., EncoderDecoder]
PAD, START, END = 0, 1, 2
SOURCES = [[5, 3, 8, 4, 2], [7, 2], [3, 3, 6, 2]]
PENALTIES = [("none", 1.0), ("average", 1.0), ("gnmt", 0.6), ("gnmt", 3.0)]


def penalty(kind: str, length: int, alpha: float) -> float:
    return {"none": 1.0, "average": length**alpha, "gnmt": ((5 + length) / 6) ** alpha}[kind]


@torch.no_grad()
def next_log_probs(model: EncoderDecoder, source: list[int], prefixes: Sequence[Sequence[int]]) -> list[list[float]]:
    """After each prefix, all of one length; computed without a cache."""
    rows = torch.tensor([source]).expand(len(prefixes), -1)
    targets = torch.tensor([[START, *prefix] for prefix in prefixes])
    return model(rows, targets)[:, -1].log_softmax(-1).tolist()


def may_follow(tokens: tuple[int, ...], token: int, prefix: Sequence[int], config: DecodingConfig) -> bool:
    if len(tokens) < len(prefix):
        return token == prefix[len(tokens)]
    if token == END:
        return len(tokens) >= config.min_length
    n, longer = config.no_repeat_ngram, (*tokens, token)
    repeated = n > 0 and any(longer[i : i + n] == longer[-n:] for i in range(len(longer) - n))
    return token not in (PAD, START) and not repeated


class Expected(NamedTuple):
    tokens: tuple[int, ...]
    rank: float
    """Score with the end token."""
    score: float


def textbook_beam(
    model: EncoderDecoder, source: list[int], config: DecodingConfig, prefix: Sequence[int] = ()
) -> list[Expected]:
    """Textbook beam search: of the 2k best extensions, ended ones are finished and the k best others stay live.

    At the maximum length, live hypotheses are cut and ranked as if they had ended.
    """
    live, finished = [((), 0.0)], []
    for length in range(config.max_length + 1):
        extended, ends = [], {}
        over = [penalty(config.length_penalty, n, config.alpha) for n in (length + 1, max(1, length))]
        for (tokens, total), row in zip(live, next_log_probs(model, source, [tokens for tokens, _ in live])):
            allowed = [token for token in range(len(row)) if may_follow(tokens, token, prefix, config)]
            extended += [((*tokens, token), total + row[token]) for token in allowed or [END]]
            ends[tokens] = Expected(tokens, (total + row[END]) / over[0], total / over[1])
        extended = sorted(extended, key=lambda one: -one[1])[: 2 * config.beam_size]
        ended = [tokens[:-1] for tokens, _ in extended if tokens[-1] == END]
        finished += [ends[tokens]._replace(score=ends[tokens].rank) for tokens in ended]
        if length == config.max_length:
            finished += [cut for tokens, cut in ends.items() if tokens not in ended]
        live = [one for one in extended if one[0][-1] != END][: config.beam_size]
        if not live:
            break
    return sorted(finished, key=lambda one: -one.rank)[: config.n_best]


def assert_same(found: list[Hypothesis], expected: list[Expected]) -> None:
    assert [tuple(h.tokens) for h in found] == [one.tokens for one in expected]
    assert [h.score for h in found] == pytest.approx([one.score for one in expected], abs=1e-10)
    assert [h.finish_reason == "length" for h in found] == [one.score != one.rank for one in expected]


@pytest.mark.parametrize(("kind", "alpha"), PENALTIES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_beam_that_holds_every_prefix_is_exhaustive_search(
    make_peaked: Maker, symbols: SpecialTokens, seed: int, kind: str, alpha: float
) -> None:
    """Three words and at most three of them: 27 live prefixes at most, 40 sequences in all."""
    model, source, words, longest = make_peaked(seed, vocab_size=6), [3, 5, 4, 2], (3, 4, 5), 3
    everything = []
    for length in range(longest + 1):
        for tokens in itertools.product(words, repeat=length):
            log_probs = [next_log_probs(model, source, [tokens[:i]])[0][t] for i, t in enumerate((*tokens, END))]
            score = sum(log_probs) / penalty(kind, length + 1, alpha)
            everything.append(Expected(tokens, score, score))
    everything.sort(key=lambda one: -one.score)
    config = DecodingConfig(  # 2k exceeds all prefixes times tokens, so every end is a candidate
        beam_size=2 * len(words) ** longest, patience=0, n_best=20, max_length=longest, length_penalty=kind, alpha=alpha
    )
    assert_same(generate(model, [source], symbols, config)[0], everything[:20])
    best_only = config.model_copy(update={"n_best": 1})
    assert_same(generate(model, [source], symbols, best_only)[0], everything[:1])


VARIANTS = {
    "plain": {},
    "minimum": {"min_length": 4},
    "no repeat": {"no_repeat_ngram": 2},
    "narrow": {"beam_size": 2, "n_best": 2, "no_repeat_ngram": 1, "max_length": 5},
    "n_best": {"beam_size": 6, "n_best": 6, "min_length": 1},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("kind", "alpha"), PENALTIES)
def test_beam_search_equals_search_without_early_stopping(
    make_peaked: Maker, symbols: SpecialTokens, kind: str, alpha: float, variant: str
) -> None:
    values = {"max_length": 9, "patience": 0, "length_penalty": kind, "alpha": alpha, **VARIANTS[variant]}
    config = DecodingConfig.parse(values)
    prefixes = [[], [4], [6, 6, 6]]
    for seed in range(3):
        model = make_peaked(seed)
        for forced in (None, prefixes):
            found = generate(model, SOURCES, symbols, config, forced)
            for source, prefix, hypotheses in zip(SOURCES, forced or [[], [], []], found, strict=True):
                assert_same(hypotheses, textbook_beam(model, source, config, prefix))


class Scripted:
    """Ends at once with probability 0.8; else it is all but certain to say word 3 nineteen times and to end then."""

    steps = 0

    def begin(self, source: Tensor, source_mask: Tensor, use_cache: bool = True) -> "Scripted":
        return self

    def select(self, rows: Tensor) -> None:
        """The past does not matter, its length does."""

    select_sentences = select

    def step(self, tokens: Tensor, state: "Scripted") -> Tensor:
        end = {0: 0.8, 19: 0.998}.get(self.steps, 0.001)
        self.steps += 1
        return torch.tensor([[0.0005, 0.0005, end, 0.999 - end]], dtype=torch.float64).log().repeat(len(tokens), 1)


@pytest.mark.parametrize(
    ("kind", "alpha", "best", "steps"), [("none", 1.0, 0, 1), ("average", 1.0, 19, 20), ("gnmt", 3.0, 19, 20)]
)
def test_beam_search_stops_exactly_when_no_better_hypothesis_is_possible(
    symbols: SpecialTokens, kind: str, alpha: float, best: int, steps: int
) -> None:
    """Divided by its length, the long text wins in the end, though for many steps it looks beaten."""
    model = Scripted()
    config = DecodingConfig(beam_size=2, patience=0, max_length=19, length_penalty=kind, alpha=alpha)
    (hypothesis,) = generate(model, [[3, END]], symbols, config)[0]
    assert hypothesis.tokens == [3] * best
    assert model.steps == steps
    log_prob = math.log(0.199) + 18 * math.log(0.998) + math.log(0.998) if best else math.log(0.8)
    assert hypothesis.score == pytest.approx(log_prob / penalty(kind, best + 1, alpha), abs=1e-10)


@pytest.mark.parametrize(("patience", "steps"), [(0.5, 1), (1.0, 2), (1.5, 3), (2.0, 4), (100.0, 20)])
def test_patience_counts_the_hypotheses_that_ended(symbols: SpecialTokens, patience: float, steps: int) -> None:
    """One ends at each step, and with so long a penalty the search could go on to the end."""
    model = Scripted()
    config = DecodingConfig(beam_size=2, patience=patience, max_length=19, length_penalty="average", alpha=1.0)
    generate(model, [[3, END]], symbols, config)
    assert model.steps == steps


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(make_peaked: Maker, symbols: SpecialTokens, seed: int) -> None:
    model, source, tokens, log_probs = make_peaked(seed), SOURCES[0], [], []
    while END not in tokens and len(tokens) < 10:
        row = next_log_probs(model, source, [tokens])[0]
        tokens.append(max(range(END, len(row)), key=row.__getitem__))
        log_probs.append(row[tokens[-1]])
    cut = tokens[-1] != END
    ((found,),) = generate(model, [source], symbols, DecodingConfig(beam_size=1, max_length=9))
    assert found.tokens == tokens[:-1]
    assert found.finish_reason == ("length" if cut else "end")
    assert found.token_log_probs == pytest.approx(log_probs[:-1] if cut else log_probs, abs=1e-10)


@pytest.mark.parametrize("search", [{"beam_size": 4, "n_best": 4}, {"beam_size": 1}, {"sample": True, "n_best": 4}])
def test_forced_scores_equal_reported_scores(
    make_peaked: Maker, symbols: SpecialTokens, search: dict[str, object]
) -> None:
    model, config = make_peaked(1), DecodingConfig(max_extra=4, alpha=1.3, **search)
    found = [(source, h) for source, hs in zip(SOURCES, generate(model, SOURCES, symbols, config)) for h in hs]
    sources, hypotheses = [source for source, _ in found], [h for _, h in found]
    assert len({len(h.tokens) for h in hypotheses}) > 1
    scored = score_pairs(model, sources, [h.tokens for h in hypotheses], symbols, config)
    assert "length" in {h.finish_reason for h in hypotheses}
    for one, other in zip(hypotheses, scored, strict=True):
        assert one.tokens == other.tokens
        assert other.finish_reason == "end"
        assert one.log_prob == pytest.approx(math.fsum(one.token_log_probs), abs=1e-10)
        if one.finish_reason == "end":
            assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-10)
            assert one.score == pytest.approx(other.score, abs=1e-10)
        else:
            assert one.token_log_probs == pytest.approx(other.token_log_probs[:-1], abs=1e-10)
            length = penalty(config.length_penalty, len(one.tokens), config.alpha)
            assert one.score == pytest.approx(one.log_prob / length, abs=1e-10)
