"""A selection with its traces, and results of analyses of them that take long."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from glassformer.explain.example import Example
from glassformer.web.explorer.interventions import Intervention
from glassformer.web.explorer.models import ExploredModel
from glassformer.web.explorer.runs import ExploredRun
from glassformer.web.explorer.selection import Selection

Result = TypeVar("Result")
RESULTS_IN_MEMORY = 64
SMALL = 5e7
"""Parameters times tokens of an input whose analyses are part of its first view; those of others follow it."""


class ViewInterruptedError(Exception):
    """Another view was asked for while this analysis was computed."""


class ResultStore:
    """Results of analyses in memory. ``is_waited_for`` is true while another view waits for the worker."""

    def __init__(self, is_waited_for: Callable[[], bool]) -> None:
        self.is_waited_for = is_waited_for
        self._results: OrderedDict[tuple[object, ...], object] = OrderedDict()

    def find(self, key: tuple[object, ...], compute: Callable[[], Result] | None) -> Result | None:
        """The result of ``key``, from memory or computed now; None without ``compute``.

        ``ViewInterruptedError`` if another view waits: this one is not written to its end, which would delay it.
        """
        if key not in self._results:
            if compute is None:
                return None
            self._results[key] = compute()
        self._results.move_to_end(key)
        while len(self._results) > RESULTS_IN_MEMORY:
            self._results.popitem(last=False)
        return self._results[key]  # type: ignore[return-value]


class AnalysisResults(NamedTuple):
    """The store, and the key of the model and the input, without interventions."""

    store: ResultStore
    key: tuple[object, ...]


@dataclass(frozen=True)
class TracedSelection:
    """A selection with everything chosen, and its example."""

    selection: Selection
    example: Example
    original: Example
    """The example without interventions."""
    interventions: tuple[Intervention, ...]
    explored: ExploredModel
    run: ExploredRun
    checkpoint: Path
    """Folder of the loaded checkpoint."""
    donor: Example | None
    """The second sentence of the lab, with the target of the first one."""
    results: AnalysisResults = field(compare=False)
    notes: list[str] = field(default_factory=list, compare=False)
    """Notes of the page; a panel adds one for each value that it had to change."""
    complete: bool = True
    """True if the view contains every analysis; else those that take long follow in a second answer."""

    @property
    def is_small(self) -> bool:
        """True if an analysis delays the view by little."""
        tokens = sum(len(side.tokens) for side in self.original.sides)
        return tokens * sum(one.numel() for one in self.original.model.parameters()) <= SMALL

    def result(self, key: tuple[object, ...], compute: Callable[[], Result]) -> Result | None:
        """The result of an analysis, from memory or computed now; None if it follows in a second answer."""
        now = self.complete or self.is_small
        return self.results.store.find((*self.results.key, *key), compute if now else None)

    def give_way(self) -> None:
        """End a long analysis if another view waits; it is computed later."""
        if not self.is_small and self.results.store.is_waited_for():
            raise ViewInterruptedError
