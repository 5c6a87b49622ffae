"""Blenderbot (Roller et al. 2020, arXiv:2004.13637): pre-norm, with a learned table of positions on each side."""

from typing import Any

from torch import Tensor

from glassformer.interop.families.layers import (
    SETTINGS,
    WRITTEN,
    absent,
    embeddings,
    embeddings_to_ours,
    embeddings_to_theirs,
    layers,
)
from glassformer.interop.table import Family, Row, reordered
from glassformer.models.encoder_decoder import EncoderDecoderConfig

ENCODER, DECODER = "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"


def _rows(config: EncoderDecoderConfig) -> list[Row]:
    return [*embeddings(config), *positions(config), *layers(config)]


def positions(config: EncoderDecoderConfig) -> list[Row]:
    """Tied embeddings have one table of positions here, and theirs has the same one twice."""
    if not config.tie_embeddings:
        return [
            reordered("source_embedding.position.weight", ENCODER),
            reordered("target_embedding.position.weight", DECODER),
        ]

    def both(tensors: list[Tensor]) -> list[Tensor]:
        return [tensors[0], tensors[0].clone()]

    return [Row(("source_embedding.position.weight",), (ENCODER, DECODER), lambda tensors: tensors[:1], both)]


def _to_ours(theirs: dict[str, Any], weights: Any) -> dict[str, Any]:
    """Two tables of positions that differ need two embeddings, even on one matrix."""
    values = embeddings_to_ours(theirs, weights)
    if ENCODER in weights and DECODER in weights:
        values["tie_embeddings"] &= bool((weights[ENCODER] == weights[DECODER]).all())
    return values


BLENDERBOT = Family(
    model_type="blenderbot",
    architecture="BlenderbotForConditionalGeneration",
    settings=SETTINGS,
    ours={"kind": "encoder_decoder", "norm_order": "pre", "positions": "learned"},
    theirs={"scale_embedding": True},
    rows=_rows,
    fixed=absent,
    further_to_ours=_to_ours,
    further_to_theirs=embeddings_to_theirs,
    written=WRITTEN,
)
