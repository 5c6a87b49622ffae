"""M2M100 (Fan et al. 2020, arXiv:2010.11125), which NLLB is too: pre-norm, and tensor2tensor's sinusoids.

Those have other rates than section 3.5's, and begin behind the padding's index. They come as a learned table, so such a
model can be imported; the way back is Blenderbot's.
"""

import math

import torch
from torch import Tensor

from glassformer.interop.families.layers import descendant, embeddings, layers
from glassformer.interop.table import TensorRow
from glassformer.models.encoder_decoder import EncoderDecoderConfig

PADDING = 1
"""The id of their padding symbol, after which positions begin."""


def tensor2tensor_sinusoids(length: int, d_model: int, first: int) -> Tensor:
    """sin(pos · r_i), then cos, with rates r_i = 10000^(-i / (d_model/2 - 1)), in float32 as theirs are."""
    half = d_model // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = torch.arange(first, first + length).float()[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return torch.nn.functional.pad(table, (0, d_model - 2 * half))


def _rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    return [*embeddings(config), *_positions(config), *layers(config)]


def _positions(config: EncoderDecoderConfig) -> list[TensorRow]:
    def table(_: list[Tensor]) -> list[Tensor]:
        return [tensor2tensor_sinusoids(config.max_length, config.d_model, PADDING + 1)]

    sides = ["source"] if config.tie_embeddings else ["source", "target"]
    return [TensorRow((f"{side}_embedding.position.weight",), (), table) for side in sides]


M2M_100 = descendant(
    model_type="m2m_100",
    architecture="M2M100ForConditionalGeneration",
    our_values={
        "kind": "encoder_decoder",
        "norm_order": "pre",
        "positions": "learned",
        "scale_embeddings": True,
        "norm_embeddings": False,
    },
    their_values={"scale_embedding": True, "pad_token_id": PADDING},
    rows=_rows,
    exported=False,
)
