"""Export to CTranslate2: an encoder–decoder as ``TransformerSpec``, with weights in float32 or int8."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tokenizers
import torch

from glassformer.errors import ConfigError
from glassformer.generate import DecodingConfig, SpecialTokens, score_pairs
from glassformer.interop import require
from glassformer.interop.decoding import suppressed_ids
from glassformer.interop.folder import load_translator
from glassformer.interop.parity import (
    Conversion,
    Parity,
    Sample,
    comparison_texts,
    greedy_texts,
    longest_text,
    refuse_long,
)
from glassformer.interop.tokenizer_json import to_tokenizer_json, write_sides
from glassformer.layers.position import ENCODINGS, Rotary
from glassformer.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from glassformer.models.registry import weights_of
from glassformer.storage.atomic import new_folder
from glassformer.text import Tokenizer, TokenizerPair
from glassformer.text.pretrained import UNNAMED

ctranslate2 = require("ctranslate2", "ctranslate2")
specs = require("ctranslate2.specs", "ctranslate2")

Weights = dict[str, np.ndarray]
Quantization = Literal["int8", "float32"]

MIN_POSITIONS = 1024
"""Minimum rows of a sinusoidal table, since longer texts are refused there."""


def export_ctranslate2(
    run: str | Path,
    destination: str | Path,
    quantization: Quantization = "float32",
    texts: Sequence[str] | None = None,
) -> Conversion:
    """Export ``run`` for ``ctranslate2.Translator``, with ``source.json`` and ``target.json`` for ``tokenizers``.

    Log-probabilities of tokens and greedy translations are compared; with int8 they are only measured.
    """
    destination = Path(destination)
    path, translator = load_translator(run)
    model, tokenizers = translator.models[0], translator.tokenizers
    spec = specification(model, tokenizers)
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    with new_folder(destination) as folder:
        spec.save(str(folder))
        write_sides(tokenizers, folder)
        parity = _compare(folder, quantization, model, tokenizers, texts)
        parity.check(str(path))
    limit = _max_tokens(model.config)
    notes = [] if limit is None else [f"texts of more than {limit} tokens are refused there"]
    return Conversion(destination, "ctranslate2", parity, notes)


def specification(model: EncoderDecoder, tokenizers: TokenizerPair) -> Any:
    """Validated ``TransformerSpec`` of ``model``; its vocabularies are the entries of ``tokenizer.json``."""
    c, weights = model.config, _copies(model)
    if c.head_sizes != (c.d_model / c.n_heads, c.d_model / c.n_heads):
        raise ConfigError(
            f"model.d_k={c.head_sizes[0]}, model.d_v={c.head_sizes[1]}: CTranslate2's heads are "
            f"d_model/n_heads={c.d_model / c.n_heads:g} wide; export to onnx"
        )
    spec = _empty(c)
    target = weights["target_embedding.weight"]
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = weights["source_embedding.weight"], target
    for side, name, read in ((spec.encoder, "encoder", "source"), (spec.decoder, "decoder", "target")):
        side.scale_embeddings = c.scale_embeddings
        if (count := _max_tokens(c)) is not None:
            side.position_encodings.encodings = _copy(getattr(model, f"{read}_embedding").position(0, count))
        if c.norm_embeddings:
            _fill_norm(side.layernorm_embedding, weights, f"{read}_embedding.norm")
        for index, layer in enumerate(side.layer):
            _fill_layer(layer, weights, f"{name}.layers.{index}.")
        if c.norm_order == "pre":
            _fill_norm(side.layer_norm, weights, f"{name}.final_norm")
    spec.decoder.projection.weight = weights.get("output_projection.weight", target)
    if c.output_bias:
        spec.decoder.projection.bias = weights["output_projection.bias"]
    spec.register_source_vocabulary(_entries(tokenizers.source))
    spec.register_target_vocabulary(_entries(tokenizers.target))
    names = tokenizers.target.special_tokens
    start, end, unknown = (_entries(tokenizers.target)[names[name]] for name in ("<s>", "</s>", "<unk>"))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = start, end, unknown
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.decoder_start_token = start
    spec.validate()
    return spec


def _copies(model: EncoderDecoder) -> Weights:
    """Copies of the weights, since quantization is in place; shared embeddings under both names."""
    weights = {name: _copy(w) for name, w in weights_of(model).items()}
    if model.config.tie_embeddings:
        shared = {name: w for name, w in weights.items() if name.startswith("source_embedding.")}
        weights |= {name.replace("source", "target", 1): w for name, w in shared.items()}
    return weights


def _copy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy().copy()


def _empty(c: EncoderDecoderConfig) -> Any:
    activations = specs.Activation
    activation = {
        "relu": activations.RELU,
        "gelu": activations.GELU,
        "gelu_tanh": activations.GELUTanh,
        "silu": activations.SWISH,
    }.get(c.activation)
    if activation is None:
        raise ConfigError(f"model.activation={c.activation}: CTranslate2 does not have it; export to onnx")
    shape: dict[str, Any] = {
        "pre_norm": c.norm_order == "pre",
        "activation": activation,
        "layernorm_embedding": c.norm_embeddings,
    }
    rotary = ENCODINGS[c.positions].rotary
    if rotary not in (None, Rotary):
        raise ConfigError(f"model.positions={c.positions}: CTranslate2 does not have them; export to onnx")
    if rotary is not None:
        shape |= {"rotary_dim": 0, "rotary_interleave": True}
    encoder = specs.TransformerEncoderSpec(c.n_encoder_layers, c.n_heads, **shape)
    if rotary is not None:
        del encoder.position_encodings
    return specs.TransformerSpec(encoder, specs.TransformerDecoderSpec(c.n_decoder_layers, c.n_heads, **shape))


def _max_tokens(c: EncoderDecoderConfig) -> int | None:
    """Maximum tokens of a text there: the rows of its table of positions, if it has one."""
    encoding = ENCODINGS[c.positions]
    if encoding.added is None:
        return None
    return c.max_length if encoding.bounded else max(c.max_length, MIN_POSITIONS)


def _entries(tokenizer: Tokenizer) -> list[str]:
    """Entries in the notation of ``tokenizer.json``, in which a space ends a word."""
    names = to_tokenizer_json(tokenizer)
    return [names.id_to_token(i) or f"{UNNAMED}{i}" for i in range(tokenizer.vocab_size)]


def _fill_layer(layer: Any, weights: Weights, name: str) -> None:
    attention, cross = name + "self_attention.", name + "cross_attention."
    _fuse(layer.self_attention.linear[0], weights, attention + "query", attention + "key", attention + "value")
    _fill(layer.self_attention.linear[1], weights, attention + "output")
    _fill_norm(layer.self_attention.layer_norm, weights, name + "self_attention_norm.norm")
    if cross + "query.weight" in weights:
        _fill(layer.attention.linear[0], weights, cross + "query")
        _fuse(layer.attention.linear[1], weights, cross + "key", cross + "value")
        _fill(layer.attention.linear[2], weights, cross + "output")
        _fill_norm(layer.attention.layer_norm, weights, name + "cross_attention_norm.norm")
    _fill(layer.ffn.linear_0, weights, name + "feed_forward.inner")
    _fill(layer.ffn.linear_1, weights, name + "feed_forward.outer")
    _fill_norm(layer.ffn.layer_norm, weights, name + "feed_forward_norm.norm")


def _fill(linear: Any, weights: Weights, name: str) -> None:
    _fuse(linear, weights, name)


def _fuse(linear: Any, weights: Weights, *names: str) -> None:
    """Concatenate projections of the same vectors into one matrix."""
    linear.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    if f"{names[0]}.bias" in weights:
        linear.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def _fill_norm(norm: Any, weights: Weights, name: str) -> None:
    norm.gamma, norm.beta = weights[name + ".weight"], weights[name + ".bias"]


def _compare(
    folder: Path,
    quantization: Quantization,
    model: EncoderDecoder,
    tokenizers: TokenizerPair,
    texts: Sequence[str] | None,
) -> Parity:
    exported = ctranslate2.Translator(str(folder), device="cpu", compute_type=quantization, intra_threads=1)
    selected = comparison_texts(texts, tokenizers.source)
    reader = {side: _reader(folder / f"{side}.json") for side in ("source", "target")}
    sources = [reader["source"].encode(text).tokens for text in selected]
    for text, tokens in zip(selected, sources, strict=True):
        refuse_long(text, len(tokens), _max_tokens(model.config) or len(tokens))
    entries = _entries(tokenizers.target)
    results = exported.translate_batch(
        sources,
        beam_size=1,
        max_decoding_length=longest_text(model),
        min_decoding_length=0,
        suppress_sequences=[[entries[i]] for i in suppressed_ids(tokenizers.target)],
    )
    ids = [[reader["target"].token_to_id(token) for token in one.hypotheses[0]] for one in results]
    samples = zip(selected, greedy_texts(model, tokenizers, selected), map(reader["target"].decode, ids), strict=True)
    difference = _score_difference(exported, sources, results, model, tokenizers, ids)
    return Parity({quantization: difference}, [Sample(*row) for row in samples])


def _score_difference(
    exported: Any, sources: list[list[str]], results: Any, model: EncoderDecoder, tokenizers: TokenizerPair, ids: Any
) -> float:
    """Largest difference of log-probabilities of the tokens they generated, end token included."""
    their_scores = exported.score_batch(sources, [one.hypotheses[0] for one in results])
    names = _reader_ids(tokenizers.source)
    source_ids = [[names[token] for token in tokens] for tokens in sources]
    our_scores = score_pairs(model, source_ids, ids, SpecialTokens.of(tokenizers.target), DecodingConfig())
    pairs = zip(our_scores, their_scores, strict=True)
    return max(
        abs(a - b) / max(1.0, abs(a))
        for one, other in pairs
        for a, b in zip(one.token_log_probs, other.log_probs, strict=True)
    )


def _reader_ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {entry: id for id, entry in enumerate(_entries(tokenizer))}


def _reader(path: Path) -> Any:
    return tokenizers.Tokenizer.from_file(str(path))
