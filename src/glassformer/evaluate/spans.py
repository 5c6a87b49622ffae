"""Spans of words from tags such as B-PER and I-PER, compared as wholes (Tjong Kim Sang and Buchholz 2000).

A span counts as correct when its type and both of its ends are. The schemes IOB1, IOB2 (BIO), BIOES and BILOU are read
by one set of rules, those of the CoNLL shared tasks, in which every sequence of tags means something: an I that cannot
go on with the span before it begins another.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from glassformer.evaluate.accuracy import check_parallel
from glassformer.evaluate.class_report import ClassReport, set_report

_TAG = re.compile(r"([BIESLU])-(.+)", re.DOTALL)
OUTSIDE = "O"


class Span(NamedTuple):
    """Words ``start`` to ``end`` (exclusive), counted from 0."""

    kind: str
    start: int
    end: int


def mark_spans(tags: Sequence[str]) -> bool:
    """True if every tag is O or a prefix with a type, and some tag opens or continues a span."""
    found = {tag for tag in tags if tag != OUTSIDE}
    return any(tag[:2] in ("B-", "I-") for tag in found) and all(_TAG.fullmatch(tag) for tag in found)


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence, in order. A tag that has no prefix is outside of any."""
    found: list[Span] = []
    kind, start = "", -1  # of the span that is open; -1: none is
    for place, tag in enumerate([*tags, OUTSIDE]):
        match = _TAG.fullmatch(tag)
        prefix, named = (match[1], match[2]) if match else (OUTSIDE, "")
        begins = prefix in "BSU" or (match is not None and (start < 0 or named != kind))
        if start >= 0 and (match is None or begins):
            found.append(Span(kind, start, place))
            start = -1
        if begins:
            kind, start = named, place
        if prefix in "ESLU":
            found.append(Span(kind, start, place + 1))
            start = -1
    return found


def span_report(predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]) -> ClassReport:
    """Precision, recall and F1 of whole spans by type, over sentences of tags.

    ``micro`` is the F1 that papers on named entities and chunks report.
    """
    check_parallel(predicted, true, ("predicted sentences", "tagged sentences"))
    found, expected = (
        [(span.kind, (number, span)) for number, tags in enumerate(side) for span in spans(tags)]
        for side in (predicted, true)
    )
    return set_report(found, expected)
