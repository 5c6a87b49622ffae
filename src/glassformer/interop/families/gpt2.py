"""GPT-2 (Radford et al. 2019): pre-norm, learned positions; queries, keys and values are one matrix, transposed.

Parameters of GPT-2 that a model lacks are written as constants: zero biases, and sinusoids as the position table. Each
key and value head is repeated for every query head that shares it.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.interop.table import (
    ACTIVATIONS,
    SINUSOID_TOLERANCE,
    Family,
    Fixed,
    Setting,
    TensorRow,
    linear,
    restore_sinusoids,
)
from glassformer.layers.dropout import attention_rate
from glassformer.layers.position import sinusoids
from glassformer.models.gpt import GPTConfig

PROJECTIONS = ("query", "key", "value")
POSITIONS = "transformer.wpe.weight"


def _rows(config: GPTConfig) -> list[TensorRow]:
    embedding = TensorRow(("embedding.weight",), ("transformer.wte.weight",))
    rows = [TensorRow(("embedding.position.weight",), (POSITIONS,))] if config.positions == "learned" else []
    if config.tie_embeddings:
        rows.append(replace(embedding, aliases=("lm_head.weight",)))
    else:
        rows += [embedding, TensorRow(("output_projection.weight",), ("lm_head.weight",))]
    rows += linear("decoder.final_norm", "transformer.ln_f")
    for layer in range(config.n_layers):
        our_layer, their_layer = f"decoder.layers.{layer}", f"transformer.h.{layer}"
        rows += _fused(config, f"{our_layer}.self_attention", f"{their_layer}.attn.c_attn")
        rows += _transposed(f"{our_layer}.self_attention.output", f"{their_layer}.attn.c_proj", config.bias)
        rows += linear(f"{our_layer}.self_attention_norm.norm", f"{their_layer}.ln_1")
        rows += _transposed(f"{our_layer}.feed_forward.inner", f"{their_layer}.mlp.c_fc", config.bias)
        rows += _transposed(f"{our_layer}.feed_forward.outer", f"{their_layer}.mlp.c_proj", config.bias)
        rows += linear(f"{our_layer}.feed_forward_norm.norm", f"{their_layer}.ln_2")
    return rows


def _fused(config: GPTConfig, our_name: str, their_name: str) -> list[TensorRow]:
    heads, group = config.n_heads, config.n_heads // config.kv_heads

    def split(tensors: list[Tensor]) -> list[Tensor]:
        query, *others = _transpose(tensors)[0].chunk(3)
        return [query, *(other.unflatten(0, (heads, -1))[::group].flatten(0, 1) for other in others)]

    def fuse(tensors: list[Tensor]) -> list[Tensor]:
        query, *others = tensors
        each = [other.unflatten(0, (config.kv_heads, -1)) for other in others]
        return _transpose([torch.cat([query, *(one.repeat_interleave(group, dim=0).flatten(0, 1) for one in each)])])

    kinds = ("weight", "bias") if config.bias else ("weight",)
    return [
        TensorRow(tuple(f"{our_name}.{name}.{kind}" for name in PROJECTIONS), (f"{their_name}.{kind}",), split, fuse)
        for kind in kinds
    ]


def _transposed(our_name: str, their_name: str, bias: bool) -> list[TensorRow]:
    return linear(our_name, their_name, _transpose, _transpose, bias)


def _transpose(tensors: list[Tensor]) -> list[Tensor]:
    """Transpose each tensor, since their ``Conv1D`` stores transposed matrices."""
    return [tensor.t() for tensor in tensors]


def _import_settings(their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    sizes = {
        "d_ff": their_config.get("n_inner") or 4 * their_config["n_embd"],
        "attention_dropout": their_config["attn_pdrop"],
    }
    return {**sizes, "bias": True, "positions": "learned"}


def _export_settings(config: GPTConfig) -> dict[str, Any]:
    width = config.d_model / config.n_heads
    if config.d_head != width:
        raise ConfigError(
            f"model.attention.d_head={config.d_head}: the heads of a GPT-2 of Hugging Face are "
            f"d_model/n_heads={width:g} wide; train with that"
        )
    dropout = attention_rate(config.dropout, config.attention_dropout)
    return {"n_inner": config.d_ff, "attn_pdrop": dropout, "embd_pdrop": config.dropout}


def _canonical_name(name: str) -> str:
    """Name with the prefix that the oldest folders lack."""
    return f"transformer.{name}" if re.match(r"(wte|wpe|h|ln_f)\.", name) else name


def _fixed(config: GPTConfig) -> list[Fixed]:
    """GPT-2 tensors that are constants for ``config``."""
    fixed = []
    if config.positions == "sinusoidal":
        table = _sinusoids(config).float()
        fixed.append(Fixed(POSITIONS, table, "is not the sinusoidal table", SINUSOID_TOLERANCE))
    if not config.bias:
        error, d = "is not zero, but the model has bias=false", config.d_model
        sizes = {"attn.c_attn": 3 * d, "attn.c_proj": d, "mlp.c_fc": config.d_ff, "mlp.c_proj": d}
        for layer in range(config.n_layers):
            fixed += [
                Fixed(f"transformer.h.{layer}.{name}.bias", torch.zeros(size), error) for name, size in sizes.items()
            ]
    return fixed


def _sinusoids(config: GPTConfig) -> Tensor:
    return sinusoids(torch.arange(config.max_length).double(), config.d_model)


def _make_exact(their_model: Any, config: GPTConfig) -> None:
    """Replace a table of sinusoids that was rounded to float32 by the exact one."""
    if config.positions == "sinusoidal":
        restore_sinusoids(their_model.transformer.wpe.weight, _sinusoids(config))


def _notes(config: GPTConfig) -> list[str]:
    """Notes on settings that GPT-2 lacks and that constants express."""
    notes = []
    if not config.bias:
        notes.append("model.bias=false: written with zero biases, which is equivalent")
    if config.positions == "sinusoidal":
        table = f"a table of {config.max_length} learned positions, the maximum length from then on"
        notes.append(f"model.positions='sinusoidal': written as {table}")
    if config.kv_heads != config.n_heads:
        shared = f"each of {config.kv_heads} key and value heads is written {config.n_heads // config.kv_heads} times"
        notes.append(f"model.attention.n_kv_heads={config.kv_heads}: {shared}, which is equivalent")
    return notes


GPT2 = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    other_architectures=("GPT2Model",),
    task="language",
    settings=(
        Setting("vocab_size", ("vocab_size",)),
        Setting("d_model", ("n_embd",)),
        Setting("n_heads", ("n_head",)),
        Setting("n_layers", ("n_layer",)),
        Setting("max_length", ("n_positions",)),
        Setting("dropout", ("resid_pdrop",)),
        Setting("norm_eps", ("layer_norm_epsilon",)),
        Setting("activation", ("activation_function",), ACTIVATIONS),
        Setting("tie_embeddings", ("tie_word_embeddings",)),
    ),
    our_values={
        "kind": "gpt",
        "positions": ("learned", "sinusoidal"),
        "norm": "layer",
        "gated": False,
        "attention.pattern": "dense",
    },
    their_values={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    rows=_rows,
    fixed=_fixed,
    import_settings=_import_settings,
    export_settings=_export_settings,
    ignored_weights={r"transformer\.h\.\d+\.attn\.(masked_)?bias": ""},  # the causal mask, once stored
    canonical_name=_canonical_name,
    make_exact=_make_exact,
    notes=_notes,
    training_only={"embd_pdrop": "resid_pdrop"},
)
