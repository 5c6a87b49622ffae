"""The map: figure 1 of the paper drawn to this model, small; its parts are links."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from glassformer.explain.example import Example
from glassformer.explain.page.architecture import Column, ModelPart, columns
from glassformer.web.explorer.selection import Selection

WIDTH, GAP, BETWEEN = 134, 9, 36
"""Width of a box, distance of two boxes, distance of two columns, in pixels."""
HEIGHTS = {"norm": 21, "softmax": 24, "linear": 24}
HEIGHT, TALL = 27, 38
"""Height of a box with one line of text, and with two."""
SIDE = 20
"""Space left and right of the columns, for residual connections and layer counts."""
TITLES = {
    "Masked multi-head attention": ("Masked multi-head", "attention"),
    "tanh of context and state": ("tanh of context", "and state"),
}
LAYERS_IN_TABS = 6


@dataclass(frozen=True)
class MapBox:
    x: float
    y: float
    height: float
    lines: tuple[str, ...]
    color: str
    hint: str
    address: str
    current: bool


@dataclass(frozen=True)
class LayerTab:
    x: float
    text: str
    address: str
    current: bool


@dataclass(frozen=True)
class StackFrame:
    """One layer of a stack, and the tabs that choose it."""

    x: float
    y: float
    width: float
    height: float
    times: str
    tabs: tuple[LayerTab, ...]
    tabs_y: float


@dataclass
class ModelMap:
    width: float
    height: float = 0.0
    boxes: list[MapBox] = field(default_factory=list)
    frames: list[StackFrame] = field(default_factory=list)
    arrows: list[str] = field(default_factory=list)
    captions: list[tuple[float, float, str]] = field(default_factory=list)
    box_width: float = WIDTH


def map_of(example: Example, selection: Selection) -> ModelMap:
    """Encoder at the left, decoder at the right, computed from below, as in the paper."""
    parts = columns(example)
    drawn = ModelMap(2 * SIDE + len(parts) * WIDTH + (len(parts) - 1) * BETWEEN)
    drawn.height = max(map(_height, parts))
    tops, memory_y = [], 0.0
    for number, column in enumerate(parts):
        placer = _Placer(drawn, SIDE + number * (WIDTH + BETWEEN), drawn.height - 4, selection)
        placer.place(column, right=number > 0)
        tops.append(placer.y)
        memory_y = placer.memory_y or memory_y
    if memory_y:
        middle, turn = SIDE + WIDTH / 2, SIDE + WIDTH + BETWEEN / 2 - 5
        top = tops[0] + GAP - 2
        drawn.arrows.append(f"M{middle} {top}V{top - 10}H{turn}V{memory_y}H{SIDE + WIDTH + BETWEEN - 2}")
    return drawn


def layer_of(selection: Selection, stack: str, count: int) -> int:
    """The layer of a stack that the map shows: the chosen one, by default the last."""
    chosen = selection.layer if selection.part == stack else None
    return count - 1 if chosen is None else min(chosen, count - 1)


def _lines(part: ModelPart) -> tuple[str, ...]:
    return TITLES.get(part.title, (part.title,))


def _box_height(part: ModelPart) -> float:
    return HEIGHTS.get(part.color, TALL if len(_lines(part)) > 1 else HEIGHT)


def _height(column: Column) -> float:
    tabs = 30 if column.n_layers else 0
    return sum(_box_height(part) + GAP for part in column.parts) + 2 * 20 + tabs + 8


class _Placer:
    """Boxes placed upwards, an arrow into each."""

    def __init__(self, drawn: ModelMap, x: float, bottom: float, selection: Selection) -> None:
        self.drawn, self.x, self.y, self.selection = drawn, x, bottom, selection
        self.middle, self.memory_y = x + WIDTH / 2, 0.0

    def place(self, column: Column, right: bool) -> None:
        self.caption(column.caption)
        for part in column.entry:
            self.put(part)
        if column.n_layers:
            self.layers(column, right)
        for part in column.exit:
            self.put(part)
        if column.output:
            self.drawn.arrows.append(f"M{self.middle} {self.y + GAP - 1}V{self.y + 3}")
            self.caption(column.output)

    def layers(self, column: Column, right: bool) -> None:
        layer = layer_of(self.selection, column.stack, column.n_layers)
        bottom = self.y + GAP - 4
        for sublayer in column.sublayers:
            entry, outside = self.y + GAP / 2, self.x - 11
            last = [self.put(_in_layer(part, layer)) for part in sublayer][-1]
            self.drawn.arrows.append(f"M{self.middle} {entry}H{outside}V{last}H{self.x - 1}")
        top = self.y + GAP - 26
        frame_x, frame_width = self.x - 17, WIDTH + 24
        tabs = tuple(self.tabs(column.stack, column.n_layers, layer))
        times = f"{column.n_layers}×"
        self.drawn.frames.append(StackFrame(frame_x, top, frame_width, bottom - top, times, tabs, top + 5))
        self.drawn.arrows.append(f"M{self.middle} {self.y + GAP - 1}V{top - 6}")
        self.y = top - 7 - GAP + 2

    def tabs(self, stack: str, count: int, layer: int) -> Iterator[LayerTab]:
        """One tab for each layer; of many layers those around the chosen one."""
        first = max(0, min(layer - LAYERS_IN_TABS // 2, count - LAYERS_IN_TABS))
        for place, number in enumerate(range(first, min(count, first + LAYERS_IN_TABS))):
            same = self.selection.sublayer if self.selection.part == stack else ""
            moved = self.selection.at_module(stack, number, same)
            current = number == layer and self.selection.part == stack and self.selection.layer is not None
            yield LayerTab(self.x + 20 + 18 * place, str(number), moved.address, current)

    def put(self, part: ModelPart) -> float:
        """Place a box; return the height of its middle."""
        height = _box_height(part)
        top = self.y - height
        self.drawn.arrows.append(f"M{self.middle} {self.y + GAP - 1}V{self.y + 1}")
        chosen = _selection_of(self.selection, part)
        view = (self.selection.path, self.selection.stage)
        current = chosen.path == self.selection.path and (not chosen.stage or view == (chosen.path, chosen.stage))
        box = MapBox(
            self.x, top, height, _lines(part), part.color, f"{part.title}: {part.shape}", chosen.address, current
        )
        self.drawn.boxes.append(box)
        self.y = top - GAP
        if part.reads_memory:
            self.memory_y = top + height / 2
        return top + height / 2

    def caption(self, text: str) -> None:
        self.drawn.captions.append((self.middle, self.y - 3, text))
        self.y -= 16 + GAP - 4


def _in_layer(part: ModelPart, layer: int) -> ModelPart:
    return replace(part, path=part.path.replace(".layers.0.", f".layers.{layer}."))


def _selection_of(selection: Selection, part: ModelPart) -> Selection:
    """The view that a box leads to."""
    names = part.path.split(".")
    if len(names) == 3 and names[1] == "layers":  # an LSTM, whose states the stack records
        return selection.at_module(names[0])
    if len(names) > 3 and names[1] == "layers":
        return selection.at_module(names[0], int(names[2]), ".".join(names[3:]))
    module = selection.at_module(names[0], None, ".".join(names[1:]))
    stages = {"Softmax": "probabilities", "Positions": "encoding", "Linear": "logits"}
    if part.path == "forecast":  # a layer whose one tensor the model records
        return replace(selection.at_model(), stage="forecast")
    if part.title == "Linear" and names[0] != "output_projection":
        return module
    return replace(module, stage=stages.get(part.title, ""))
