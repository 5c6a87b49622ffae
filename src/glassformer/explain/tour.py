"""Walkthrough and report in one call, from a run, a translator or an example."""

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Self

from glassformer.errors import DataError
from glassformer.explain.example import Example, ExampleInput, examine_run
from glassformer.explain.examples.text import examine
from glassformer.explain.report import report as page_of
from glassformer.explain.walkthrough.step import Step
from glassformer.explain.walkthrough.walkthrough import walkthrough as steps_of
from glassformer.predict.translator import Translator
from glassformer.text.arguments import one_text

HEIGHT = 720
"""Height in pixels of a report in a notebook."""


class Steps(tuple[Step, ...]):
    """The steps of a walkthrough, in order; printed as one line per step with the result of its checks."""

    def __new__(cls, steps: Iterable[Step]) -> Self:
        return super().__new__(cls, steps)

    @property
    def passed(self) -> bool:
        """True if every check of every step has passed."""
        return all(step.passed for step in self)

    def __repr__(self) -> str:
        lines = []
        for step in self:
            failed = [check.text for check in step.checks if not check.passed]
            count = f"{len(step.checks)} check{'s' * (len(step.checks) != 1)}"
            checks = f"{count} passed" if not failed else f"failed: {'; '.join(failed)}"
            lines.append(f"{step.number:2}  {step.title}  [{step.reference}]  {checks}")
        return "\n".join(lines)


class Page(str):
    """A report as one HTML document; a notebook displays it in a separate frame."""

    __slots__ = ()

    def save(self, path: str | Path) -> Path:
        """Write the document to ``path``, to be opened in a browser; return the path."""
        Path(path).write_text(self, encoding="utf-8")
        return Path(path)

    def __repr__(self) -> str:
        return f"<Page of {len(self):,} characters; save(path) writes it>"

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #8888"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self)}"></iframe>'


def walkthrough(of: str | Path | Translator | Example, given: str | None = None, second: str | None = None) -> Steps:
    """Follow one example through the model step by step, with its numbers, formulas and checks.

    ``of`` is a run or checkpoint folder of any task, a ``Translator``, or an example that ``examine`` returned.
    ``given`` is the input text, or the path of an image or a CSV file. ``second`` is a translation to use instead of
    the model's own, or the second text of a pair. Raises ``DataError`` if ``given`` is missing or empty.
    """
    return Steps(steps_of(_example(of, given, second)))


def report(of: str | Path | Translator | Example, given: str | None = None, second: str | None = None) -> Page:
    """One HTML document with the walkthrough, the model and all attention; arguments as for ``walkthrough``."""
    return Page(page_of(_example(of, given, second)))


def _example(of: str | Path | Translator | Example, given: str | None, second: str | None) -> Example:
    if not isinstance(of, str | Path | Translator):
        if given is not None or second is not None:
            raise DataError("of is an example, which has its texts; leave out given and second, or give its run")
        if not hasattr(of, "trace"):
            raise DataError(f"of={of!r} is not a run, translator or example; give the path of a run")
        return of
    if not one_text(given, "given").strip():
        raise DataError("given is empty; give a text with at least one word, or the path of a file")
    if second is not None:
        one_text(second, "second")
    if isinstance(of, Translator):
        return examine(of, str(given), second)
    return examine_run(of, ExampleInput(str(given), second))
