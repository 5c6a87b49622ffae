import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from glassformer.alignment import alignment_error_rate, read_gold, read_pharaoh, write_pharaoh
from glassformer.errors import DataError

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)
CORPUS = st.lists(st.tuples(LINKS, LINKS, LINKS), min_size=1, max_size=4)


def f1(gold, proposed):
    hits = sum(len(g & p) for g, p in zip(gold, proposed))
    return 2 * hits / (sum(map(len, gold)) + sum(map(len, proposed)))


def test_by_hand():
    """|A∩S| = 1, |A∩P| = 2, |A| = 3, |S| = 2."""
    sure = [{(0, 0), (1, 1)}]
    possible = [{(0, 0), (1, 1), (1, 2)}]
    assert alignment_error_rate(sure, possible, [{(0, 0), (1, 2), (3, 3)}]) == pytest.approx(1 - 3 / 5)


def test_counts_are_pooled_over_the_corpus():
    """One link right of one, and none of three: not the mean of the two sentences' rates."""
    gold = [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}]
    assert alignment_error_rate(gold, gold, [{(0, 0)}, set()]) == pytest.approx(1 - 2 / 5)


@given(CORPUS)
def test_zero_between_sure_and_possible(corpus):
    assume(any(sure for sure, _, _ in corpus))
    sure = [s for s, _, _ in corpus]
    possible = [s | p for s, p, _ in corpus]
    proposed = [s | (p & a) for s, p, a in corpus]
    assert alignment_error_rate(sure, possible, proposed) == 0


@given(CORPUS)
def test_one_when_disjoint(corpus):
    assume(any(sure for sure, _, _ in corpus))
    proposed = [a - s - p for s, p, a in corpus]
    assert alignment_error_rate([s for s, _, _ in corpus], [p for _, p, _ in corpus], proposed) == 1


@given(CORPUS)
def test_one_minus_f1_when_all_is_sure(corpus):
    gold, proposed = [s for s, _, _ in corpus], [a for _, _, a in corpus]
    assume(any(gold) or any(proposed))
    assert alignment_error_rate(gold, gold, proposed) == pytest.approx(1 - f1(gold, proposed))


@given(CORPUS)
def test_bounded_and_sure_links_are_possible(corpus):
    sure, possible, proposed = ([row[i] for row in corpus] for i in range(3))
    assume(any(sure) or any(proposed))
    rate = alignment_error_rate(sure, possible, proposed)
    assert 0 <= rate <= 1
    assert rate == alignment_error_rate(sure, [s | p for s, p in zip(sure, possible)], proposed)


def test_refusals():
    with pytest.raises(DataError, match="1 sentences with sure, 2 with possible and 1 with proposed"):
        alignment_error_rate([set()], [set(), set()], [set()])
    with pytest.raises(DataError, match="undefined"):
        alignment_error_rate([set()], [{(0, 0)}], [set()])


@given(LINKS)
def test_pharaoh_round_trip(links):
    assert read_pharaoh(write_pharaoh(links)) == links


def test_pharaoh_format():
    assert read_pharaoh("0-0 1-2\n") == {(0, 0), (1, 2)}
    assert read_pharaoh("") == frozenset()
    assert write_pharaoh([(10, 0), (2, 1), (2, 0), (2, 1)]) == "2-0 2-1 10-0"


@pytest.mark.parametrize("link", ["0", "0-", "a-b", "0-1-2", "-1-0", "0_1", "0.5-1", "²-1", "٣-1"])
def test_pharaoh_refuses_invalid_links(link):
    with pytest.raises(DataError, match="is not a link"):
        read_pharaoh(f"0-0 {link}")


def test_read_gold_reads_sure_and_possible_links():
    """``1?2`` and ``1p2`` are possible links; a link that is listed as both is sure."""
    (one, empty) = read_gold(["0-0 1?2 2p2 1-1 1?1", ""], [(3, 3), (1, 1)])
    assert one.sure == {(0, 0), (1, 1)}
    assert one.possible == {(0, 0), (1, 1), (1, 2), (2, 2)}
    assert empty == (frozenset(), frozenset())


def test_read_gold_reads_the_shared_task_format():
    """Indices from 1, sure by default, optional confidence; word 0 marks words without a partner."""
    lines = ["0001 1 1 S", "1 2 3 P 0.7", "", "0003 1 2", "3 2 0 S", "3 0 1 P", "3 2 2 1.0"]
    first, second, third = read_gold(lines, [(2, 3), (5, 5), (2, 2)])
    assert first == ({(0, 0)}, {(0, 0), (1, 2)})
    assert second == (frozenset(), frozenset())
    assert third == ({(0, 1), (1, 1)}, {(0, 1), (1, 1)})


def test_alignment_error_rate_of_a_gold_file_matches_hand_calculation():
    """|S| = 3, |A| = 4, |A∩S| = 2, |A∩P| = 3: 1 - 5 / 7."""
    gold = read_gold(["1 1 1 S", "1 2 2 P", "2 1 1 S", "2 2 2 S"], [(2, 2), (2, 3)])
    proposed = [read_pharaoh("0-0 1-1"), read_pharaoh("0-0 1-2")]
    rate = alignment_error_rate([one.sure for one in gold], [one.possible for one in gold], proposed)
    assert rate == pytest.approx(1 - 5 / 7)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0", "0!0"], "line 2: '0!0' is not a link; write source-target word indices from 0, such as 0-0 1-2, or"),
        (["0-0", "1?2"], "line 2: 1-2 is out of range: the sentence has 1 source and 2 target words, counted from 0"),
        (["0-0"], "has 1 lines, but the text has 2; give one line for each sentence"),
        (["1 1 1", "1 2 x"], "line 2: '1 2 x' is not a link; write sentence, source word and target word counted"),
        (["1 1 1", "2 2 1 S"], "line 2: 2-1 is out of range: the sentence has 1 source and 2 target words, counted"),
        (["1 1 1", "3 1 1 S"], "line 2: sentence 3 is out of range; choose from 1 to 2"),
        (["0 1 1"], "line 1: sentence 0 is out of range; choose from 1 to 2"),
    ],
)
def test_read_gold_names_the_invalid_line(lines, message):
    with pytest.raises(DataError) as caught:
        read_gold(lines, [(1, 1), (1, 2)])
    assert str(caught.value).startswith(message)
