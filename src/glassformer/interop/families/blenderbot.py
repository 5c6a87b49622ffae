"""Blenderbot (Roller et al. 2020, arXiv:2004.13637): pre-norm, with a learned table of positions on each side."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from glassformer.interop.families.layers import (
    descendant,
    embeddings,
    embeddings_to_ours,
    layers,
    of_both,
    same_in_both,
)
from glassformer.interop.table import TensorRow
from glassformer.models.encoder_decoder import EncoderDecoderConfig

POSITIONS = "embed_positions.weight"


def _rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    return [*embeddings(config), *of_both(config, "position.weight", POSITIONS), *layers(config)]


def _to_ours(theirs: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    values = embeddings_to_ours(theirs, weights)
    return {**values, "tie_embeddings": values["tie_embeddings"] and same_in_both(weights, POSITIONS)}


BLENDERBOT = descendant(
    model_type="blenderbot",
    architecture="BlenderbotForConditionalGeneration",
    our_values={
        "kind": "encoder_decoder",
        "norm_order": "pre",
        "positions": "learned",
        "scale_embeddings": True,
        "norm_embeddings": False,
    },
    their_values={"scale_embedding": True},
    rows=_rows,
    further_to_ours=_to_ours,
)
