"""Pegasus (Zhang et al. 2020, arXiv:1912.08777): pre-norm and sinusoidal."""

from glassformer.interop.families.layers import (
    absent,
    descendant,
    embeddings,
    exact_positions,
    layers,
    position_tables,
    sines_first,
)
from glassformer.interop.table import Fixed, TensorRow
from glassformer.models.encoder_decoder import EncoderDecoderConfig


def _rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    order = sines_first(config.d_model)
    return [*embeddings(config, order), *layers(config, order)]


def _fixed(config: EncoderDecoderConfig) -> list[Fixed]:
    return [*absent(config), *position_tables(config, written=True)]


PEGASUS = descendant(
    model_type="pegasus",
    architecture="PegasusForConditionalGeneration",
    our_values={
        "kind": "encoder_decoder",
        "norm_order": "pre",
        "positions": "sinusoidal",
        "scale_embeddings": True,
        "norm_embeddings": False,
    },
    their_values={"scale_embedding": True},
    rows=_rows,
    fixed=_fixed,
    make_exact=exact_positions,
)
