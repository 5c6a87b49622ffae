"""Encoder–decoders with sinusoidal positions: Marian (post-norm, as in the paper) and Pegasus (pre-norm).

Marian is Junczys-Dowmunt et al. 2018, with the OPUS-MT models; Pegasus is Zhang et al. 2020, arXiv:1912.08777.
"""

from typing import Any

from glassformer.interop.families.encoder_decoder import (
    absent_biases,
    descendant,
    embeddings,
    export_attention,
    layers,
    make_positions_exact,
    position_tables,
    sines_first,
)
from glassformer.interop.table import Fixed, TensorRow
from glassformer.models.encoder_decoder import EncoderDecoderConfig


def _marian_rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    order = sines_first(config.d_model)
    return [*embeddings(config, order, shared=False), *layers(config, order)]


def _marian_fixed(config: EncoderDecoderConfig) -> list[Fixed]:
    return [*absent_biases(config), *position_tables(config, exported=False)]


def _export_marian(config: EncoderDecoderConfig) -> dict[str, Any]:
    source, target = config.vocab_sizes
    tied = config.tie_embeddings
    matrices = {"share_encoder_decoder_embeddings": tied, "tie_word_embeddings": tied}
    return {**export_attention(config), "vocab_size": source, "decoder_vocab_size": target, **matrices}


def _pegasus_rows(config: EncoderDecoderConfig) -> list[TensorRow]:
    order = sines_first(config.d_model)
    return [*embeddings(config, order), *layers(config, order)]


def _pegasus_fixed(config: EncoderDecoderConfig) -> list[Fixed]:
    return [*absent_biases(config), *position_tables(config, exported=True)]


_SINUSOIDAL = {
    "kind": "encoder_decoder",
    "positions": "sinusoidal",
    "scale_embeddings": True,
    "norm_embeddings": False,
}

MARIAN = descendant(
    model_type="marian",
    architecture="MarianMTModel",
    our_values={
        "kind": "encoder_decoder",
        "norm_order": "post",
        "positions": "sinusoidal",
        "scale_embeddings": True,
        "norm_embeddings": False,
    },
    their_values={"scale_embedding": True},
    rows=_marian_rows,
    fixed=_marian_fixed,
    export_settings=_export_marian,
    make_exact=make_positions_exact,
)
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
    rows=_pegasus_rows,
    fixed=_pegasus_fixed,
    make_exact=make_positions_exact,
)
