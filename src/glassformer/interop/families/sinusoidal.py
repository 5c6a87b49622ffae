"""Encoder–decoders with sinusoidal positions: Marian (post-norm, as in the paper) and Pegasus (pre-norm).

Marian is Junczys-Dowmunt et al. 2018, with the OPUS-MT models; Pegasus is Zhang et al. 2020, arXiv:1912.08777.
"""

from functools import partial
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


def _rows(config: EncoderDecoderConfig, shared: bool = True) -> list[TensorRow]:
    order = sines_first(config.d_model)
    return [*embeddings(config, order, shared=shared), *layers(config, order)]


def _fixed(config: EncoderDecoderConfig, exported: bool = True) -> list[Fixed]:
    return [*absent_biases(config), *position_tables(config, exported)]


def _export_marian(config: EncoderDecoderConfig) -> dict[str, Any]:
    source, target = config.vocab_sizes
    tied = config.tie_embeddings
    matrices = {"share_encoder_decoder_embeddings": tied, "tie_word_embeddings": tied}
    return {**export_attention(config), "vocab_size": source, "decoder_vocab_size": target, **matrices}


_SINUSOIDAL = {
    "kind": "encoder_decoder",
    "positions": "sinusoidal",
    "scale_embeddings": True,
    "norm_embeddings": False,
}

MARIAN = descendant(
    model_type="marian",
    architecture="MarianMTModel",
    our_values={**_SINUSOIDAL, "norm_order": "post"},
    their_values={"scale_embedding": True},
    rows=partial(_rows, shared=False),
    fixed=partial(_fixed, exported=False),
    export_settings=_export_marian,
    make_exact=make_positions_exact,
)
PEGASUS = descendant(
    model_type="pegasus",
    architecture="PegasusForConditionalGeneration",
    our_values={**_SINUSOIDAL, "norm_order": "pre"},
    their_values={"scale_embedding": True},
    rows=_rows,
    fixed=_fixed,
    make_exact=make_positions_exact,
)
