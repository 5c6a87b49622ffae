"""Pegasus (Zhang et al. 2020, arXiv:1912.08777): pre-norm and sinusoidal."""

from glassformer.interop.families.layers import (
    SETTINGS,
    TRAINING,
    WRITTEN,
    absent,
    embeddings,
    embeddings_to_ours,
    embeddings_to_theirs,
    exact_positions,
    layers,
    position_tables,
    sines_first,
)
from glassformer.interop.table import Family, Fixed, Row
from glassformer.models.encoder_decoder import EncoderDecoderConfig


def _rows(config: EncoderDecoderConfig) -> list[Row]:
    order = sines_first(config.d_model)
    return [*embeddings(config, order), *layers(config, order)]


def _fixed(config: EncoderDecoderConfig) -> list[Fixed]:
    return [*absent(config), *position_tables(config, written=True)]


PEGASUS = Family(
    model_type="pegasus",
    architecture="PegasusForConditionalGeneration",
    settings=SETTINGS,
    ours={"kind": "encoder_decoder", "norm_order": "pre", "positions": "sinusoidal", "embedding": "scaled"},
    theirs={"scale_embedding": True},
    rows=_rows,
    fixed=_fixed,
    further_to_ours=embeddings_to_ours,
    further_to_theirs=embeddings_to_theirs,
    exact=exact_positions,
    written=WRITTEN,
    training=TRAINING,
)
