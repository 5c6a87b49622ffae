"""Edit distance, WER, CER, TER and exact match: known answers and distance properties."""

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import ConfigError, DataError
from glassformer.metrics import METRICS, cer, corpus_scores, edit_distance, paired_bootstrap, ter, wer
from glassformer.metrics.corpus_metrics import corpus_metrics
from glassformer.metrics.translation import EXTRAS, TOKENIZERS

STRINGS = st.text("ab ", max_size=9)


def by_table(first: str, second: str) -> int:
    """Edit distance by the table of Wagner and Fischer (1974)."""
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("kitten", "sitting", 3),
        ("intention", "execution", 5),
        ("saturday", "sunday", 3),
        ("", "abc", 3),
        ("abc", "", 3),
        ("", "", 0),
        ("né", "ne\u0301", 2),  # characters are code points
    ],
)
def test_edit_distance_matches_known_answers(first: str, second: str, distance: int) -> None:
    assert edit_distance(first, second) == distance
    assert edit_distance(second, first) == distance


@given(STRINGS, STRINGS)
def test_edit_distance_equals_the_wagner_fischer_table(first: str, second: str) -> None:
    assert edit_distance(first, second) == by_table(first, second)


def test_edit_distance_handles_texts_longer_than_a_machine_word() -> None:
    words = [f"w{number}" for number in range(300)]
    assert edit_distance(words, words[:100] + words[101:]) == 1
    assert edit_distance(words, ["x", *words[1:150], "y", *words[150:]]) == 2


def test_wer_matches_hand_calculation() -> None:
    """A substitution and a deletion in 6 words, an insertion in 2: 3 / 8. Case and punctuation count."""
    references = ["the cat sat on the mat", "Good day"]
    assert wer(["the cat sit on mat", "Good old day"], references).score == 100 * 3 / 8
    assert wer(["the cat sat on the mat.", "good day"], references).score == 100 * 2 / 8
    assert wer(["the  cat sat on\tthe mat ", "Good day"], references).score == 0
    assert wer(["a b c"], ["a"]).score == 200
    assert wer([""], ["a b"]).score == 100


def test_cer_matches_hand_calculation() -> None:
    """Spaces count as characters: 1 edit in 5 characters, and 1 in 3."""
    assert cer(["ab  c", "xyz"], ["ab cd", "xyz"]).score == 100 * 2 / 8
    assert cer(["東京都"], ["東京"]).score == 50
    assert cer(["A"], ["a"]).score == 100


def test_error_rates_of_empty_references_equal_ter() -> None:
    for metric in (wer, cer, ter):
        assert metric(["", ""], ["", ""]).score == 0
        assert metric(["a", ""], ["", ""]).score == 100


def test_ter_equals_sacrebleu() -> None:
    hypotheses, references = ["on the mat sat the cat", "a dog"], ["the cat sat on the mat", "A dog"]
    assert ter(hypotheses, references).score == sacrebleu.metrics.TER().corpus_score(hypotheses, [references]).score
    assert ter(hypotheses, references).score == pytest.approx(100 * 2 / 8)  # two shifts; case is ignored
    version = f"version:{sacrebleu.__version__}"
    assert ter(hypotheses, references).signature == f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|{version}"


def test_error_rate_signatures_state_no_normalization() -> None:
    assert wer(["a"], ["a"]).signature == "nrefs:1|case:mixed|unit:word|norm:no"
    assert cer(["a"], ["a"]).signature == "nrefs:1|case:mixed|unit:char|norm:no"


def test_corpus_scores_equal_the_single_metrics() -> None:
    hypotheses, references = ["a b c d e", "x"], ["a b c d e", "y"]
    found = corpus_scores(corpus_metrics(METRICS, "none"), hypotheses, references)
    assert list(found) == ["bleu", "chrf", "ter", "wer", "cer", "exact"]
    assert found["exact"] == (50, "nrefs:1|case:mixed|unit:line|norm:no")
    assert found["wer"] == wer(hypotheses, references)
    assert found["cer"] == cer(hypotheses, references)
    assert found["ter"] == ter(hypotheses, references)
    assert found["bleu"].score == pytest.approx(
        sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score
    )
    with pytest.raises(ConfigError, match=r"'blue' is not a metric; did you mean bleu\?"):
        corpus_metrics(["chrf", "blue"])
    with pytest.raises(DataError, match="1 hypotheses but 2 references"):
        corpus_scores(corpus_metrics(["wer"]), ["a"], references)


def test_paired_bootstrap_supports_every_metric() -> None:
    references = [f"{number} the dog sees a small cat" for number in range(40)]
    worse = [line.replace("small", "big") if number % 2 else line for number, line in enumerate(references)]
    found = paired_bootstrap(references, references, worse, samples=100, metrics=METRICS)
    assert list(found) == list(METRICS)
    for name, one in found.items():
        error_rate = name in ("ter", "wer", "cer")
        assert one.first == pytest.approx(0 if error_rate else 100)
        assert (one.difference > 0) == error_rate
        assert one.p_value == pytest.approx(1 / 101)
    assert found["wer"].second == pytest.approx(100 * 20 / 280)
    assert found["exact"].second == 50
    assert found["wer"].signature == "nrefs:1|case:mixed|unit:word|norm:no|seed:12345|bs:100"


@pytest.mark.parametrize("tokenize", TOKENIZERS)
def test_bleu_of_equal_texts_is_100_with_every_tokenizer(tokenize: str) -> None:
    if tokenize in EXTRAS:
        pytest.importorskip("MeCab" if tokenize == "ja-mecab" else "mecab_ko")
    line = "東京の天気は 晴れ です 。 서울의 날씨"
    found = corpus_scores(corpus_metrics(["bleu"], tokenize), [line], [line])["bleu"]
    assert found.score == pytest.approx(100)
    assert f"tok:{tokenize}" in found.signature
