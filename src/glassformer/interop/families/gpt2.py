"""GPT-2 (Radford et al. 2019): pre-norm, learned positions; queries, keys and values are one matrix, transposed."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.config import ConfigError
from glassformer.interop.table import Family, Fixed, Row, Setting, linear
from glassformer.models.gpt import GPTConfig

PROJECTIONS = ("query", "key", "value")
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Our word for each of theirs, in every stack of one kind of layer."""


def _rows(config: GPTConfig) -> list[Row]:
    embedding = Row(("embedding.weight",), ("transformer.wte.weight",))
    rows = [Row(("embedding.position.weight",), ("transformer.wpe.weight",))]
    if config.tie_embeddings:
        rows.append(replace(embedding, aliases=("lm_head.weight",)))
    else:
        rows += [embedding, Row(("output_projection.weight",), ("lm_head.weight",))]
    rows += linear("decoder.final_norm", "transformer.ln_f")
    for layer in range(config.n_layers):
        ours, theirs = f"decoder.layers.{layer}", f"transformer.h.{layer}"
        rows += _fused(f"{ours}.self_attention", f"{theirs}.attn.c_attn")
        rows += _transposed(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj")
        rows += linear(f"{ours}.self_attention_norm.norm", f"{theirs}.ln_1")
        rows += _transposed(f"{ours}.feed_forward.inner", f"{theirs}.mlp.c_fc")
        rows += _transposed(f"{ours}.feed_forward.outer", f"{theirs}.mlp.c_proj")
        rows += linear(f"{ours}.feed_forward_norm.norm", f"{theirs}.ln_2")
    return rows


def _fused(ours: str, theirs: str) -> list[Row]:
    def apart(tensors: list[Tensor]) -> list[Tensor]:
        return list(_turned(tensors)[0].chunk(3))

    def together(tensors: list[Tensor]) -> list[Tensor]:
        return _turned([torch.cat(tensors)])

    kinds = ("weight", "bias")
    return [
        Row(tuple(f"{ours}.{name}.{kind}" for name in PROJECTIONS), (f"{theirs}.{kind}",), apart, together)
        for kind in kinds
    ]


def _transposed(ours: str, theirs: str) -> list[Row]:
    return linear(ours, theirs, _turned, _turned)


def _turned(tensors: list[Tensor]) -> list[Tensor]:
    """Their ``Conv1D`` holds matrices transposed."""
    return [tensor.t() for tensor in tensors]


def _to_ours(theirs: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    return {"d_ff": theirs.get("n_inner") or 4 * theirs["n_embd"], "attention.dropout": theirs["attn_pdrop"]}


def _to_theirs(config: GPTConfig) -> dict[str, Any]:
    usual = config.d_model / config.n_heads
    if config.d_head != usual or config.kv_heads != config.n_heads:
        raise ConfigError(
            f"model.attention.d_head={config.d_head}, n_kv_heads={config.kv_heads}: a GPT-2 of Hugging Face has "
            f"n_heads={config.n_heads} of each, d_model/n_heads={usual:g} wide; train with that"
        )
    dropout = config.dropout if config.attention.dropout is None else config.attention.dropout
    return {"n_inner": config.d_ff, "attn_pdrop": dropout, "embd_pdrop": config.dropout}


def _renamed(name: str) -> str:
    """The oldest folders hold the stack alone, without the prefix."""
    return f"transformer.{name}" if re.match(r"(wte|wpe|h|ln_f)\.", name) else name


def _none(config: GPTConfig) -> list[Fixed]:
    return []


GPT2 = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    task="language",
    settings=(
        Setting("vocab_size", ("vocab_size",)),
        Setting("d_model", ("n_embd",)),
        Setting("n_heads", ("n_head",)),
        Setting("n_layers", ("n_layer",)),
        Setting("max_length", ("n_positions",)),
        Setting("dropout", ("resid_pdrop",)),
        Setting("norm_epsilon", ("layer_norm_epsilon",)),
        Setting("activation", ("activation_function",), ACTIVATIONS),
        Setting("tie_embeddings", ("tie_word_embeddings",)),
    ),
    ours={
        "kind": "gpt",
        "positions": "learned",
        "norm": "layer",
        "gated": False,
        "bias": True,
        "attention.pattern": "dense",
    },
    theirs={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    rows=_rows,
    fixed=_none,
    further_to_ours=_to_ours,
    further_to_theirs=_to_theirs,
    unused={r"transformer\.h\.\d+\.attn\.(masked_)?bias": ""},  # the causal mask, once stored
    renamed=_renamed,
    training={"embd_pdrop": "resid_pdrop"},
)
