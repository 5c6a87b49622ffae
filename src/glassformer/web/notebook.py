"""``glassformer.explore`` in a notebook: the live page where anywidget is installed, else a report in a frame."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from glassformer.errors import DataError
from glassformer.explain.example import Example
from glassformer.explain.tour import Page, report
from glassformer.explain.trace import Trace
from glassformer.predict.loading import task_at
from glassformer.predict.translator import Translator
from glassformer.web.explorer.selection import Mode, Selection
from glassformer.web.explorer.session import Session
from glassformer.web.settings import READ_TEXTS, WebSettings

NEEDED = ("anywidget", "fastapi")
"""Packages of the live page."""


class LivePage(Page):
    """An offline report of one input, which a notebook displays as the live page; ``save`` writes the report."""

    _run: Path
    _view: Selection
    _widget: Any = None

    @classmethod
    def of(cls, page: Page, run: Path, view: Selection) -> Self:
        """The report of ``page``, and the live page of ``run`` at ``view``."""
        made = cls(page)
        made._run, made._view = run, view
        return made

    @property
    def widget(self) -> Any:
        """The widget; the model is loaded when it is first asked for."""
        if self._widget is None:
            self._widget = import_module("glassformer.web.widget").ExplorerWidget(self._run, self._view.address)
        return self._widget

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, and the report for programs that display no widgets."""
        output = self.widget._repr_mimebundle_(**options)
        data, metadata = output if isinstance(output, tuple) else (output or {}, {})
        bundle: Mapping[str, Any] = {**data, "text/plain": repr(self), "text/html": self._repr_html_()}
        return bundle, metadata


def explore(of: str | Path | Translator | Example, text: str | None = None, second: str | None = None) -> Page:
    """The page of one input, which a notebook displays; ``save(path)`` writes it as one file.

    ``of`` is a run or checkpoint folder, a ``Translator``, or an example that ``examine`` returned, with its edits.
    Without ``text`` a sentence of the run's validation file is chosen, as ``glassformer explore RUN`` does. ``second``
    is a translation to use instead of the model's own, or the second text of a pair. With the extra ``notebook``,
    a run has the live page of ``glassformer explore``, for which its checkpoint is loaded again; an example has an
    offline report. Nothing is requested over the network. Raises ``DataError`` for a bare trace, which has no words.
    """
    if isinstance(of, Trace):
        raise DataError("of is a trace, which has no words; give an example: glassformer.examine(translator, text)")
    if text is not None or not isinstance(of, str | Path | Translator):
        page, view = report(of, text, second), Selection(source=text or "", target=second or "")
    elif second is not None:
        raise DataError("second is given without text; give both")
    else:
        page, view = report(_first_example(of)), Selection()
    if isinstance(of, Example) or not all(map(find_spec, NEEDED)):
        return page
    place = _place(of)
    if place is None or (text is not None and task_at(place[0]) not in READ_TEXTS):
        return page
    mode: Mode = "forced" if second is not None else "beam"
    return LivePage.of(page, place[0], replace(view, mode=mode, checkpoint=place[1]))


def _first_example(of: str | Path | Translator) -> Example:
    """The example of the first view of the explorer."""
    place = _place(of)
    if place is None:
        raise DataError("this translator was not loaded from a run, so it has no sentence of its own; give text")
    return Session(place[0], WebSettings()).examine(Selection(checkpoint=place[1]), []).example


def _place(of: str | Path | Translator) -> tuple[Path, str] | None:
    """The run and the checkpoint of a view; None for a translator that was not loaded from a folder."""
    if not isinstance(of, Translator):
        return Path(of), ""
    if not of.checkpoints:
        return None
    checkpoint = of.checkpoints[0]
    folder = checkpoint.parent.parent
    return (folder, checkpoint.name) if (folder / "config.toml").is_file() else (checkpoint, "")
