"""Spans of words from tags such as B-PER and I-PER, and their comparison (Tjong Kim Sang and Buchholz 2000).

A span is correct if its type and both of its ends are correct. One set of rules reads the schemes IOB1, IOB2 (BIO),
BIOES and BILOU: that of the CoNLL shared tasks. It accepts every sequence of tags: an I that cannot continue the
previous span begins a new one.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from glassformer.metrics.class_report import ClassReport, check_parallel, set_report

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
    """The spans of one sentence, in order. A tag without a prefix is outside all spans."""
    found: list[Span] = []
    kind, start = "", -1  # the open span; -1: none
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
    """Precision, recall and F1 of spans by type, over sentences of tags.

    ``micro`` is the F1 that papers on named entities and chunks report.
    """
    check_parallel(predicted, true, ("predicted sentences", "tagged sentences"))
    found, expected = (
        [(span.kind, (number, span)) for number, tags in enumerate(side) for span in spans(tags)]
        for side in (predicted, true)
    )
    return set_report(found, expected)
