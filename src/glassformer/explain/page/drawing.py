"""The drawing of a model: its parts as boxes, the arrows between them, and the walkthrough step of each box."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import embeddings, positions_of, stacks
from glassformer.explain.page.architecture import Column, ModelPart, columns
from glassformer.explain.page.model_line import COUNTS, input_name, is_tied
from glassformer.explain.walkthrough.step import Step
from glassformer.models.registry import parameters_by_part

WIDTH, HIGH, GAP = 272, 44, 16
"""Size of a box, and distance of two, in pixels."""
PITCH = HIGH + GAP
CAPTIONS = 88
"""Height of the captions above and below a column."""
LEFT, BETWEEN = 92, 372
"""Left edge of the first column, and distance of two such edges."""
RIGHT, RIGHT_OF_ONE = 92, 60
"""Width at the right of the last column, which has the number of its layers there; and of the only one."""


@dataclass(frozen=True)
class Box:
    """``step`` is the number of the step that explains the part, if there is one."""

    x: float
    y: float
    part: ModelPart
    step: int | None


@dataclass(frozen=True)
class LayerFrame:
    """Frame of one layer, of which there are ``count``."""

    x: float
    y: float
    width: float
    height: float
    count: int
    times_x: float
    """Position of the count: on the side that no arrow crosses."""


@dataclass(frozen=True)
class Caption:
    x: float
    y: float
    text: str


@dataclass
class Drawing:
    width: float
    height: float
    label: str
    title: str
    note: str
    parts: list[tuple[str, str]]
    """The drawing as a table: each part and its parameters."""
    boxes: list[Box] = field(default_factory=list)
    frames: list[LayerFrame] = field(default_factory=list)
    arrows: list[str] = field(default_factory=list)
    words: list[Caption] = field(default_factory=list)


def drawings(example: Example, steps: Sequence[Step]) -> list[Drawing]:
    """Drawings of the model with the shapes of this example: for a wide window, then for a narrow one if it differs."""
    found = columns(example)
    if len(found) == 1:
        return [_drawing(example, found, steps, "The architecture, from below", wide=True)]
    return [
        _drawing(example, found, steps, "The architecture: encoder at the left, decoder at the right", wide=True),
        _drawing(example, found, steps, "The architecture: encoder below, decoder above", wide=False),
    ]


def _drawing(example: Example, parts: list[Column], steps: Sequence[Step], label: str, *, wide: bool) -> Drawing:
    """Drawing with the columns side by side or, if it is not ``wide``, one above the other."""
    model: nn.Module = example.model
    heights = [len(column.parts) * PITCH + CAPTIONS for column in parts]
    gaps = (len(parts) - 1) * wide
    drawing = Drawing(
        width=LEFT + gaps * BETWEEN + WIDTH + (RIGHT if gaps else RIGHT_OF_ONE),
        height=max(heights) if wide else sum(heights),
        label=label,
        title=_title(model),
        note=_note(model),
        parts=[(name.replace("_", " "), f"{count:,}") for name, count in parameters_by_part(model).items()],
    )
    x, bottom = LEFT, drawing.height - 14
    below: BoxColumn | None = None
    for column in parts:
        placed = BoxColumn(drawing, x, bottom)
        placed.place(column, step_numbers(model, column.parts, steps), count_left=x == LEFT)
        if below is not None:
            memory = example.trace["memory"]
            _memory(drawing, below, placed, f"memory: {memory.size(1)} × {memory.size(2)}")
        x, bottom = (x + BETWEEN, bottom) if wide else (x, placed.top - 2 * GAP)
        below = placed
    return drawing


class BoxColumn:
    """Boxes placed upwards from the bottom, an arrow from each to the next."""

    def __init__(self, drawing: Drawing, x: float, bottom: float):
        self.drawing, self.x, self.y = drawing, x, bottom
        self.middle = x + WIDTH / 2
        self.memory_y = 0.0
        """Height at which the memory enters."""

    @property
    def top(self) -> float:
        """Upper edge of the last box."""
        return self.y + GAP - 1

    def place(self, column: Column, steps: Sequence[int | None], count_left: bool) -> None:
        """Place the whole column; ``steps`` are the numbers of its parts' steps."""
        numbers = iter(steps)
        self.say(column.caption)
        for part in column.entry:
            self.put(part, next(numbers))
        bottom = self.y + GAP - 3
        for sublayer in column.sublayers:
            entry = self.y + GAP / 2 + 2
            last = [self.put(part, next(numbers)) for part in sublayer][-1]
            side = self.x - 18
            self.drawing.arrows.append(f"M{self.middle} {entry}H{side}V{last}H{self.x - 1}")
        if column.sublayers:
            self.frame(bottom, column.n_layers, count_left)
        for part in column.exit:
            self.put(part, next(numbers))
        if column.output:
            self.drawing.arrows.append(f"M{self.middle} {self.top}V{self.y + 1}")
            self.say(column.output)

    def put(self, part: ModelPart, step: int | None) -> float:
        """Place a box; return the height of its middle."""
        top = self.y - HIGH
        self.drawing.boxes.append(Box(self.x, top, part, step))
        self.drawing.arrows.append(f"M{self.middle} {self.y + GAP - 1}V{self.y + 1}")
        self.y = top - GAP
        if part.reads_memory:
            self.memory_y = top + HIGH / 2
        return top + HIGH / 2

    def say(self, text: str) -> None:
        self.drawing.words.append(Caption(self.middle, self.y - 4, text))
        self.y -= GAP + 18

    def frame(self, bottom: float, count: int, count_left: bool) -> None:
        left, top, width = self.x - 30, self.y + GAP - 10, WIDTH + 44
        side = left - 26 if count_left else left + width + 26
        self.drawing.frames.append(LayerFrame(left, top, width, bottom - top, count, side))


def _memory(drawing: Drawing, encoder: BoxColumn, decoder: BoxColumn, caption: str) -> None:
    """Draw the arrow from the encoder's last box to the attention that reads the memory."""
    above, right = encoder.top - 12, encoder.x + WIDTH
    if decoder.x > encoder.x:
        way, end, place = (right + decoder.x) / 2 - 4, decoder.x - 1, Caption(encoder.middle, above - 10, caption)
    else:
        way, end, place = right + 36, right + 1, Caption(encoder.middle - 72, above + 4, caption)
    drawing.arrows.append(f"M{encoder.middle} {encoder.top}V{above}H{way}V{decoder.memory_y}H{end}")
    drawing.words.append(place)


def step_numbers(model: nn.Module, parts: Sequence[ModelPart], steps: Sequence[Step]) -> list[int | None]:
    """Number of the step that explains each part, by the path of its module in whatever layer.

    The boxes of one module take its steps in order. A part of a layer without a step of its own has that of another
    module of its class in this layer, or that of the layer; any other part that of the next one.
    """
    known: dict[tuple[str, type[nn.Module] | None], list[int]] = {}
    for step in steps:
        for key in _keys(model, step.path)[:2]:
            known.setdefault(key, []).append(step.number)
    boxes: Counter[str] = Counter()
    found: list[int | None] = []
    for part in parts:
        numbers = next((known[key] for key in _keys(model, part.path) if key in known), [])
        found.append(numbers[min(boxes[part.path], len(numbers) - 1)] if numbers else None)
        boxes[part.path] += 1
    following = steps[-1].number if steps else None
    for place in reversed(range(len(found))):
        following = found[place] = found[place] or following
    return found


def _keys(model: nn.Module, path: str) -> list[tuple[str, type[nn.Module] | None]]:
    """The module at ``path`` in any layer; in a layer also its class there, and the layer."""
    anywhere = re.sub(r"\.\d+(?=\.|$)", ".*", path)
    layer, _, name = anywhere.rpartition(".*.")
    if not layer or not name:
        return [(anywhere, None)]
    return [(anywhere, None), (f"{layer}.*", type(model.get_submodule(path))), (f"{layer}.*", None)]


def _title(model: nn.Module) -> str:
    paper = "Figure 1 of the paper, drawn to this model" if len(stacks(model)) > 1 else "This model"
    return f"{paper}, with the shapes of this {input_name(model)}."


def _note(model: nn.Module) -> str:
    """Shared matrices, and positions that no box shows."""
    found = [model.get_submodule(path) for path in embeddings(model).values()]
    tied, parts = is_tied(model), []
    both = f"{COUNTS[len(found)]} embeddings" if len(found) > 1 else "embedding"
    if tied:
        size, width = found[-1].get_parameter("weight").shape
        times = {1: "twice", 2: "three times"}[len(found)]
        parts.append(
            f"E is one matrix of {size:,} × {width}, used {times}: the {both} and the output projection are tied "
            "(section 3.4)."
        )
    elif tied is not None:
        parts.append(f"The {both} and the output projection have a matrix of their own each.")
    if stacks(model) and positions_of(model, stacks(model)[0]) == "rotary":
        parts.append("Positions are not added: they turn the queries and keys of self-attention.")
    return " ".join(parts)
