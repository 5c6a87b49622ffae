import re

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.errors import ConfigError, DataError
from glassformer.metrics import bleu, chrf, exact_match

REFERENCES = ["The cat is on the old table.", "We didn't see it.", "Nobody had told him so."]
HYPOTHESES = ["The cat is on the table.", "We have not seen it.", "Nobody told him so."]
SENTENCES = st.lists(st.text("abc .", min_size=1, max_size=20), min_size=1, max_size=5)


def test_scores_are_those_of_sacrebleu():
    assert bleu(HYPOTHESES, REFERENCES).score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert 0 < bleu(HYPOTHESES, REFERENCES).score < 100
    assert chrf(HYPOTHESES, REFERENCES).score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert [metric(REFERENCES, REFERENCES).score for metric in (bleu, chrf)] == pytest.approx([100, 100])
    assert chrf(["x"], ["y"]).score == bleu(["x"], ["y"]).score == 0


def test_bleu_by_hand():
    """5 of 6 unigrams, 2 of 5 bigrams, 1 of 4 trigrams, 0 of 3 4-grams, counted as 1/2; equal lengths."""
    score = bleu(["a b c d x e"], ["a b c y d e"], tokenize="none").score
    assert score == pytest.approx(100 * (5 / 6 * 2 / 5 * 1 / 4 * 1 / 6) ** 0.25)


def test_signatures_are_complete():
    version = f"version:{sacrebleu.__version__}"
    assert bleu(HYPOTHESES, REFERENCES).signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    lowered = bleu(HYPOTHESES, REFERENCES, tokenize="intl", lowercase=True).signature
    assert lowered == f"nrefs:1|case:lc|eff:no|tok:intl|smooth:exp|{version}"
    assert chrf(HYPOTHESES, REFERENCES).signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"


def test_lowercase_and_tokenization_are_used():
    upper = [sentence.upper() for sentence in REFERENCES]
    assert bleu(upper, REFERENCES).score < bleu(upper, REFERENCES, lowercase=True).score == pytest.approx(100)
    assert bleu(["so it is so ."], ["so it is so."]).score == pytest.approx(100)
    assert bleu(["so it is so ."], ["so it is so."], tokenize="none").score < 100


def test_tokenized_text_is_scored_without_noise(caplog, capsys):
    tokenized = ["this is a test ."] * 200
    assert bleu(tokenized, tokenized).score == pytest.approx(100)
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("metric", [bleu, chrf, exact_match])
def test_refusals(metric):
    with pytest.raises(DataError, match="1 hypotheses but 2 references"):
        metric(["a"], ["a", "b"])
    with pytest.raises(DataError, match="give at least one"):
        metric([], [])


def test_unknown_tokenization_is_refused():
    with pytest.raises(ConfigError, match=re.escape("tokenize='moses' is not known; choose from 13a, char, intl")):
        bleu(["a"], ["a"], tokenize="moses")


@settings(max_examples=50, deadline=None)
@given(SENTENCES, st.randoms(use_true_random=False))
def test_scores_are_bounded_and_do_not_depend_on_the_order_of_sentences(references, random):
    hypotheses = random.sample(references, len(references))
    order = random.sample(range(len(references)), len(references))
    for metric in (bleu, chrf):
        score = metric(hypotheses, references).score
        assert 0 <= score <= 100 + 1e-9
        shuffled = metric([hypotheses[i] for i in order], [references[i] for i in order]).score
        assert shuffled == pytest.approx(score)
