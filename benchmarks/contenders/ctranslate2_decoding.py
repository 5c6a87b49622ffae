"""CTranslate2 with the same weights: two workers of one thread for all sentences, one worker for one at a time."""

import json
import tempfile
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec
from decoding import arguments, measure, model_of
from safetensors.numpy import load_file

POSITIONS = 1024


def converted(checkpoint: Path, quantization: str | None, folder: str) -> str:
    """The checkpoint in CTranslate2's own format."""
    model, weights = model_of(checkpoint), load_file(checkpoint / "model.safetensors")
    if model["positions"] != "sinusoidal":
        raise SystemExit(f"positions={model['positions']} are not converted here; sinusoidal ones are")
    layers = (model["n_encoder_layers"], model["n_decoder_layers"])
    spec = transformer_spec.TransformerSpec.from_config(layers, model["n_heads"], pre_norm=model["norm_order"] == "pre")
    source = weights["source_embedding.weight"]
    target = weights.get("target_embedding.weight", source)
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = source, target
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        side.scale_embeddings = True
        side.position_encodings.encodings = sinusoids(model["d_model"])
        for index, layer in enumerate(side.layer):
            fill_layer(layer, weights, f"{name}.layers.{index}.")
        if model["norm_order"] == "pre":
            fill_norm(side.layer_norm, weights, f"{name}.final_norm")
    spec.decoder.projection.weight = weights.get("output_projection.weight", target)
    spec.register_source_vocabulary(words(len(source)))
    spec.register_target_vocabulary(words(len(target)))
    spec.config.add_source_eos, spec.config.decoder_start_token = False, "<s>"
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(folder)
    return folder


def words(size: int) -> list[str]:
    return ["<pad>", "<s>", "</s>", "<unk>", *(f"t{index}" for index in range(4, size))]


def sinusoids(d_model: int) -> np.ndarray:
    angles = np.arange(POSITIONS)[:, None] * 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(POSITIONS, d_model).astype(np.float32)


def number(word: str) -> int:
    special = words(4)
    return special.index(word) if word in special else int(word[1:])


def fill_layer(layer: Any, weights: dict[str, np.ndarray], name: str) -> None:
    own, cross = name + "self_attention.", name + "cross_attention."
    fuse(layer.self_attention.linear[0], weights, own + "query", own + "key", own + "value")
    fill(layer.self_attention.linear[1], weights, own + "output")
    fill_norm(layer.self_attention.layer_norm, weights, name + "self_attention_norm.norm")
    if cross + "query.weight" in weights:
        fill(layer.attention.linear[0], weights, cross + "query")
        fuse(layer.attention.linear[1], weights, cross + "key", cross + "value")
        fill(layer.attention.linear[2], weights, cross + "output")
        fill_norm(layer.attention.layer_norm, weights, name + "cross_attention_norm.norm")
    fill(layer.ffn.linear_0, weights, name + "feed_forward.inner")
    fill(layer.ffn.linear_1, weights, name + "feed_forward.outer")
    fill_norm(layer.ffn.layer_norm, weights, name + "feed_forward_norm.norm")


def fill(linear: Any, weights: dict[str, np.ndarray], name: str) -> None:
    linear.weight = weights[name + ".weight"]
    if name + ".bias" in weights:
        linear.bias = weights[name + ".bias"]


def fuse(linear: Any, weights: dict[str, np.ndarray], *names: str) -> None:
    parts = [common_spec.LinearSpec() for _ in names]
    for part, name in zip(parts, names, strict=True):
        fill(part, weights, name)
    utils.fuse_linear(linear, parts)


def fill_norm(norm: Any, weights: dict[str, np.ndarray], name: str) -> None:
    norm.gamma, norm.beta = weights[name + ".weight"], weights[name + ".bias"]


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = converted(options.checkpoint, "int8" if options.precision == "int8" else None, folder)
        kinds = {"device": "cpu", "compute_type": options.precision, "intra_threads": 1}
        many, single = ctranslate2.Translator(path, inter_threads=2, **kinds), ctranslate2.Translator(path, **kinds)
    texts = json.loads(options.input.read_text())["ids"]
    names = words(1 + max(max(ids) for ids in texts))
    sources = [[names[i] for i in ids] for ids in texts]
    given = {"beam_size": options.beam_size, "length_penalty": 1, "max_decoding_length": 100}

    def run(translator: ctranslate2.Translator, some: list[list[str]]) -> list[list[int]]:
        found = translator.translate_batch(some, max_batch_size=2048, batch_type="tokens", **given)
        return [[number(token) for token in one.hypotheses[0]] for one in found]

    measure(options, sources, lambda some: run(many, some), lambda one: run(single, [one]))


if __name__ == "__main__":
    main()
