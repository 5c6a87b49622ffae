"""Encoder–decoders with a learned table of positions on each side: BART, mBART, PLBart, Blenderbot and M2M100.

BART (Lewis et al. 2020, arXiv:1910.13461) is post-norm, mBART (Liu et al. 2020, arXiv:2001.08210) pre-norm; both have a
LayerNorm after each embedding. Blenderbot (Roller et al. 2020, arXiv:2004.13637) is pre-norm without it.

M2M100 (Fan et al. 2020, arXiv:2010.11125), which includes NLLB, is pre-norm with the sinusoids of tensor2tensor. Their
rates differ from those of section 3.5, and positions begin after the padding index. An import stores them as a learned
table; an export of such a model is a Blenderbot.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.interop.families.encoder_decoder import (
    SETTINGS,
    descendant,
    embedding_rows,
    embeddings,
    equal_in_both,
    import_embeddings,
    layers,
)
from glassformer.interop.table import Change, Setting, TensorRow, unchanged
from glassformer.models.encoder_decoder import EncoderDecoderConfig

UNUSED_ROWS = 2
"""Rows before the first position in BART's tables."""
PADDING = 1
"""Padding id of M2M100, after which positions begin."""
POSITIONS = "embed_positions.weight"


def _drop_unused(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor[UNUSED_ROWS:] for tensor in tensors]


def _add_unused(tensors: list[Tensor]) -> list[Tensor]:
    return [F.pad(tensor, (0, 0, UNUSED_ROWS, 0)) for tensor in tensors]


BART_EMBEDDINGS: tuple[tuple[str, str, Change, Change], ...] = (
    ("position.weight", POSITIONS, _drop_unused, _add_unused),
    ("norm.weight", "layernorm_embedding.weight", unchanged, unchanged),
    ("norm.bias", "layernorm_embedding.bias", unchanged, unchanged),
)


def _bart_rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    rows = [row for names in BART_EMBEDDINGS for row in embedding_rows(config, *names)]
    return [*embeddings(config), *rows, *layers(config)]


def _import_bart(their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    values = import_embeddings(their_config, weights)
    same = all(equal_in_both(weights, name, on_import) for _, name, on_import, _ in BART_EMBEDDINGS)
    return {**values, "tie_embeddings": values["tie_embeddings"] and same}


def _canonical_bart(name: str) -> str:
    """Name with the prefix that folders of the bare model lack."""
    return f"model.{name}" if re.match(r"(shared|encoder|decoder)\.", name) else name


def _blenderbot_rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    return [*embeddings(config), *embedding_rows(config, "position.weight", POSITIONS), *layers(config)]


def _import_blenderbot(their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    values = import_embeddings(their_config, weights)
    return {**values, "tie_embeddings": values["tie_embeddings"] and equal_in_both(weights, POSITIONS)}


def tensor2tensor_sinusoids(length: int, d_model: int, first: int) -> Tensor:
    """sin(pos · r_i), then cos, with rates r_i = 10000^(-i / (d_model/2 - 1)), in float32 as in M2M100."""
    half = d_model // 2
    rates = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = torch.arange(first, first + length).float()[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return F.pad(table, (0, d_model - 2 * half))


def _m2m_100_rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    def table(_: list[Tensor]) -> list[Tensor]:
        return [tensor2tensor_sinusoids(config.max_length, config.d_model, PADDING + 1)]

    sides = ["source"] if config.tie_embeddings else ["source", "target"]
    positions = [TensorRow((f"{side}_embedding.position.weight",), (), table) for side in sides]
    return [*embeddings(config), *positions, *layers(config)]


_BART_VALUES = {"kind": "encoder_decoder", "positions": "learned", "norm_embeddings": True}
_PRE_NORM = {
    "kind": "encoder_decoder",
    "norm_order": "pre",
    "positions": "learned",
    "scale_embeddings": True,
    "norm_embeddings": False,
}

BART = descendant(
    model_type="bart",
    architecture="BartForConditionalGeneration",
    other_architectures=("BartModel",),
    settings=(*SETTINGS, Setting("scale_embeddings", ("scale_embedding",))),
    our_values={**_BART_VALUES, "norm_order": "post"},
    their_values={},
    rows=_bart_rows,
    import_settings=_import_bart,
    ignored_weights={r"model\.(encoder|decoder)\.version": ""},
    canonical_name=_canonical_bart,
)
MBART = replace(
    BART,
    model_type="mbart",
    architecture="MBartForConditionalGeneration",
    other_architectures=("MBartModel",),
    our_values={**_BART_VALUES, "norm_order": "pre"},
)
PLBART = replace(
    BART, model_type="plbart", architecture="PLBartForConditionalGeneration", other_architectures=(), exported=False
)
BLENDERBOT = descendant(
    model_type="blenderbot",
    architecture="BlenderbotForConditionalGeneration",
    our_values=_PRE_NORM,
    their_values={"scale_embedding": True},
    rows=_blenderbot_rows,
    import_settings=_import_blenderbot,
)
M2M_100 = descendant(
    model_type="m2m_100",
    architecture="M2M100ForConditionalGeneration",
    our_values=_PRE_NORM,
    their_values={"scale_embedding": True, "pad_token_id": PADDING},
    rows=_m2m_100_rows,
    exported=False,
)
