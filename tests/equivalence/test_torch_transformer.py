"""With the same weights, our stacks compute what ``torch.nn.TransformerEncoder`` and ``TransformerDecoder`` do."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.block import Stack
from glassformer.layers.mask import Mask, causal_mask
from glassformer.models.encoder_decoder import EncoderDecoder

D_MODEL, HEADS, D_FF = 16, 4, 24
SAME = {"d_model": D_MODEL, "n_heads": HEADS, "d_k": None, "d_v": None, "d_ff": D_FF}
TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}


def attention_pairs(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> Iterator[tuple[Tensor, Tensor]]:
    yield theirs.in_proj_weight, torch.cat([ours.query.weight, ours.key.weight, ours.value.weight])
    yield theirs.in_proj_bias, torch.cat([ours.query.bias, ours.key.bias, ours.value.bias])
    yield from module_pairs(theirs.out_proj, ours.output)


def module_pairs(theirs: nn.Module, ours: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    yield from ((theirs.weight, ours.weight), (theirs.bias, ours.bias))


@torch.no_grad()
def copy_weights(theirs: nn.Module, ours: Stack) -> None:
    for layer, block in zip(theirs.layers, ours.layers, strict=True):
        pairs = [
            *attention_pairs(layer.self_attn, block.self_attention),
            *module_pairs(layer.linear1, block.feed_forward.inner),
            *module_pairs(layer.linear2, block.feed_forward.outer),
            *module_pairs(layer.norm1, block.self_attention_norm.norm),
        ]
        if block.cross_attention is None:
            pairs += module_pairs(layer.norm2, block.feed_forward_norm.norm)
        else:
            pairs += attention_pairs(layer.multihead_attn, block.cross_attention)
            pairs += module_pairs(layer.norm2, block.cross_attention_norm.norm)
            pairs += module_pairs(layer.norm3, block.feed_forward_norm.norm)
        for to, value in pairs:
            to.copy_(value)
    if ours.final_norm is not None:
        for to, value in module_pairs(theirs.norm, ours.final_norm):
            to.copy_(value)


def layer_options(norm_order: str, activation: str) -> dict[str, object]:
    shared = {"d_model": D_MODEL, "nhead": HEADS, "dim_feedforward": D_FF, "dropout": 0.0, "batch_first": True}
    return {**shared, "activation": activation, "norm_first": norm_order == "pre", "dtype": torch.float64}


def final_norm(norm_order: str) -> nn.Module | None:
    return nn.LayerNorm(D_MODEL, dtype=torch.float64) if norm_order == "pre" else None


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_stacks_equal_those_of_pytorch(
    make_model: Callable[..., EncoderDecoder], norm_order: str, activation: str, n_layers: int
) -> None:
    values = {"n_encoder_layers": n_layers, "n_decoder_layers": n_layers}
    model = make_model(**SAME, **values, norm_order=norm_order, activation=activation)
    options = layer_options(norm_order, activation)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**options), n_layers, final_norm(norm_order), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), n_layers, final_norm(norm_order))
    copy_weights(encoder, model.encoder)
    copy_weights(decoder, model.decoder)
    source = torch.randn(3, 7, D_MODEL, dtype=torch.float64, requires_grad=True)
    target = torch.randn(3, 5, D_MODEL, dtype=torch.float64, requires_grad=True)
    seen = torch.arange(7) < torch.tensor([7, 4, 1])[:, None]
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    memory = model.encoder(source, Mask(seen))
    ours = model.decoder(target, causal_mask(), memory, Mask(seen))
    their_memory = encoder(source, src_key_padding_mask=~seen)
    theirs = decoder(target, their_memory, tgt_mask=~causal, memory_key_padding_mask=~seen)
    torch.testing.assert_close(memory, their_memory, **TOLERANCE)
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    gradients = [torch.autograd.grad(output.sin().sum(), (source, target)) for output in (ours, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1], **TOLERANCE)
