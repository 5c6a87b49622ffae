import random

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from glassformer.errors import ConfigError, DataError
from glassformer.metrics import bleu, chrf, paired_bootstrap

WORDS = ("the", "a", "dog", "cat", "man", "sees", "bites", "hears", "old", "small", "big", "one")


def corrupt(sentences, rate, seed):
    draw = random.Random(seed)
    return [" ".join(w if draw.random() > rate else draw.choice(WORDS) for w in line.split()) for line in sentences]


@pytest.fixture(scope="module")
def references():
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) for _ in range(60)]


@pytest.mark.parametrize("rates", [(0.2, 0.2), (0.2, 0.25), (0.3, 0.2)])
def test_agrees_with_sacrebleu(references, rates, monkeypatch):
    """Same statistic and same random numbers; only its single precision differs."""
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    first, second = corrupt(references, rates[0], 1), corrupt(references, rates[1], 2)
    compared = paired_bootstrap(references, first, second, samples=200)
    systems = [("first", first), ("second", second)]
    signatures, scores = PairedTest(systems, {"BLEU": BLEU(), "chrF": CHRF()}, [references], "bs", n_samples=200)()
    for name, theirs in (("bleu", "BLEU"), ("chrf", "chrF2")):
        assert compared[name].first == pytest.approx(scores[theirs][0].score)
        assert compared[name].second == pytest.approx(scores[theirs][1].score)
        assert compared[name].p_value == pytest.approx(scores[theirs][1].p_value)
        assert compared[name].signature == signatures[theirs].format()


def test_scores_are_those_of_the_metrics(references):
    first, second = corrupt(references, 0.1, 1), corrupt(references, 0.3, 2)
    compared = paired_bootstrap(references, first, second, samples=50, tokenize="none", lowercase=True)
    assert compared["bleu"].first == pytest.approx(bleu(first, references, "none", lowercase=True).score)
    assert compared["chrf"].second == pytest.approx(chrf(second, references).score)
    assert "tok:none" in compared["bleu"].signature
    assert "case:lc" in compared["bleu"].signature


def test_a_clear_difference_is_significant_and_swaps_its_sign(references):
    good, bad = corrupt(references, 0.05, 1), corrupt(references, 0.6, 2)
    forward = paired_bootstrap(references, good, bad, samples=200)
    backward = paired_bootstrap(references, bad, good, samples=200)
    for name in ("bleu", "chrf"):
        assert forward[name].p_value == pytest.approx(1 / 201) == backward[name].p_value
        low, high = forward[name].interval
        assert low < forward[name].difference < high < 0
        assert backward[name].difference == pytest.approx(-forward[name].difference)
        assert backward[name].interval == pytest.approx((-high, -low))


def test_a_system_does_not_differ_from_itself(references):
    same = corrupt(references, 0.2, 1)
    for comparison in paired_bootstrap(references, same, same, samples=50).values():
        assert comparison.p_value == 1
        assert comparison.difference == 0
        assert comparison.interval == (0, 0)


def test_the_seed_decides(references):
    first, second = corrupt(references, 0.2, 1), corrupt(references, 0.22, 2)
    runs = [paired_bootstrap(references, first, second, samples=100, seed=seed)["bleu"] for seed in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0].interval != runs[2].interval


def test_refusals(references):
    with pytest.raises(DataError, match="1 hypotheses of the second system but 60 references"):
        paired_bootstrap(references, references, ["a"])
    with pytest.raises(DataError, match="give at least one"):
        paired_bootstrap([], [], [])
    with pytest.raises(ConfigError, match="samples=0"):
        paired_bootstrap(references, references, references, samples=0)
    with pytest.raises(ConfigError, match="seed=-1"):
        paired_bootstrap(references, references, references, seed=-1)
