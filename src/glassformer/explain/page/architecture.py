"""Boxes of a model as in the paper's figure 1, from the tree of its modules, with the shapes of one example."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import embeddings, input_names, sublayers
from glassformer.explain.page.model_line import activation_of, heads_of, width_of
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import AddNorm, Stack
from glassformer.layers.embedding import OutputProjection, PatchEmbedding, TokenEmbedding
from glassformer.layers.feed_forward import FeedForward, GatedFeedForward
from glassformer.layers.position import encoding_of
from glassformer.models.bert import MaskedTokenTransform, Pooler
from glassformer.models.recurrent import RecurrentDecoder, RecurrentEncoder
from glassformer.tasks import TASKS


@dataclass(frozen=True)
class ModelPart:
    """A box without its position. ``path`` is the module that it shows."""

    title: str
    shape: str
    path: str
    color: str
    """Class of the box in the style sheet."""
    matrix: str = ""
    """Name of a matrix that other boxes may share."""
    reads_memory: bool = False


@dataclass
class Column:
    """Parts of one stack in the order of computation, which is upwards in the picture."""

    stack: str
    caption: str
    """The input, below the first part."""
    entry: list[ModelPart]
    sublayers: list[list[ModelPart]]
    """Parts of one layer, grouped by residual connection."""
    n_layers: int
    exit: list[ModelPart] = field(default_factory=list)
    output: str = ""
    """Caption above the last part."""

    @property
    def parts(self) -> list[ModelPart]:
        return [*self.entry, *(part for sublayer in self.sublayers for part in sublayer), *self.exit]


@dataclass(frozen=True)
class ModuleView:
    """A module of a model, and the number of positions that it computes for the example."""

    example: Example
    path: str
    length: int

    @property
    def module(self) -> Any:
        return self.example.model.get_submodule(self.path)

    def part(self, title: str, shape: str, color: str, matrix: str = "") -> ModelPart:
        """A part that shows this module."""
        return ModelPart(title, shape, self.path, color, matrix)

    def inside(self, name: str) -> "ModuleView":
        """A module of this module."""
        return ModuleView(self.example, f"{self.path}.{name}", self.length)


def columns(example: Example) -> list[Column]:
    """A column for each stack, with the embedding that enters it; the last ends in the heads that were applied."""
    model: nn.Module = example.model
    entries = embeddings(model)
    found = []
    for number, (stack, embedding) in enumerate(entries.items()):
        length = len(example.tokens(stack))
        caption = _caption(example, model.get_submodule(embedding), input_names(model)[number], length)
        entry = parts_of(ModuleView(example, embedding, length))
        view = ModuleView(example, stack, length)
        if isinstance(view.module, Stack):
            found.append(Column(stack, caption, entry, _layer(view), len(view.module.layers), parts_of(view)))
        else:
            found.append(Column(stack, caption, entry + parts_of(view), [], 0))
    if len(found) > 1:
        found[-1].caption += ", shifted right"
    for name, _ in model.named_children():
        if name not in entries and name not in entries.values() and _is_recorded(example, name):
            found[-1].exit += parts_of(ModuleView(example, name, len(example.tokens(found[-1].stack))))
    found[-1].output = TASKS[example.task].predicts
    return found


def parts_of(view: ModuleView) -> list[ModelPart]:
    """Parts of a module by its class; of an unknown class, those of its children, or one with its parameters."""
    module = view.module
    draw = next((PARTS[one] for one in type(module).__mro__ if one in PARTS), None)
    if draw is not None:
        return list(draw(view))
    children = [view.inside(name) for name, _ in module.named_children()]
    inside = [part for child in children if _is_recorded(view.example, child.path) for part in parts_of(child)]
    count = sum(parameter.numel() for parameter in module.parameters())
    return inside or [view.part(type(module).__name__, f"{count:,} parameters", "linear")]


def _is_recorded(example: Example, path: str) -> bool:
    return any(name == path or name.startswith(f"{path}.") for name in example.trace)


def _caption(example: Example, embedding: nn.Module, name: str, length: int) -> str:
    if isinstance(embedding, PatchEmbedding):
        return name
    return f"{f'[CLS] {name} [SEP]' if TASKS[example.task].framed else name}, {length} tokens"


def _token_embedding(view: ModuleView) -> Iterator[ModelPart]:
    module: TokenEmbedding = view.module
    size, width = module.weight.shape
    scale = f", × √{width}" if module.scale != 1.0 else ""
    yield view.part(_words(view.path), f"{size:,} × {width}{scale}", "embedding", _matrix_of(view))
    if module.position is not None:
        yield _positions(view)
    if module.segment is not None:
        yield view.part("Segments", f"+ {len(module.segment.get_parameter('weight'))} × {width}", "embedding")
    if module.norm is not None:
        yield view.part("Norm", f"width {width}", "norm")


def _patch_embedding(view: ModuleView) -> Iterator[ModelPart]:
    module: PatchEmbedding = view.module
    linear, with_token = module.projection, module.class_token is not None
    shape = f"{view.length - with_token} × {linear.in_features} → {linear.out_features}"
    yield view.part("Patches, linear", shape, "embedding")
    if with_token:
        yield view.part("Class token", f"1 × {linear.out_features}, put before", "embedding")
    yield _positions(view)


def _positions(view: ModuleView) -> ModelPart:
    shape = f"+ {view.length} × {width_of(view.module)}, {encoding_of(view.module.position, None)}"
    return view.part("Positions", shape, "embedding")


def _layer(view: ModuleView) -> list[list[ModelPart]]:
    """Sub-layers of the first layer of a stack, each wrapped in its normalization."""
    block = view.inside("layers.0")
    wrapped = []
    for name in sublayers(block.module):
        [part] = parts_of(block.inside(name))
        wrapped.append(_wrap(block.inside(f"{name}_norm"), part))
    return wrapped


def _wrap(view: ModuleView, part: ModelPart) -> list[ModelPart]:
    """Normalization after the sum, as in the paper, or before the sub-layer."""
    module: AddNorm = view.module
    width = f"width {module.norm.get_parameter('weight').numel()}"
    if not module.pre:
        return [part, view.part("Add & Norm", width, "norm")]
    return [view.part("Norm", width, "norm"), part, view.part("Add", width, "norm")]


def _attention(view: ModuleView) -> Iterator[ModelPart]:
    title, shape = "Multi-head attention" if view.module.n_heads > 1 else "Attention", heads_of(view.module)
    if view.path.endswith("cross_attention"):
        yield ModelPart(title, f"{shape}, to the memory", view.path, "attention", reads_memory=True)
        return
    mask = f"{view.path}.mask"
    causal = mask in view.example.trace and not view.example.trace[mask].triu(1).any()
    yield view.part(f"Masked {title[0].lower()}{title[1:]}" if causal else title, shape, "attention")


def _feed_forward(view: ModuleView) -> Iterator[ModelPart]:
    module, gated = view.module, isinstance(view.module, GatedFeedForward)
    shape = f"{module.inner.in_features} → {module.inner.out_features} → {module.outer.out_features}"
    title = "Gated feed-forward" if gated else "Feed-forward"
    yield view.part(title, f"{shape}, {activation_of(module)}", "feed")


def _final_norm(view: ModuleView) -> Iterator[ModelPart]:
    norm = view.module.final_norm
    if norm is not None:
        yield view.part("Norm", f"{view.length} × {norm.weight.numel()}", "norm")


def _recurrent_encoder(view: ModuleView) -> Iterator[ModelPart]:
    for lstm in view.module.rightward:
        yield view.part("LSTM, both ways", f"{view.length} × {2 * lstm.hidden_size}", "feed")


def _recurrent_decoder(view: ModuleView) -> Iterator[ModelPart]:
    """The first LSTM attends; those above it read its states and the context."""
    for number, lstm in enumerate(view.module.layers):
        shape = f"{view.length} × {lstm.hidden_size}" + (", of both" if number else "")
        yield view.inside(f"layers.{number}").part("LSTM", shape, "feed")
        if number == 0:
            yield from _attention(view.inside("cross_attention"))
    yield view.part("tanh of context and state", f"{view.length} × {view.module.combine.out_features}", "norm")


def _transform(view: ModuleView) -> Iterator[ModelPart]:
    dense = view.module.dense
    shape = f"{dense.in_features} → {dense.out_features}, {activation_of(view.module)}, norm"
    yield view.part("Transform", shape, "linear")


def _pooler(view: ModuleView) -> Iterator[ModelPart]:
    dense = view.module.dense
    yield view.part("Pooler", f"tanh, {dense.in_features} → {dense.out_features}, of [CLS]", "linear")


def _output_projection(view: ModuleView) -> Iterator[ModelPart]:
    size, width = view.module.weight.shape
    _, *positions, _ = view.example.trace[f"{view.path}.logits"].shape
    yield view.part("Linear", f"{width} → {size:,}", "linear", _matrix_of(view))
    shape = " × ".join(f"{count:,}" for count in (*positions, size))
    yield view.part("Softmax", f"{shape} probabilities", "softmax")


def _linear(view: ModuleView) -> Iterator[ModelPart]:
    """A linear layer of each position, or of all positions side by side, as in a forecast."""
    model, trace, n_inputs = view.example.model, view.example.trace, view.module.in_features
    width = width_of(model.get_submodule(list(embeddings(model).values())[-1]))
    inputs = f"{view.length} · {width}" if n_inputs == view.length * width else f"{n_inputs}"
    unit = f" {trace.axes(view.path)[1]}s" if view.path in trace else ""
    yield view.part("Linear", f"{inputs} → {view.module.out_features:,}{unit}", "linear")


def _matrix_of(view: ModuleView) -> str:
    """Letter of a matrix of the vocabulary: E of an embedding and of all that shares it, W of another projection."""
    model = view.example.model
    names = dict(zip(embeddings(model).values(), input_names(model), strict=True))
    known: dict[int, list[str]] = {}
    for path, name in names.items():
        if isinstance(embedding := model.get_submodule(path), TokenEmbedding):
            known.setdefault(id(embedding.weight), []).append(name)
    shared = known.get(id(view.module.weight))
    if shared is None:
        return "W"
    return "E" if len(known) == 1 else f"E {' '.join(shared)}"


def _words(path: str) -> str:
    return path.replace("_", " ").capitalize()


PARTS: dict[type[nn.Module], Callable[[ModuleView], Iterator[ModelPart]]] = {
    TokenEmbedding: _token_embedding,
    PatchEmbedding: _patch_embedding,
    Stack: _final_norm,
    MultiHeadAttention: _attention,
    FeedForward: _feed_forward,
    GatedFeedForward: _feed_forward,
    RecurrentEncoder: _recurrent_encoder,
    RecurrentDecoder: _recurrent_decoder,
    MaskedTokenTransform: _transform,
    Pooler: _pooler,
    OutputProjection: _output_projection,
    nn.Linear: _linear,
}
