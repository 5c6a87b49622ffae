"""BART (Lewis et al. 2020, arXiv:1910.13461), and mBART (Liu et al. 2020, arXiv:2001.08210), which is pre-norm.

On each side a table of positions whose first two rows go unused, and a LayerNorm of the embedding.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from glassformer.interop.families.layers import (
    SETTINGS,
    descendant,
    embeddings,
    embeddings_to_ours,
    layers,
    of_both,
    same_in_both,
)
from glassformer.interop.table import Change, Setting, TensorRow, unchanged
from glassformer.models.encoder_decoder import EncoderDecoderConfig

UNUSED = 2
"""Rows before the first position."""


def _without_unused(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor[UNUSED:] for tensor in tensors]


def _with_unused(tensors: list[Tensor]) -> list[Tensor]:
    return [F.pad(tensor, (0, 0, UNUSED, 0)) for tensor in tensors]


OF_BOTH: tuple[tuple[str, str, Change, Change], ...] = (
    ("position.weight", "embed_positions.weight", _without_unused, _with_unused),
    ("norm.weight", "layernorm_embedding.weight", unchanged, unchanged),
    ("norm.bias", "layernorm_embedding.bias", unchanged, unchanged),
)


def _rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    return [*embeddings(config), *(row for names in OF_BOTH for row in of_both(config, *names)), *layers(config)]


def _to_ours(theirs: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    values = embeddings_to_ours(theirs, weights)
    same = all(same_in_both(weights, name, inwards) for _, name, inwards, _ in OF_BOTH)
    return {**values, "tie_embeddings": values["tie_embeddings"] and same}


def _renamed(name: str) -> str:
    """A folder of the bare model, as the first BARTs are, has no prefix."""
    return f"model.{name}" if re.match(r"(shared|encoder|decoder)\.", name) else name


_OURS = {"kind": "encoder_decoder", "positions": "learned", "norm_embeddings": True}

BART = descendant(
    model_type="bart",
    architecture="BartForConditionalGeneration",
    other_architectures=("BartModel",),
    settings=(*SETTINGS, Setting("scale_embeddings", ("scale_embedding",))),
    our_values={**_OURS, "norm_order": "post"},
    their_values={},
    rows=_rows,
    further_to_ours=_to_ours,
    ignored_weights={r"model\.(encoder|decoder)\.version": ""},
    canonical_name=_renamed,
)
MBART = replace(
    BART,
    model_type="mbart",
    architecture="MBartForConditionalGeneration",
    other_architectures=("MBartModel",),
    our_values={**_OURS, "norm_order": "pre"},
)
PLBART = replace(
    BART, model_type="plbart", architecture="PLBartForConditionalGeneration", other_architectures=(), exported=False
)
