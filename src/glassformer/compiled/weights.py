"""Copies of a model's weights in the order in which the kernels read them."""

from typing import cast

import torch
from torch import Tensor, nn

from glassformer.layers.block import Block
from glassformer.layers.block import Stack as Blocks
from glassformer.layers.embedding import OutputProjection, TokenEmbedding
from glassformer.layers.feed_forward import ACTIVATIONS
from glassformer.models.encoder_decoder import EncoderDecoderConfig
from glassformer.native import abi
from glassformer.native.abi import Layer, Linear, Norm, Stack
from glassformer.native.library import Kernels

ACTIVATION_NUMBERS = {function: abi.ACTIVATIONS[name] for name, function in ACTIVATIONS.items()}
"""Number of each activation in the kernels."""


class Packed:
    """Makes the copies, and keeps them where they are for as long as it lives: the kernels know their addresses."""

    def __init__(self, functions: Kernels, int8: bool):
        self.functions = functions
        self.int8 = int8
        self._kept: list[Tensor] = []

    def stack(self, config: EncoderDecoderConfig, blocks: Blocks, embedding: TokenEmbedding) -> Stack:
        parts = [cast(Block, block) for block in blocks.layers]
        last = Norm() if blocks.final_norm is None else self.norm(blocks.final_norm)
        return Stack(
            len(parts),
            config.d_model,
            config.n_heads,
            *config.head_sizes,
            blocks.final_norm is not None,
            ACTIVATION_NUMBERS[parts[0].feed_forward.activation],
            (Layer * len(parts))(*map(self.layer, parts)),
            last,
            self._keep(embedding.weight),
            len(embedding.weight),
        )

    def layer(self, block: Block) -> Layer:
        own, cross = block.self_attention, block.cross_attention
        layer = Layer(
            own_norm=self.norm(block.self_attention_norm.norm),
            feed_forward_norm=self.norm(block.feed_forward_norm.norm),
            own=self.linear(own.query, own.key, own.value),
            own_output=self.linear(own.output),
            inner=self.linear(block.feed_forward.inner),
            outer=self.linear(block.feed_forward.outer),
        )
        if cross is not None and block.cross_attention_norm is not None:
            layer.cross_norm = self.norm(block.cross_attention_norm.norm)
            layer.query, layer.cross_output = self.linear(cross.query), self.linear(cross.output)
            layer.memory = self.linear(cross.key, cross.value)
        return layer

    def norm(self, norm: nn.Module) -> Norm:
        assert isinstance(norm, nn.LayerNorm)
        return Norm(self._keep(norm.weight), self._keep(norm.bias), norm.eps)

    def linear(self, *parts: nn.Linear | OutputProjection) -> Linear:
        """The ``parts``, which read the same input, as one product."""
        weights = [part.weight.detach() for part in parts]
        weight = weights[0].contiguous() if len(parts) == 1 else torch.cat(weights)  # the vocabulary's is the largest
        outputs, inputs = weight.shape
        across, down = -(-outputs // self.functions.panel) * self.functions.panel, -(-inputs // 4) * 4
        scales = weight.new_empty(across) if self.int8 else None
        size, dtype = (across * down, torch.uint8) if self.int8 else (across * inputs, weight.dtype)
        packed = weight.new_empty(size, dtype=dtype)
        where = None if scales is None else scales.data_ptr()
        self.functions.pack(weight.data_ptr(), outputs, inputs, packed.data_ptr(), where)
        biases = [part.bias.detach() for part in parts if part.bias is not None]
        bias = torch.cat(biases) if biases else None
        return Linear(outputs, inputs, self._keep(packed), self._keep(scales), self._keep(bias))

    def _keep(self, tensor: Tensor | None) -> int | None:
        """Its address."""
        if tensor is None:
            return None
        self._kept.append(tensor := tensor.detach().contiguous())
        return tensor.data_ptr()
