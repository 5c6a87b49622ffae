"""Data flow between modules, by the names of the recorded tensors: the arrows of the paper's figure 1."""

from torch import nn

from glassformer.errors import ConfigError
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import AddNorm, Block, Stack
from glassformer.layers.embedding import OutputProjection, PatchEmbedding, TokenEmbedding
from glassformer.layers.position import encoding_of
from glassformer.models.recurrent import RecurrentDecoder, RecurrentEncoder


def embeddings(model: nn.Module) -> dict[str, str]:
    """The embedding that enters each stack, both by name and in order: the first embedding enters the first stack."""
    children = dict(model.named_children())
    found = [name for name, child in children.items() if isinstance(child, TokenEmbedding | PatchEmbedding)]
    above = [name for name, child in children.items() if isinstance(child, Stack | RecurrentEncoder | RecurrentDecoder)]
    return dict(zip(above, found, strict=True))


def embedding_of(model: nn.Module, stack: str) -> str:
    """Name of the embedding that enters ``stack``."""
    return embeddings(model)[stack]


def input_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the model's inputs, one for each stack: source and target; or text, image, series."""
    names = list(embeddings(model).values())
    if len(names) == 1:
        return (str(getattr(model, "reads", "text")),)
    return tuple(name.removesuffix("_embedding") for name in names)


def positions_of(model: nn.Module, stack: str) -> str:
    """Positional encoding of a stack, by its name in ``ENCODINGS``: sinusoidal, learned, rotary or none."""
    attention = next((one for one in model.get_submodule(stack).modules() if isinstance(one, MultiHeadAttention)), None)
    added = getattr(model.get_submodule(embedding_of(model, stack)), "position", None)
    return encoding_of(added, None if attention is None else attention.rotary)


def stacks(model: nn.Module) -> list[str]:
    """Names of the stacks of blocks: "encoder", "decoder" or both; none in a recurrent model."""
    return [name for name, child in model.named_children() if isinstance(child, Stack)]


def token_projection(model: nn.Module) -> OutputProjection | None:
    """The projection onto the vocabulary; None in a model that predicts no tokens."""
    projection = getattr(model, "output_projection", None)
    reads_tokens = any(isinstance(child, TokenEmbedding) for child in model.children())
    return projection if reads_tokens and isinstance(projection, OutputProjection) else None


def sublayers(block: Block) -> list[str]:
    """Names of a layer's parts, in the order in which they are applied."""
    middle = [] if block.cross_attention is None else ["cross_attention"]
    return ["self_attention", *middle, "feed_forward"]


def is_pre(model: nn.Module, stack: str) -> bool:
    """True if normalization precedes the sub-layers."""
    return bool(_block(model, stack, 0).self_attention_norm.pre)


def residual(model: nn.Module, path: str) -> str:
    """Input of the sub-layer at ``path`` (``decoder.layers.1.feed_forward``) on the residual stream."""
    stack, layer, part = parts_of(path)
    order = sublayers(_block(model, stack, layer))
    place = order.index(part)
    if place == 0 and layer == 0:
        return embedded(model, embedding_of(model, stack))
    if place == 0:
        layer, before = layer - 1, sublayers(_block(model, stack, layer - 1))[-1]
    else:
        before = order[place - 1]
    return f"{stack}.layers.{layer}.{before}_norm.{'sum' if is_pre(model, stack) else 'normed'}"


def input_of(model: nn.Module, path: str) -> str:
    """Argument of the sub-layer at ``path``: with the pre-norm order, the normalized residual stream."""
    if isinstance(getattr(model, "decoder", None), RecurrentDecoder):
        return "decoder.states_0"  # the layer that attends
    return f"{path}_norm.normed" if is_pre(model, parts_of(path)[0]) else residual(model, path)


def keys_of(model: nn.Module, path: str) -> str:
    """Tensor from which the attention at ``path`` computes its keys and values."""
    return "memory" if path.endswith("cross_attention") else input_of(model, path)


def output_of(model: nn.Module, stack: str) -> str:
    """Output of a stack."""
    module = model.get_submodule(stack)
    assert isinstance(module, Stack)
    return f"{stack}.normed" if module.final_norm is not None else residual_stream(model, stack)[-1]


def residual_stream(model: nn.Module, stack: str) -> list[str]:
    """The residual stream of a stack: the embedding, then the end of every layer."""
    layers = model.get_submodule(f"{stack}.layers")
    assert isinstance(layers, nn.ModuleList)
    end = "sum" if is_pre(model, stack) else "normed"
    ends = [f"{stack}.layers.{number}.feed_forward_norm.{end}" for number in range(len(layers))]
    return [embedded(model, embedding_of(model, stack)), *ends]


def embedded(model: nn.Module, embedding: str) -> str:
    """The last name of an embedding: with positions that are added, their sum."""
    module = model.get_submodule(embedding)
    if isinstance(module, TokenEmbedding) and module.norm is not None:
        return f"{embedding}.normed"
    return f"{embedding}.{_summed(module)}"


def normalized(model: nn.Module, norm: str) -> str:
    """Input of the normalization at ``norm``."""
    path = norm.rpartition(".")[0]
    owner = model.get_submodule(path)
    if isinstance(owner, Stack):
        return residual_stream(model, path)[-1]
    if isinstance(owner, TokenEmbedding):
        return f"{path}.{_summed(owner)}"
    if not isinstance(owner, AddNorm):
        return f"{path}.activated"  # BERT's, before the output projection
    return residual(model, path.removesuffix("_norm")) if owner.pre else f"{path}.sum"


def parts_of(path: str) -> tuple[str, int, str]:
    """``decoder.layers.1.feed_forward`` → ("decoder", 1, "feed_forward")."""
    words = path.split(".")
    if len(words) != 4 or words[1] != "layers":
        raise ConfigError(f"{path} is not a sub-layer; one is called decoder.layers.1.feed_forward")
    return words[0], int(words[2]), words[3]


def _summed(embedding: nn.Module) -> str:
    if isinstance(embedding, PatchEmbedding):
        return "positioned"
    assert isinstance(embedding, TokenEmbedding)
    if embedding.segment is not None:
        return "segmented"
    return "scaled" if embedding.position is None else "positioned"


def _block(model: nn.Module, stack: str, layer: int) -> Block:
    block = model.get_submodule(f"{stack}.layers.{layer}")
    assert isinstance(block, Block)
    return block
