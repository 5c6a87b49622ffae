"""A model and its example in words: a line each at the top of a page, and the sizes of the model's modules."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from glassformer.explain.example import Example
from glassformer.explain.formula.dataflow import embeddings, input_names, positions_of, stacks, token_projection
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.embedding import PatchEmbedding, TokenEmbedding
from glassformer.layers.feed_forward import ACTIVATIONS, FeedForward, GatedFeedForward
from glassformer.layers.norm import RMSNorm
from glassformer.models.recurrent import RecurrentEncoder

COUNTS = {2: "two", 3: "three", 5: "five", 7: "seven", 12: "twelve"}


def eyebrow(example: Example, steps: int) -> str:
    """``One sentence through a Transformer, in twelve steps``"""
    return f"One {input_name(example.model)} through {title(example.model)}, in {COUNTS.get(steps, steps)} steps"


def title(model: nn.Module) -> str:
    """The architecture, in words: ``title`` of a model of one stack, by default the name of its class."""
    if not stacks(model):
        return "a recurrent network with attention"
    return "a Transformer" if len(stacks(model)) > 1 else str(getattr(model, "title", type(model).__name__))


def input_name(model: nn.Module) -> str:
    """An example in a word: text, image, series; of a model with two stacks, sentence."""
    names = input_names(model)
    return names[0] if len(names) == 1 else "sentence"


def model_line(model: nn.Module) -> str:
    """``3 + 3 layers · d_model 256 · 4 heads · …``"""
    layers = " + ".join(str(count_layers(model.get_submodule(stack))) for stack in embeddings(model))
    attention = next(module for module in model.modules() if isinstance(module, MultiHeadAttention))
    parts = [f"{layers} layers", f"d_model {width_of(_embeddings(model)[0])}", heads_of(attention)]
    parts += [*(_block_parts(model) if stacks(model) else _recurrent_parts(model)), *_ends(model)]
    return " · ".join([*parts, f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters"])


def heads_of(attention: MultiHeadAttention) -> str:
    """``8 heads of 64, 2 for k and v``"""
    heads, groups = attention.n_heads, attention.n_kv_heads
    d_k, d_v = attention.query.out_features // heads, attention.value.out_features // groups
    values = "" if d_k == d_v else f", d_v {d_v}"
    shared = "" if heads == groups else f", {groups} for k and v"
    return f"{heads} head{'s' * (heads > 1)} of {d_k}{values}{shared}"


def activation_of(module: Any) -> str:
    """Name of the activation of a module."""
    return next(name for name, function in ACTIVATIONS.items() if function is module.activation)


def width_of(embedding: nn.Module) -> int:
    """d_model of the stack above an embedding."""
    if isinstance(embedding, PatchEmbedding):
        return embedding.projection.out_features
    assert isinstance(embedding, TokenEmbedding)
    return embedding.weight.size(1)


def count_layers(stack: nn.Module) -> int:
    """Number of layers of a stack."""
    layers = stack.rightward if isinstance(stack, RecurrentEncoder) else stack.layers
    assert isinstance(layers, nn.ModuleList)
    return len(layers)


def is_tied(model: nn.Module) -> bool | None:
    """True if the output projection has the matrix of an embedding; None without a projection onto the vocabulary."""
    projection = token_projection(model)
    return None if projection is None else any(one.weight is projection.weight for one in _embeddings(model))


def _embeddings(model: nn.Module) -> Sequence[Any]:
    return [model.get_submodule(path) for path in embeddings(model).values()]


def _block_parts(model: nn.Module) -> Iterator[str]:
    block: Any = model.get_submodule(f"{stacks(model)[0]}.layers.0")
    feed_forward: FeedForward | GatedFeedForward = block.feed_forward
    wrapped = block.feed_forward_norm
    yield f"d_ff {feed_forward.inner.out_features}"
    yield f"{'RMSNorm, ' * isinstance(wrapped.norm, RMSNorm)}{'pre' if wrapped.pre else 'post'}-norm"
    positions = positions_of(model, stacks(model)[0])
    yield f"{'no' if positions == 'none' else positions} positions"
    yield f"{'gated ' * isinstance(feed_forward, GatedFeedForward)}{activation_of(feed_forward)}"


def _recurrent_parts(model: nn.Module) -> Iterator[str]:
    yield f"LSTMs of {max(module.hidden_size for module in model.modules() if isinstance(module, nn.LSTM))}"


def _ends(model: Any) -> Iterator[str]:
    """Sizes of input and output: the ``extent`` of the model, or its vocabularies."""
    yield from getattr(model, "extent", ())
    sizes = dict.fromkeys(one.weight.size(0) for one in _embeddings(model) if isinstance(one, TokenEmbedding))
    if sizes:
        yield "vocabulary " + " and ".join(f"{size:,}" for size in sizes)
    if (tied := is_tied(model)) is not None:
        yield "tied embeddings" if tied else "untied embeddings"
