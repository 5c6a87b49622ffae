"""Tables of text, and the tokens of both sides, with what links them to the rest of the page."""

import re
from dataclasses import dataclass, replace
from unicodedata import bidirectional

from markupsafe import Markup, escape

from glassformer.explain.example import Example
from glassformer.explain.matrix import Label
from glassformer.explain.walkthrough.step import MAX_LABELS, Step
from glassformer.text.words import END_OF_WORD, JOINER


@dataclass(frozen=True)
class WordTable:
    headings: tuple[Label, ...]
    rows: tuple[tuple[Label, ...], ...]
    note: str = ""
    caption: str = ""


def words_of(step: Step) -> WordTable | None:
    if not step.words:
        return None
    first, *rest = step.words
    columns, side = dict(step.links), step.side if step.headings else ""
    headings = tuple(Label(text, side if place else "", place - 1) for place, text in enumerate(first))
    rows = tuple(
        tuple(
            Label(text, step.side, row + columns[place]) if place in columns else Label(text)
            for place, text in enumerate(line)
        )
        for row, line in enumerate(rest[:MAX_LABELS])
    )
    note = f"The first {MAX_LABELS} of {len(rest)} rows." if len(rest) > MAX_LABELS else ""
    return WordTable(headings, rows, note, step.caption)


@dataclass(frozen=True)
class TokenSide:
    """A text and its tokens. A target's tokens are those that the decoder reads, then the last that it is to say."""

    name: str
    text: str
    direction: str
    tokens: tuple[Label, ...]


def token(text: str) -> Markup:
    """Marks of where words end and go on stand back; a script that copies the text still finds them."""
    safe = str(escape(text)).replace(JOINER, f'<span class="joins" title="joins: no space here">{JOINER}</span>')
    end = str(escape(END_OF_WORD))
    return Markup(re.sub(rf"(?<=\S){end}(?= |$)", f'<span class="ends" title="end of a word">{end}</span>', safe))


def equation(text: str) -> Markup:
    """``d_model`` and ``10000^(2i/d)`` with what is low or high as such."""
    safe = re.sub(r"_([A-Za-z0-9]+)", r"<sub>\1</sub>", str(escape(text)))
    return Markup(re.sub(r"\^(?:\(([^()]*)\)|(\w))", lambda found: f"<sup>{found[1] or found[2]}</sup>", safe))


def sides_of(example: Example) -> list[TokenSide]:
    """The sides of the example; the target ends with the last predicted token."""
    sides = [TokenSide(side.name, side.text, direction(side.text), side.labels) for side in example.sides]
    if example.translated:
        last = example.attention_sides("decoder", "cross_attention")[0].labels[-1]
        sides[-1] = replace(sides[-1], tokens=(*sides[-1].tokens, last))
    return sides


def direction(text: str) -> str:
    """Direction of the first sign that has one (Unicode standard annex 9, rule P2)."""
    strong = (kind for kind in map(bidirectional, text) if kind in ("L", "R", "AL"))
    return "rtl" if next(strong, "L") != "L" else "ltr"


def length_class(text: str) -> str:
    """CSS class for a headline of this length; longer headlines are smaller."""
    return next((name for name, most in (("", 60), ("long", 160), ("longer", 480)) if len(text) <= most), "longest")
