"""One sentence's walkthrough as a page of its own: a single file, which asks nothing of anybody."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glassformer.explain.example import Example
from glassformer.explain.figures.svg import pixel_paths
from glassformer.explain.figures.view import LATEX
from glassformer.explain.formula.formula import Formula, trace_back
from glassformer.explain.matrix import LARGEST
from glassformer.explain.page.drawing import HIGH, WIDTH, drawings
from glassformer.explain.page.links import alignment_of
from glassformer.explain.page.matrices import Gallery, galleries_of, gallery_of
from glassformer.explain.page.model_line import eyebrow, model_line
from glassformer.explain.page.sheets import Numbers, Sheet, palette, sheet_of_table, stylesheet
from glassformer.explain.page.summary import summary_of
from glassformer.explain.page.wording import WordTable, direction, equation, length_class, sides_of, token, words_of
from glassformer.explain.walkthrough.step import MAX_LABELS, Pixels, Step, TracedMatrix, legend
from glassformer.explain.walkthrough.walkthrough import walkthrough
from glassformer.text.decimals import aligned, decimal, precise, probability, weight

PAGE = "glassformer.explain.page"
PICTURE = 320
"""Longer side of an image, in pixels of the page."""
SCRIPTS = ("linked", "grid", "heads", "copied", "page")


@dataclass(frozen=True)
class RenderedStep:
    """A step with what is drawn of it. ``formulas`` is the chosen one, in the last step all that it leads to."""

    step: Step
    words: WordTable | None
    figures: list[Sheet | Gallery]
    formulas: list[Formula]

    @property
    def failed(self) -> list[str]:
        return [check.text for check in self.step.checks if not check.passed] + [
            f"{formula.title}: {formula.check}" for formula in self.formulas if not formula.check.passed
        ]

    @property
    def checks(self) -> int:
        return len(self.step.checks) + len(self.formulas)


def report(example: Example, notes: Sequence[str] = ()) -> str:
    """The steps of the walkthrough, with the model, all attention and, of a translation, the alignment: one HTML file.

    ``notes`` are sentences at its beginning, such as on the edits of the trace.
    Nothing in it is fetched: style, script and numbers are inside, and the page forbids itself any request.
    """
    numbers = Numbers()
    steps = walkthrough(example)
    rendered = [_render(example, step, numbers, step is steps[-1]) for step in steps]
    alignment = alignment_of(example) if example.translated else None
    legends = legend([label.text for side in sides_of(example) for label in side.tokens])
    return (
        _environment()
        .get_template("report.html")
        .render(
            example=example,
            eyebrow=eyebrow(example, len(steps)),
            sides=sides_of(example),
            model_line=model_line(example.model),
            steps=rendered,
            checks=sum(one.checks for one in rendered),
            failed=[(one.step, text) for one in rendered for text in one.failed],
            numbers_checked=sum(table.values.size for one in rendered for table in one.step.tables),
            drawings=drawings(example, steps),
            summary=summary_of(steps, [bool(one.failed) for one in rendered], alignment),
            legend=legends,
            galleries=galleries_of(example, numbers),
            translated=example.translated,
            alignment=alignment,
            limits=[*notes, *_limits(example)],
            numbers=numbers,
            palette=" ".join(palette()),
            latex=json.dumps(LATEX),
            style=_asset("palette.css") + _asset("style.css") + Markup(stylesheet()),
            script=Markup("\n").join(_asset(f"script/{name}.js") for name in SCRIPTS),
        )
    )


def _render(example: Example, step: Step, numbers: Numbers, last: bool) -> RenderedStep:
    formulas = [] if step.evaluation is None else [step.evaluation]
    if last and step.evaluation is not None:
        formulas = list(trace_back(example.trace, step.evaluation))
    figures: list[Sheet | Gallery] = []
    for group in _groups(step.tables) if step.passed else [[table] for table in step.tables]:  # every fault is shown
        if len(group) > 1:
            figures.append(gallery_of(group, numbers))
        else:
            figures.append(sheet_of_table(group[0], numbers, failed=not step.passed))
    return RenderedStep(step, words_of(step), figures, formulas)


def _groups(tables: tuple[TracedMatrix, ...]) -> list[list[TracedMatrix]]:
    """The heads of one attention together."""
    groups: list[list[TracedMatrix]] = []
    for table in tables:
        same = groups and table.scale.kind == "weights" and groups[-1][0].name == table.name
        if same:
            groups[-1].append(table)
        else:
            groups.append([table])
    return groups


def _limits(example: Example) -> list[str]:
    """Limits of the tables and matrices of a long sentence."""
    lengths = {side.name: len(side.tokens) for side in sides_of(example)}
    if example.translated:
        lengths["target"] = len(example.target_ids)
    return [
        f"The {side} has {length} tokens, more than fit: tables show the first {MAX_LABELS} of them, and matrices of "
        f"more than {LARGEST} rows or columns are pooled by their maximum. The checks of whole tensors see all."
        for side, length in lengths.items()
        if length > MAX_LABELS
    ]


@cache
def _environment() -> Environment:
    """Whatever comes from a text or a tokenizer is escaped, everywhere."""
    environment = Environment(
        loader=PackageLoader(PAGE, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["gallery"] = lambda value: isinstance(value, Gallery)
    environment.filters |= {f.__name__: f for f in (aligned, decimal, precise, probability, weight)}
    environment.filters["mathml"] = lambda formula: Markup(formula.mathml())
    environment.filters["place"] = _place
    environment.filters["token"] = token
    environment.filters["equation"] = equation
    environment.filters["direction"] = direction
    environment.filters["length_class"] = length_class
    environment.filters["drawn"] = _drawn
    environment.globals["box_size"] = (WIDTH, HIGH)
    return environment


def _place(formula: Formula) -> str:
    """Place of a formula, as ``MathML`` writes it on the numbers of other formulas."""
    index = ",".join(f"{axis}={value}" for axis, value in formula.place.index)
    return f"{formula.place.name}[{index}]"


def _drawn(image: Pixels) -> Markup:
    """The image with the edges of its patches; numbers and colors only, so nothing is left to escape."""
    high, wide = image.values.shape[:2]
    scale = PICTURE / max(high, wide)
    size = wide * scale, high * scale
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]:g} {size[1]:g}" width="{size[0]:g}"']
    parts.append(f' height="{size[1]:g}" aria-hidden="true"><g shape-rendering="crispEdges">')
    parts += [*pixel_paths(image.values, 0, 0, *size), "</g>"]
    lines = [f"M0 {y * scale:.2f}h{size[0]:.2f}" for y in range(0, high + 1, image.patch)]
    lines += [f"M{x * scale:.2f} 0v{size[1]:.2f}" for x in range(0, wide + 1, image.patch)]
    parts.append(f'<path class="cuts" d="{"".join(lines)}"/></svg>')
    return Markup("".join(parts))


def _asset(path: str) -> Markup:
    return Markup(files(PAGE).joinpath(path).read_text(encoding="utf-8"))
