"""The summary at the top of a page: the most probable outputs, the attention, and a line for each step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from glassformer.explain.matrix import Label
from glassformer.explain.page.links import Alignment
from glassformer.explain.walkthrough.step import Step, TracedMatrix

MAX_LINKS = 16
"""Maximum number of target words that the summary lists."""


class OutputProbability(NamedTuple):
    """A possible output and its probability."""

    text: str
    probability: float


@dataclass(frozen=True)
class PageSummary:
    """Steps, candidates under a ``title``, and ``links``: pairs of a target word and its source word."""

    steps: tuple[tuple[Step, bool], ...]
    """Each step of the walkthrough, and True if all of its checks passed."""
    title: str
    candidates: tuple[OutputProbability, ...]
    links: tuple[tuple[Label, Label], ...]
    further_links: int


def summary_of(steps: Sequence[Step], failed: Sequence[bool], alignment: Alignment | None) -> PageSummary:
    """Summarize ``steps``; ``failed`` is True for each step with a check that failed."""
    passed = tuple((step, not wrong) for step, wrong in zip(steps, failed, strict=True))
    title, candidates = _candidates(steps[-1])
    links = _links(alignment)
    return PageSummary(passed, title, candidates, links[:MAX_LINKS], max(0, len(links) - MAX_LINKS))


def _candidates(last: Step) -> tuple[str, tuple[OutputProbability, ...]]:
    """Title and outputs at the position that the last step explains, most probable first."""
    tables = [table for table in last.tables if table.name.endswith(".probabilities")]
    if not tables or last.evaluation is None:
        return "", ()
    table = tables[-1]
    if not table.columns.name:
        labels, values = table.rows.labels, table.values[:, 0]
        title = f"The {table.rows.title}"
    else:
        row = _row(table, dict(last.evaluation.place.index).get(table.rows.name, 0))
        labels, values = table.columns.labels, table.values[row]
        title = f"After {table.rows.labels[row].visible}"
    found = [OutputProbability(label.visible, value) for label, value in zip(labels, values.tolist(), strict=True)]
    return title, tuple(sorted(found, key=lambda one: -one.probability)[:5])


def _row(table: TracedMatrix, index: int) -> int:
    """Row of ``table`` for this index of its axis; the last row if the table was truncated before it."""
    indices = list(table.rows.indices)
    return indices.index(index) if index in indices else len(indices) - 1


def _links(alignment: Alignment | None) -> tuple[tuple[Label, Label], ...]:
    """Pairs of target and source word, from the last layer at the steps that predict the target words."""
    if alignment is None:
        return ()
    naive = alignment.layers[-1].readings[0].links
    ordered = sorted(naive, key=lambda link: link.target)
    return tuple((alignment.target[link.target].label, alignment.source[link.source].label) for link in ordered)
