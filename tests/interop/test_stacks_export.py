"""Our GPT, BERT and ViT as Hugging Face's classes load them, with their tokenizers and image processors; and back."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from glassformer.data.sequences import Frame
from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.families import FAMILIES
from glassformer.interop.folder import SETTINGS_FILE
from glassformer.interop.huggingface import export_folder, import_folder
from glassformer.interop.table import unchanged
from glassformer.interop.transformers_api import quiet, transformers
from glassformer.models.registry import build_model, weights_of
from glassformer.storage.checkpoint import fingerprint, load_checkpoint, save_checkpoint
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers
from glassformer.train import read_config
from interop.small_checkpoint import LINES, fill
from tiny_run import run_to_the_end, write_lines

SIZES = {"d_model": 24, "n_heads": 4, "d_ff": 20, "n_layers": 2, "dropout": 0.2}
LLAMA = {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True, "bias": False}
BERT = {"kind": "bert", **SIZES, "max_length": 60, "masked_tokens": False}
GPT: dict[str, Any] = {"kind": "gpt", **SIZES, "max_length": 60}
VIT: dict[str, Any] = {"kind": "vit", **SIZES, "image_size": [8, 12], "patch_size": 4, "n_classes": 2}
FORMAT = {"height": 8, "width": 12, "classes": ["cat", "dog"]}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "gpt2": (GPT, {"task": "language", "documents": "line", "decoding": {"sample": True, "beam_size": 1}}, "bpe"),
    "gpt2 of characters": ({**GPT, "tie_embeddings": False, "activation": "relu"}, {"task": "language"}, "char"),
    "gpt2 of bytes": (GPT, {"task": "language"}, "bytes"),
    "gpt2 with bytes for the rest": (GPT, {"task": "language"}, "fallback"),
    "llama of bytes": ({**GPT, **LLAMA}, {"task": "language", "documents": "line"}, "bytes"),
    "llama": ({**GPT, **LLAMA, "attention": {"n_kv_heads": 2, "d_head": 8, "rope_theta": 50.0}}, {}, "bpe"),
    "mistral": ({**GPT, **LLAMA, "attention": {"pattern": "window", "span": 3}}, {"task": "language"}, "word"),
    "masked": ({**BERT, "masked_tokens": True}, {"task": "masked", "max_length": 30}, "bpe"),
    "classes": ({**BERT, "n_classes": 2}, {"task": "classification", "labels": ["good", "bad"]}, "bpe"),
    "tags": ({**BERT, "n_tags": 3, "n_segments": 1}, {"task": "tagging", "tags": ["O", "B-PER", "I-PER"]}, "char"),
    "gray": ({**VIT, "n_channels": 1}, {"format": {**FORMAT, "mean": [0.13], "deviation": [0.31]}}, ""),
    "colors": (
        VIT,
        {"task": "images", "format": {**FORMAT, "mean": [0.1, 0.2, 0.3], "deviation": [0.5, 0.6, 0.7]}},
        "",
    ),
}


def checkpoint(path: Path, model: dict[str, Any], values: dict[str, Any], kind: str) -> Path:
    """Write a checkpoint whose weights are all large enough to matter."""
    pair, stored = None, {**values, "model": model}
    if kind:
        marks = ("[CLS]", "[SEP]", "[MASK]") if model["kind"] == "bert" else ()
        size = {"bytes": 300, "fallback": 420}.get(kind, 200)
        text = {"kind": kind, "vocab_size": size, "min_frequency": 1}
        if kind == "fallback":
            text |= {"kind": "bpe", "byte_fallback": True}
        text["extra_special"] = marks
        pair = train_tokenizers(TextConfig.parse(text), lambda: iter(LINES), lambda: iter(()))
        stored["tokenizer"] = pair.fingerprint
        model = {**model, "vocab_size": pair.source.vocab_size}
    torch.manual_seed(3)
    built = build_model(model, "test")
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(0, 0.25)
    fill(built)
    stored["model"] = built.config.model_dump(mode="json")
    save_checkpoint(path, config=stored, tokenizer=pair.to_json() if pair else {}, weights=weights_of(built))
    return path


@pytest.mark.parametrize("name", MODELS)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    ours = checkpoint(tmp_path / "ours", *MODELS[name])
    texts = None if not MODELS[name][2] else ["A dog runs", "(Hallo)!"]
    exported = export_folder(ours, tmp_path / "theirs", texts)
    assert exported.parity.differences["float32"] <= 1e-5
    assert exported.parity.differences["float64"] <= 1e-12
    assert exported.parity.samples
    assert all(sample.our_output == sample.their_output for sample in exported.parity.samples)

    first = load_checkpoint(ours)
    back = load_checkpoint(import_folder(str(exported.path), tmp_path / "back", texts).path)
    assert fingerprint(first.weights) == fingerprint(back.weights)
    assert (first.config, first.tokenizer) == (back.config, back.tokenizer)

    (exported.path / SETTINGS_FILE).unlink()  # like a folder from another tool
    bare = load_checkpoint(import_folder(str(exported.path), tmp_path / "bare", texts).path)
    assert fingerprint(first.weights) == fingerprint(bare.weights)
    for key in ("labels", "tags", "format", "documents"):
        assert bare.config.get(key, "file") == first.config.get(key, "file")
    if texts:
        tokenizers = [TokenizerPair.from_json(one.tokenizer).source for one in (first, bare)]
        for line in LINES:
            ids = [tokenizer.encode(line) for tokenizer in tokenizers]
            assert ids[0] == ids[1]
            assert tokenizers[0].decode(ids[0]) == tokenizers[1].decode(ids[1])


BY_CONSTANTS: dict[str, tuple[dict[str, Any], str]] = {
    "no biases": ({"bias": False}, "model.bias=false: written with zero biases"),
    "sinusoids": ({"positions": "sinusoidal"}, "model.positions='sinusoidal': written as a table of 60 learned"),
    "shared heads": ({"attention": {"n_kv_heads": 2}}, "model.attention.n_kv_heads=2: each of 2 key and value heads"),
    "all, untied": (
        {"bias": False, "positions": "sinusoidal", "attention": {"n_kv_heads": 1}, "tie_embeddings": False},
        "model.bias=false",
    ),
}


@pytest.mark.parametrize("name", BY_CONSTANTS)
def test_gpt2_export_writes_missing_parts_as_constants(name: str, tmp_path: Path) -> None:
    changes, note = BY_CONSTANTS[name]
    ours = checkpoint(tmp_path / "ours", {**GPT, **changes}, {"task": "language"}, "char")
    exported = export_folder(ours, tmp_path / "theirs", ["A dog runs"])
    assert exported.kind == "gpt2"
    assert exported.notes[0].startswith(note)
    assert exported.parity.differences["float64"] <= 1e-12

    first = load_checkpoint(ours)
    back = load_checkpoint(import_folder(str(exported.path), tmp_path / "back", ["A dog runs"]).path)
    assert fingerprint(first.weights) == fingerprint(back.weights)
    assert first.config == back.config

    (exported.path / SETTINGS_FILE).unlink()  # like a folder from another tool
    bare = load_checkpoint(import_folder(str(exported.path), tmp_path / "bare", ["A dog runs"]).path)
    assert bare.config["model"]["bias"] is True
    assert bare.config["model"]["positions"] == "learned"


def test_shakespeare_preset_is_exported(tmp_path: Path) -> None:
    """The shipped preset, with other text and 5 steps instead of 2,000."""
    preset = Path(__file__).parents[2] / "configs" / "shakespeare_char.toml"
    text = write_lines(tmp_path / "text.txt", [f"A dog runs through line {number}." for number in range(99)])
    changes = ["train.max_steps=5", "train.threads=1", f"data.train=['{text}']"]
    run_to_the_end(read_config(preset, changes), tmp_path / "run")
    exported = export_folder(tmp_path / "run", tmp_path / "theirs", ["A dog"])
    assert exported.parity.differences["float64"] <= 1e-12
    assert [note for note in exported.notes if "zero biases" in note]


def test_import_keeps_constants_changed_by_training_elsewhere(tmp_path: Path) -> None:
    ours = checkpoint(tmp_path / "ours", {**GPT, "bias": False}, {"task": "language"}, "char")
    folder = export_folder(ours, tmp_path / "theirs").path
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.1.mlp.c_fc.bias"] += 0.5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    back = load_checkpoint(import_folder(str(folder), tmp_path / "back").path)
    assert back.config["model"]["bias"] is True
    assert back.weights["decoder.layers.1.feed_forward.inner.bias"].unique().tolist() == [0.5]


def test_a_pair_of_texts_and_a_mask(tmp_path: Path) -> None:
    ours = checkpoint(tmp_path / "ours", *MODELS["masked"])
    folder = export_folder(ours, tmp_path / "theirs").path
    tokenizer = TokenizerPair.from_json(load_checkpoint(ours).tokenizer).source
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    pair = [tokenizer.encode(text) for text in ("A dog runs.", "Nobody sees it?")]
    tokens, _, segments = Frame.of(tokenizer).rows([[np.array(ids) for ids in pair]])
    encoding = reader("A dog runs.", "Nobody sees it?")
    assert (encoding["input_ids"], encoding["token_type_ids"]) == (tokens[0].tolist(), segments[0].tolist())
    assert reader("A [MASK] runs")["input_ids"].count(tokenizer.special_tokens["[MASK]"]) == 1
    assert (reader.cls_token, reader.sep_token, reader.mask_token) == ("[CLS]", "[SEP]", "[MASK]")


@pytest.mark.parametrize("name", ["gpt2", "classes"])
def test_pipelines_alone(name: str, tmp_path: Path) -> None:
    """Only the pipelines of transformers are used, with the folder as their argument."""
    folder = export_folder(checkpoint(tmp_path / "ours", *MODELS[name]), tmp_path / "theirs").path
    kind = "text-generation" if name == "gpt2" else "text-classification"
    with quiet():
        pipeline = transformers.pipeline(kind, model=str(folder), device="cpu")
        output = pipeline("A dog", max_new_tokens=3) if name == "gpt2" else pipeline("A dog")
    assert output[0]["generated_text"].startswith("A dog") if name == "gpt2" else output[0]["label"] in ("good", "bad")


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "model.positions='rotary'": ({**GPT, "positions": "rotary"}, {"task": "language"}, "bpe"),
    "model.attention.pattern='strided'": ({**GPT, "attention": {"pattern": "strided"}}, {"task": "language"}, "bpe"),
    "model.attention.d_head=10": ({**GPT, "attention": {"d_head": 10}}, {"task": "language"}, "bpe"),
    "model.masked_tokens=True, model.n_classes=2": (
        {**BERT, "masked_tokens": True, "n_classes": 2},
        {"task": "classification", "labels": ["a", "b"]},
        "bpe",
    ),
    "task='dreaming' is not exported": (BERT, {"task": "dreaming"}, "bpe"),
    "config.json has no 'labels'": ({**BERT, "n_classes": 2}, {"task": "classification"}, "bpe"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_model_without_a_counterpart_is_refused(message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, CheckpointError)) as caught:
        export_folder(checkpoint(tmp_path / "ours", *REFUSED[message]), tmp_path / "theirs")
    assert str(caught.value).removeprefix(f"{tmp_path}/ours: ").startswith(message)
    assert [item.name for item in tmp_path.iterdir()] == ["ours"]


def swapped(rows: list[Any]) -> list[Any]:
    """Rows with a query and a key of the same shape swapped."""
    indices = [i for i, row in enumerate(rows) if row.our_names[0].endswith((".query.weight", ".key.weight"))][:2]
    query, key = (rows[index] for index in indices)
    rows[indices[0]], rows[indices[1]] = (
        replace(query, their_names=key.their_names),
        replace(key, their_names=query.their_names),
    )
    return rows


def unpermuted(rows: list[Any]) -> list[Any]:
    """Rows without the permutation of rotary dimensions."""
    return [
        replace(row, on_import=unchanged, on_export=unchanged) if row.our_names[0].endswith("query.weight") else row
        for row in rows
    ]


@pytest.mark.parametrize(
    ("name", "model", "wrong"),
    [("BertForMaskedLM", "masked", swapped), ("LlamaForCausalLM", "llama", unpermuted)],
)
def test_a_wrong_row_is_refused(
    name: str,
    model: str,
    wrong: Callable[[list[Any]], list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = FAMILIES[name]
    monkeypatch.setitem(FAMILIES, name, replace(family, rows=lambda config: wrong(family.rows(config))))
    with pytest.raises(CheckpointError, match=r"the two sides differ by .* in float32, more than 0.0001; nothing was"):
        export_folder(checkpoint(tmp_path / "ours", *MODELS[model]), tmp_path / "theirs")
    assert [item.name for item in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize("wrong", ["norm_eps", "rope_theta"])
def test_a_setting_that_hardly_matters_is_still_refused(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A difference below the resolution of float32 is detected in float64."""
    llama = FAMILIES["LlamaForCausalLM"]

    def export_settings(config: Any) -> dict[str, Any]:
        exported = llama.export_settings(config)
        if wrong == "norm_eps":
            return {**exported, "rms_norm_eps": config.norm_eps * 1.001}
        return {
            **exported,
            "rope_parameters": {"rope_type": "default", "rope_theta": config.attention.rope_theta + 1e-3},
        }

    monkeypatch.setitem(FAMILIES, "LlamaForCausalLM", replace(llama, export_settings=export_settings))
    with pytest.raises(CheckpointError, match=r"the two sides differ by .* in float64, more than 1e-10; nothing was"):
        export_folder(checkpoint(tmp_path / "ours", *MODELS["llama"]), tmp_path / "theirs")


def test_class_names_edited_after_the_export_are_imported(tmp_path: Path) -> None:
    """The stored settings no longer agree then."""
    folder = export_folder(checkpoint(tmp_path / "ours", *MODELS["classes"]), tmp_path / "theirs").path
    their_config = json.loads((folder / "config.json").read_text())
    names = {"id2label": {"0": "fine", "1": "dull"}, "label2id": {"fine": 0, "dull": 1}}
    (folder / "config.json").write_text(json.dumps({**their_config, **names}))
    import_folder(str(folder), tmp_path / "back")
    assert load_checkpoint(tmp_path / "back").config["labels"] == ["fine", "dull"]
