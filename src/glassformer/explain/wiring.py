"""Which recorded tensor enters which module: the arrows of the paper's figure 1, by name."""

from torch import nn

from glassformer.config import ConfigError
from glassformer.layers.block import Block, Stack

EMBEDDING = {"encoder": "source_embedding", "decoder": "target_embedding"}
"""What enters a stack."""


def sublayers(block: Block) -> list[str]:
    """The names of a layer's parts, in the order in which they are applied."""
    middle = [] if block.cross_attention is None else ["cross_attention"]
    return ["self_attention", *middle, "feed_forward"]


def is_pre(model: nn.Module, stack: str) -> bool:
    """Whether LayerNorm stands before the sub-layers."""
    return bool(_block(model, stack, 0).self_attention_norm.pre)


def residual(model: nn.Module, path: str) -> str:
    """What enters the sub-layer at ``path`` (``decoder.layers.1.feed_forward``) on the residual stream."""
    stack, layer, part = parts_of(path)
    order = sublayers(_block(model, stack, layer))
    place = order.index(part)
    if place == 0 and layer == 0:
        return embedded(model, EMBEDDING[stack])
    if place == 0:
        layer, before = layer - 1, sublayers(_block(model, stack, layer - 1))[-1]
    else:
        before = order[place - 1]
    return f"{stack}.layers.{layer}.{before}_norm.{'sum' if is_pre(model, stack) else 'normed'}"


def entering(model: nn.Module, path: str) -> str:
    """What the sub-layer at ``path`` computes from: with the pre-norm order, the residual stream normalised."""
    return f"{path}_norm.normed" if is_pre(model, parts_of(path)[0]) else residual(model, path)


def asked(model: nn.Module, path: str) -> str:
    """Whose keys and values the attention at ``path`` reads."""
    return "memory" if path.endswith("cross_attention") else entering(model, path)


def leaving(model: nn.Module, stack: str) -> str:
    """What comes out of a stack."""
    module = model.get_submodule(stack)
    assert isinstance(module, Stack)
    return f"{stack}.normed" if module.final_norm is not None else residual_stream(model, stack)[-1]


def residual_stream(model: nn.Module, stack: str) -> list[str]:
    """What flows through a stack: the embedding, then the end of every layer."""
    layers = model.get_submodule(f"{stack}.layers")
    assert isinstance(layers, nn.ModuleList)
    end = "sum" if is_pre(model, stack) else "normed"
    ends = [f"{stack}.layers.{number}.feed_forward_norm.{end}" for number in range(len(layers))]
    return [embedded(model, EMBEDDING[stack]), *ends]


def embedded(model: nn.Module, embedding: str) -> str:
    """The last name of an embedding: with positions that are added, their sum."""
    return f"{embedding}.{'scaled' if model.get_submodule(embedding).position is None else 'positioned'}"


def parts_of(path: str) -> tuple[str, int, str]:
    """``decoder.layers.1.feed_forward`` → ("decoder", 1, "feed_forward")."""
    words = path.split(".")
    if len(words) != 4 or words[1] != "layers":
        raise ConfigError(f"{path} is not a sub-layer; one is called decoder.layers.1.feed_forward")
    return words[0], int(words[2]), words[3]


def _block(model: nn.Module, stack: str, layer: int) -> Block:
    block = model.get_submodule(f"{stack}.layers.{layer}")
    assert isinstance(block, Block)
    return block
