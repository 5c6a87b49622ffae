"""The paper's figure 1, drawn to one configuration: boxes and arrows as plain data, each box with its step."""

from dataclasses import dataclass, field

from torch import nn

from glassformer.explain.example import Example
from glassformer.layers.position import ENCODINGS
from glassformer.models.encoder_decoder import EncoderDecoderConfig
from glassformer.models.size import parameters_by_part

WIDTH, HIGH, GAP = 256, 44, 16
"""Of a box, and between two, in pixels."""
PITCH = HIGH + GAP
CAPTIONS = 88
"""Height of the captions above and below a column."""
ENCODER, DECODER = 92, 448
"""Where the columns begin."""


@dataclass(frozen=True)
class Box:
    """``step`` is where it is told. A ``matrix`` is the name of the weights it has, where others may share them."""

    x: float
    y: float
    title: str
    shape: str
    step: int
    kind: str
    matrix: str = ""


@dataclass(frozen=True)
class LayerFrame:
    """One layer, which is there ``count`` times."""

    x: float
    y: float
    width: float
    height: float
    count: int
    times_x: float
    """Where that is written: at the side that no arrow crosses."""


@dataclass(frozen=True)
class Caption:
    x: float
    y: float
    text: str


@dataclass
class Drawing:
    width: float
    height: float = 0.0
    boxes: list[Box] = field(default_factory=list)
    frames: list[LayerFrame] = field(default_factory=list)
    arrows: list[str] = field(default_factory=list)
    words: list[Caption] = field(default_factory=list)
    note: str = ""
    parts: list[tuple[str, str]] = field(default_factory=list)
    """The same as a table: each part and its parameters."""
    label: str = "The architecture: encoder at the left, decoder at the right"
    title: str = "Figure 1 of the paper, drawn to this model, with the shapes of this sentence."


@dataclass(frozen=True)
class BoxText:
    """A box before it has a place."""

    title: str
    shape: str
    step: int
    kind: str
    matrix: str = ""


class BoxColumn:
    """Boxes placed upwards from the bottom, an arrow from each to the next."""

    def __init__(self, drawing: Drawing, x: float, bottom: float):
        self.drawing, self.x, self.y = drawing, x, bottom
        self.middle = x + WIDTH / 2

    def put(self, part: BoxText) -> float:
        """Returns the height of its middle."""
        top = self.y - HIGH
        self.drawing.boxes.append(Box(self.x, top, part.title, part.shape, part.step, part.kind, part.matrix))
        self.drawing.arrows.append(f"M{self.middle} {self.y + GAP - 1}V{self.y + 1}")
        self.y = top - GAP
        return top + HIGH / 2

    def say(self, text: str) -> None:
        self.drawing.words.append(Caption(self.middle, self.y - 4, text))
        self.y -= GAP + 18

    def sublayer(self, parts: list[BoxText]) -> list[float]:
        """Its boxes, and the residual connection from below them to the last, where the sum is."""
        entry = self.y + GAP / 2 + 2
        middles = [self.put(part) for part in parts]
        side = self.x - 18
        self.drawing.arrows.append(f"M{self.middle} {entry}H{side}V{middles[-1]}H{self.x - 1}")
        return middles

    def frame(self, bottom: float, count: int) -> None:
        left, top, width = self.x - 30, self.y + GAP - 10, WIDTH + 44
        side = left - 26 if self.x == ENCODER else left + width + 26
        self.drawing.frames.append(LayerFrame(left, top, width, bottom - top + 4, count, side))


def two_stacks(example: Example) -> Drawing:
    """Drawing with the encoder on the left and the decoder on the right, with the shapes of this example."""
    c, shapes = example.model.config, _shapes(example)
    drawing = Drawing(ENCODER + DECODER + WIDTH + 60, _decoder_boxes(c) * PITCH + CAPTIONS)
    bottom = drawing.height - 14
    encoder = BoxColumn(drawing, ENCODER, bottom)
    memory = _encoder(encoder, c, shapes)
    decoder = BoxColumn(drawing, DECODER, bottom)
    asked = _decoder(decoder, c, shapes)
    way = (ENCODER + WIDTH + DECODER) / 2 - 4
    drawing.arrows.append(f"M{encoder.middle} {memory}V{memory - 12}H{way}V{asked}H{DECODER - 1}")
    drawing.words.append(Caption(encoder.middle, memory - 22, f"memory: {shapes.source} × {c.d_model}"))
    return _described(drawing, example)


def one_above_the_other(example: Example) -> Drawing:
    """Drawing for a narrow window: the decoder above the encoder, the memory to their right."""
    c, shapes = example.model.config, _shapes(example)
    boxes = _decoder_boxes(c) + _encoder_boxes(c)
    drawing = Drawing(ENCODER + WIDTH + 60, boxes * PITCH + 2 * CAPTIONS)
    drawing.label = "The architecture: encoder below, decoder above"
    encoder = BoxColumn(drawing, ENCODER, drawing.height - 14)
    memory = _encoder(encoder, c, shapes)
    decoder = BoxColumn(drawing, ENCODER, memory - 2 * GAP)
    asked = _decoder(decoder, c, shapes)
    right = ENCODER + WIDTH
    drawing.arrows.append(f"M{encoder.middle} {memory}V{memory - 12}H{right + 36}V{asked}H{right + 1}")
    drawing.words.append(Caption(encoder.middle - 72, memory - 8, f"memory: {shapes.source} × {c.d_model}"))
    return _described(drawing, example)


def _described(drawing: Drawing, example: Example) -> Drawing:
    drawing.note = _tied(example.model.config)
    drawing.parts = parts_of(example.model)
    return drawing


def _encoder_boxes(c: EncoderDecoderConfig) -> int:
    """Number of boxes in the encoder: two sub-layers, the embedding, and with pre-norm the last norm."""
    pre = c.norm_order == "pre"
    return (6 if pre else 4) + 1 + bool(ENCODINGS[c.positions].added) + c.norm_embeddings + pre


def _decoder_boxes(c: EncoderDecoderConfig) -> int:
    """Number of boxes in the decoder: those of the encoder, cross-attention, the linear layer and the softmax."""
    return _encoder_boxes(c) + (3 if c.norm_order == "pre" else 2) + 2


def parts_of(model: nn.Module) -> list[tuple[str, str]]:
    """Each part and its parameters, in words."""
    return [(name.replace("_", " "), f"{count:,}") for name, count in parameters_by_part(model).items()]


def _shapes(example: Example) -> "_Shapes":
    return _Shapes(example.model.config, len(example.source_ids), len(example.target_ids))


@dataclass(frozen=True)
class _Shapes:
    config: EncoderDecoderConfig
    source: int
    target: int

    def stream(self, length: int) -> str:
        return f"{length} × {self.config.d_model}"

    @property
    def heads(self) -> str:
        d_k, d_v = self.config.head_sizes
        return f"{self.config.n_heads} heads of {d_k}" + ("" if d_k == d_v else f", values {d_v}")

    @property
    def inner(self) -> str:
        return f"{self.config.d_model} → {self.config.d_ff} → {self.config.d_model}, {self.config.activation}"


def _encoder(column: BoxColumn, c: EncoderDecoderConfig, shapes: _Shapes) -> float:
    """Returns where the memory leaves."""
    _entry(column, c, "source", shapes.source)
    bottom = column.y + GAP
    pair = [("Multi-head attention", shapes.heads, 3), ("Feed-forward", shapes.inner, 5)]
    for title, shape, step in pair:
        column.sublayer(_wrapped(c, BoxText(title, shape, step, "attention" if step == 3 else "feed"), 4))
    column.frame(bottom, c.n_encoder_layers)
    if c.norm_order == "pre":
        column.put(BoxText("Norm", shapes.stream(shapes.source), 6, "norm"))
    return column.y + GAP - 1


def _decoder(column: BoxColumn, c: EncoderDecoderConfig, shapes: _Shapes) -> float:
    """Returns the height at which the memory is asked."""
    _entry(column, c, "target", shapes.target)
    bottom = column.y + GAP
    triple = [
        BoxText("Masked multi-head attention", shapes.heads, 8, "attention"),
        BoxText("Multi-head attention", f"{shapes.heads}, to the memory", 9, "attention"),
        BoxText("Feed-forward", shapes.inner, 10, "feed"),
    ]
    asked = 0.0
    for part in triple:
        middles = column.sublayer(_wrapped(c, part, 10))
        if part.step == 9:
            asked = middles[1 if c.norm_order == "pre" else 0]
    column.frame(bottom, c.n_decoder_layers)
    if c.norm_order == "pre":
        column.put(BoxText("Norm", shapes.stream(shapes.target), 11, "norm"))
    size = c.vocab_sizes[1]
    column.put(BoxText("Linear", f"{shapes.target} × {size:,}", 12, "linear", "E" if c.tie_embeddings else "W"))
    column.put(BoxText("Softmax", f"{shapes.target} × {size:,}", 12, "softmax"))
    column.drawing.arrows.append(f"M{column.middle} {column.y + GAP - 1}V{column.y + 1}")
    column.say("what comes next: probabilities")
    return asked


def _entry(column: BoxColumn, c: EncoderDecoderConfig, side: str, length: int) -> None:
    source = side == "source"
    column.say(f"{side}, {length} tokens" + ("" if source else ", shifted right"))
    size = c.vocab_sizes[0 if source else 1]
    matrix = "E" if c.tie_embeddings else f"E {side}"
    shape = f"{size:,} × {c.d_model}" + (f", × √{c.d_model}" if c.scale_embeddings else "")
    column.put(BoxText(f"{side.title()} embedding", shape, 1 if source else 7, "embedding", matrix))
    if ENCODINGS[c.positions].added:
        shape = f"+ {length} × {c.d_model}, {c.positions}"
        column.put(BoxText("Positions", shape, 2 if source else 7, "embedding"))
    if c.norm_embeddings:
        column.put(BoxText("Norm", f"width {c.d_model}", 2 if source else 7, "norm"))


def _wrapped(c: EncoderDecoderConfig, part: BoxText, step: int) -> list[BoxText]:
    """LayerNorm after the sum, as in the paper, or before the sub-layer."""
    if c.norm_order == "post":
        return [part, BoxText("Add & Norm", f"width {c.d_model}", step, "norm")]
    return [
        BoxText("Norm", f"width {c.d_model}", step, "norm"),
        part,
        BoxText("Add", f"width {c.d_model}", step, "norm"),
    ]


def _tied(c: EncoderDecoderConfig) -> str:
    rotary = " Positions are not added: they turn the queries and keys of self-attention." * (
        not ENCODINGS[c.positions].added
    )
    if not c.tie_embeddings:
        return "The two embeddings and the linear layer have a matrix of their own each." + rotary
    return (
        f"E is one matrix of {c.vocab_sizes[0]:,} × {c.d_model}, used three times: both embeddings and the linear "
        f"layer are tied (section 3.4).{rotary}"
    )
