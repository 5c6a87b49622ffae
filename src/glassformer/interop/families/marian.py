"""Marian (Junczys-Dowmunt et al. 2018): the paper's own layout, post-norm and sinusoidal; the OPUS-MT models."""

from typing import Any

from glassformer.interop.families.layers import (
    absent,
    attention_to_theirs,
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
    return [*embeddings(config, order, shared=False), *layers(config, order)]


def _fixed(config: EncoderDecoderConfig) -> list[Fixed]:
    return [*absent(config), *position_tables(config, written=False)]


def _to_theirs(config: EncoderDecoderConfig) -> dict[str, Any]:
    source, target = config.vocab_sizes
    tied = config.tie_embeddings
    matrices = {"share_encoder_decoder_embeddings": tied, "tie_word_embeddings": tied}
    return {**attention_to_theirs(config), "vocab_size": source, "decoder_vocab_size": target, **matrices}


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
    rows=_rows,
    fixed=_fixed,
    further_to_theirs=_to_theirs,
    make_exact=exact_positions,
)
