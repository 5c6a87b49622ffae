"""``glassformer.explore`` in a notebook: every number of one sentence, in a frame that needs no server."""

from pathlib import Path

from glassformer.errors import DataError
from glassformer.explain.example import Example
from glassformer.explain.tour import Page, report
from glassformer.explain.trace import Trace
from glassformer.predict.translator import Translator
from glassformer.web.explorer.selection import Selection
from glassformer.web.explorer.session import Session
from glassformer.web.settings import WebSettings


def explore(of: str | Path | Translator | Example, text: str | None = None, second: str | None = None) -> Page:
    """The offline page of one input, which a notebook displays in a frame; ``save(path)`` writes it.

    ``of`` is a run or checkpoint folder, a ``Translator``, or an example that ``examine`` returned, with its edits.
    Without ``text`` a sentence of the run's validation file is chosen, as ``glassformer explore RUN`` does. ``second``
    is a translation to use instead of the model's own, or the second text of a pair. Nothing is requested over the
    network. Raises ``DataError`` for a bare trace, which has no words.
    """
    if isinstance(of, Trace):
        raise DataError("of is a trace, which has no words; give an example: glassformer.examine(translator, text)")
    if text is not None or not isinstance(of, str | Path | Translator):
        return report(of, text, second)
    if second is not None:
        raise DataError("second is given without text; give both")
    return report(_first_example(of))


def _first_example(of: str | Path | Translator) -> Example:
    """The example of the first view of the explorer."""
    if not isinstance(of, Translator):
        return Session(Path(of), WebSettings()).examine(Selection(), []).example
    if not of.checkpoints:
        raise DataError("this translator was not loaded from a run, so it has no sentence of its own; give text")
    checkpoint = of.checkpoints[0]
    folder = checkpoint.parent.parent
    if not (folder / "config.toml").is_file():
        return Session(checkpoint, WebSettings()).examine(Selection(), []).example
    return Session(folder, WebSettings()).examine(Selection(checkpoint=checkpoint.name), []).example
