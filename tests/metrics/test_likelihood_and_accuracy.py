import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import DataError
from glassformer.metrics import accuracy, bits_per_character, exact_match, perplexity


@given(st.integers(1, 100_000), st.integers(1, 10_000))
def test_a_uniform_model_is_as_perplexed_as_its_vocabulary_is_large(vocab_size, tokens):
    assert perplexity(tokens * math.log(vocab_size), tokens) == pytest.approx(vocab_size)


def test_known_values():
    assert perplexity(0.0, 7) == 1
    assert perplexity(1e6, 1) == math.inf
    assert math.isnan(perplexity(math.nan, 1))
    assert bits_per_character(8 * math.log(2), 4) == pytest.approx(2)
    assert bits_per_character(10 * math.log(256), 10) == pytest.approx(8)


def test_perplexity_and_bits_are_one_quantity():
    assert math.log2(perplexity(123.4, 50)) == pytest.approx(bits_per_character(123.4, 50))


@pytest.mark.parametrize("count", [0, -1])
def test_means_over_no_tokens_are_refused(count):
    with pytest.raises(DataError, match=f"tokens={count}"):
        perplexity(1.0, count)
    with pytest.raises(DataError, match=f"characters={count}"):
        bits_per_character(1.0, count)


def test_accuracy():
    assert accuracy([1, 2, 3, 4], [1, 2, 0, 4]) == 0.75
    assert accuracy(["a"], ["b"]) == 0
    with pytest.raises(DataError, match="1 predictions but 2 labels"):
        accuracy([1], [1, 2])


def test_exact_match_counts_whole_sentences():
    assert exact_match(["je t' aime", "je dors"], ["je t' aime", "je dors."]) == 0.5
    assert exact_match(["É"], ["é"]) == 0
