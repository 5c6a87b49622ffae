"""Rates by class, averages, confusion and spans: known answers and identities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import DataError
from glassformer.metrics.class_report import Confusion, Span, mark_spans, set_report, span_report, spans

LABELS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=1, max_size=30)


def test_class_report_matches_hand_calculation() -> None:
    """a: 2 correct, 4 predicted, 2 true; b: 1 correct, 2 predicted, 3 true; c is never predicted."""
    confusion = Confusion.of(list("aabaab"), list("aabbbc"))
    assert confusion.labels == ("a", "b", "c")
    assert confusion.counts.tolist() == [[2, 0, 0], [2, 1, 0], [0, 1, 0]]
    report = confusion.report()
    assert report.classes["a"] == pytest.approx((2 / 4, 1, 2 / 3, 2))
    assert report.classes["b"] == pytest.approx((1 / 2, 1 / 3, 2 / 5, 3))
    assert report.classes["c"] == (0, 0, 0, 1)
    assert report.averages["macro"] == pytest.approx((1 / 3, 4 / 9, (2 / 3 + 2 / 5) / 3, 6))
    assert report.averages["weighted"] == pytest.approx((2.5 / 6, 1 / 2, (4 / 3 + 6 / 5) / 6, 6))
    assert report.averages["micro"] == pytest.approx((1 / 2, 1 / 2, 1 / 2, 6))
    assert confusion.errors() == [("b", "a", 2), ("c", "b", 1)]
    assert confusion.shares().tolist() == pytest.approx(np.array([[1, 0, 0], [2 / 3, 1 / 3, 0], [0, 1, 0]]))


@given(LABELS)
def test_micro_rates_equal_accuracy_for_single_labels(pairs: list[tuple[str, str]]) -> None:
    predicted, true = map(list, zip(*pairs))
    confusion = Confusion.of(predicted, true)
    report = confusion.report()
    accuracy = sum(one == other for one, other in pairs) / len(pairs)
    assert confusion.accuracy == pytest.approx(accuracy)
    assert report.averages["micro"] == pytest.approx((accuracy, accuracy, accuracy, len(pairs)))
    assert report.averages["weighted"].recall == pytest.approx(accuracy)
    assert sum(rates.support for rates in report.classes.values()) == len(pairs)
    swapped = Confusion.of(true, predicted).report()
    for name, rates in report.classes.items():
        assert swapped.classes[name][:3] == pytest.approx((rates.recall, rates.precision, rates.f1))


def test_class_report_omits_absent_labels_and_keeps_the_order() -> None:
    confusion = Confusion.of(["x", "a"], ["a", "a"], labels=("x", "never", "a"))
    assert confusion.labels == ("x", "a")
    with pytest.raises(DataError, match="label 'b' is not one of 1 labels"):
        Confusion.of(["a"], ["b"], labels=("a",))
    with pytest.raises(DataError, match="1 predictions but 2 labels"):
        Confusion.of(["a"], ["a", "b"])


def test_span_report_matches_a_known_entity_example() -> None:
    """The first span has a correct end but a wrong start, so only the second span counts."""
    true = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    predicted = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    report = span_report(predicted, true)
    assert report.classes == {"MISC": (0, 0, 0, 1), "PER": (1, 1, 1, 1)}
    assert report.averages["micro"] == (0.5, 0.5, 0.5, 2)
    assert report.averages["macro"].f1 == 0.5


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-X I-X B-X O I-X", [("X", 0, 2), ("X", 2, 3), ("X", 4, 5)]),  # IOB2, and an I without a preceding B
        ("I-X I-X B-X I-Y", [("X", 0, 2), ("X", 2, 3), ("Y", 3, 4)]),  # IOB1: B separates adjacent spans of one type
        ("S-X B-X I-X E-X I-X", [("X", 0, 1), ("X", 1, 4), ("X", 4, 5)]),  # BIOES
        ("U-X B-X L-X O", [("X", 0, 1), ("X", 1, 3)]),  # BILOU
        ("B-X I-Y E-X", [("X", 0, 1), ("Y", 1, 2), ("X", 2, 3)]),  # mismatched types
        ("B-X", [("X", 0, 1)]),
        ("O O", []),
        ("NOUN B-a-b I-a-b", [("a-b", 1, 3)]),
    ],
)
def test_spans_reads_every_tag_scheme(tags: str, expected: list[tuple[str, int, int]]) -> None:
    assert spans(tags.split()) == [Span(*one) for one in expected]


@given(st.lists(st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIESLU" for kind in "XY")]), max_size=12))
def test_spans_are_ordered_and_disjoint(tags: list[str]) -> None:
    found = spans(tags)
    covered = [place for span in found for place in range(span.start, span.end)]
    assert covered == [place for place, tag in enumerate(tags) if tag != "O"]
    for span in found:
        assert {tags[place][2:] for place in range(span.start, span.end)} == {span.kind}
    as_iob2 = ["O"] * len(tags)
    for span in found:
        as_iob2[span.start : span.end] = [f"B-{span.kind}", *[f"I-{span.kind}"] * (span.end - span.start - 1)]
    assert spans(as_iob2) == found


def test_span_report_distinguishes_sentences() -> None:
    report = span_report([["B-X"], ["O"]], [["B-X"], ["B-X"]])
    assert report.classes["X"] == pytest.approx((1, 1 / 2, 2 / 3, 2))
    assert span_report([["O"]], [["O"]]).averages["micro"] == (0, 0, 0, 0)
    assert set_report([("a", 1)], []).classes == {"a": (0, 0, 0, 0)}


def test_prefixed_tags_are_recognized() -> None:
    assert mark_spans(["O", "B-PER", "I-PER"])
    assert mark_spans(["I-NP", "O"])
    assert not mark_spans(["NOUN", "VERB", "O"])
    assert not mark_spans(["B-PER", "X"])
    assert not mark_spans(["O"])
