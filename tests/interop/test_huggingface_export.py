"""Exports load with the classes of transformers, give the same outputs, and come back bit for bit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop.families import FAMILIES
from glassformer.interop.folder import SETTINGS_FILE
from glassformer.interop.huggingface import export_folder, import_folder, transformers
from glassformer.models.recurrent import Recurrent, RecurrentConfig
from glassformer.models.registry import weights_of
from glassformer.predict.translator import Translator
from glassformer.storage.checkpoint import fingerprint, load_checkpoint, save_checkpoint
from interop.small_checkpoint import LINES, checkpoint

MODELS: dict[str, dict[str, Any]] = {
    "marian": {},
    "marian, untied": {"tie_embeddings": False, "output_bias": True, "activation": "gelu"},
    "marian, two vocabularies": {
        "joint": False,
        "kind": "word",
        "attention_bias": False,
        "d_model": 15,
        "activation": "silu",
        "n_decoder_layers": 2,
    },
    "pegasus": {"norm_order": "pre", "kind": "char"},
    "pegasus, untied": {"norm_order": "pre", "tie_embeddings": False, "d_model": 21, "activation": "gelu"},
    "blenderbot": {"norm_order": "pre", "positions": "learned", "output_bias": True},
    "bart": {"positions": "learned", "scale_embeddings": False, "norm_embeddings": True, "activation": "gelu"},
    "bart, untied": {"positions": "learned", "norm_embeddings": True, "tie_embeddings": False},
    "mbart": {"norm_order": "pre", "positions": "learned", "norm_embeddings": True, "output_bias": True},
    "mbart, untied": {
        "norm_order": "pre",
        "positions": "learned",
        "scale_embeddings": False,
        "norm_embeddings": True,
        "tie_embeddings": False,
    },
    "blenderbot, untied": {"norm_order": "pre", "positions": "learned", "tie_embeddings": False, "d_ff": 7},
}


@pytest.mark.parametrize("name", MODELS)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    ours = checkpoint(tmp_path / "ours", **MODELS[name], decoding={"beam_size": 1, "max_length": 12})
    exported = export_folder(ours, tmp_path / "theirs")
    assert exported.kind == name.split(",")[0]
    assert exported.parity.differences["float32"] <= 1e-5
    assert exported.parity.differences["float64"] <= 1e-12
    assert all(sample.our_output == sample.their_output for sample in exported.parity.samples)
    assert any(sample.our_output for sample in exported.parity.samples)

    imported = import_folder(str(exported.path), tmp_path / "back")
    first, second = load_checkpoint(ours), load_checkpoint(imported.path)
    assert fingerprint(first.weights) == fingerprint(second.weights)
    assert (first.config["model"], first.tokenizer) == (second.config["model"], second.tokenizer)
    assert second.config["decoding"]["max_length"] == 12

    (exported.path / SETTINGS_FILE).unlink()  # as if someone else had made the folder
    bare = load_checkpoint(import_folder(str(exported.path), tmp_path / "bare").path)
    added = bare.weights.keys() - first.weights.keys()
    assert not added or not first.config["model"]["attention_bias"]
    assert all(torch.equal(bare.weights[name], tensor) for name, tensor in first.weights.items())
    assert Translator.load(tmp_path / "bare").translate(LINES) == Translator.load(ours).translate(LINES)


@pytest.mark.parametrize("name", ["marian", "marian, two vocabularies"])
def test_generate_alone_gives_our_text(name: str, tmp_path: Path) -> None:
    """Only ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer`` are used."""
    ours = checkpoint(tmp_path / "ours", **MODELS[name], decoding={"beam_size": 1, "max_length": 12})
    folder = export_folder(ours, tmp_path / "theirs").path
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    reader = transformers.AutoTokenizer.from_pretrained(folder / "target") if "two" in name else tokenizer
    generated = model.generate(**tokenizer(list(LINES), return_tensors="pt", padding=True))
    assert reader.batch_decode(generated, skip_special_tokens=True) == Translator.load(ours).translate(LINES)


def test_export_notes_settings_without_a_counterpart(tmp_path: Path) -> None:
    plain = export_folder(checkpoint(tmp_path / "a"), tmp_path / "b")
    assert any("gnmt" in note for note in plain.notes)
    decoding = {"length_penalty": "average", "alpha": 0.7, "beam_size": 5, "max_length": 9, "no_repeat_ngram": 3}
    exported = export_folder(checkpoint(tmp_path / "c", decoding=decoding), tmp_path / "d")
    assert exported.notes == ["positions end there: texts of more than 90 tokens cannot be read"]
    generation = json.loads((tmp_path / "d" / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["length_penalty"], generation["no_repeat_ngram_size"]) == (5, 0.7, 3)
    (tmp_path / "d" / SETTINGS_FILE).unlink()
    import_folder(str(tmp_path / "d"), tmp_path / "e")
    stored = load_checkpoint(tmp_path / "e").config["decoding"]
    assert {name: stored[name] for name in decoding} == decoding


@pytest.mark.parametrize("decoding", [{"beam_size": 1, "length_penalty": "none"}, {"sample": True, "alpha": 0.5}])
def test_length_penalty_without_a_beam_is_not_exported(decoding: dict[str, Any], tmp_path: Path) -> None:
    """Their class rejects a length penalty without a beam."""
    exported = export_folder(checkpoint(tmp_path / "ours", decoding=decoding), tmp_path / "theirs")
    assert "length_penalty" not in json.loads((exported.path / "generation_config.json").read_text())
    assert not any("length_penalty" in note for note in exported.notes)


REFUSED: dict[str, dict[str, Any]] = {
    "model.positions='rotary'": {"positions": "rotary"},
    "model.positions='learned'": {"positions": "learned"},
    "model.scale_embeddings=False": {"scale_embeddings": False, "norm_embeddings": True},
    "model.d_k=4, model.d_v=6": {"d_k": 4},
    "model.vocab_size=": {"norm_order": "pre", "joint": False},
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_model_without_a_counterpart_is_refused(message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        export_folder(checkpoint(tmp_path / "ours", **REFUSED[message]), tmp_path / "theirs")
    assert str(caught.value).startswith(message)
    assert [item.name for item in tmp_path.iterdir()] == ["ours"]


def test_conversion_with_a_mismatch_deletes_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marian = FAMILIES["MarianMTModel"]
    monkeypatch.setitem(FAMILIES, "MarianMTModel", _with_swapped_keys(marian))
    with pytest.raises(CheckpointError, match=r"the two sides differ by .* in float32, more than 0.0001; nothing was"):
        export_folder(checkpoint(tmp_path / "ours"), tmp_path / "theirs")
    assert [item.name for item in tmp_path.iterdir()] == ["ours"]


def test_model_without_a_family_is_refused(tmp_path: Path) -> None:
    ours = load_checkpoint(checkpoint(tmp_path / "ours"))
    sizes = ours.config["model"]["vocab_size"]
    built = Recurrent(RecurrentConfig.parse({"vocab_size": sizes, "d_model": 4, "d_hidden": 4}))
    config = {"model": built.config.model_dump(mode="json"), "tokenizer": ours.config["tokenizer"]}
    save_checkpoint(tmp_path / "other", config=config, tokenizer=ours.tokenizer, weights=weights_of(built))
    with pytest.raises(ConfigError, match=r"is not exported; only encoder_decoder, .*; use the run itself$"):
        export_folder(tmp_path / "other", tmp_path / "theirs")


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    ours = checkpoint(tmp_path / "ours")
    (tmp_path / "theirs").mkdir()
    with pytest.raises(CheckpointError, match="exists already; name a new folder"):
        export_folder(ours, tmp_path / "theirs")


def _with_swapped_keys(family: Any) -> Any:
    """Family in which the rows of a query and a key of the same shape are swapped."""

    def rows(config: Any) -> list[Any]:
        table = family.rows(config)
        indices = [i for i, row in enumerate(table) if row.our_names[0].startswith("encoder.layers.0.self_attention.")]
        query, key = indices[0], indices[2]
        swapped = (
            replace(table[query], their_names=table[key].their_names),
            replace(table[key], their_names=table[query].their_names),
        )
        table[query], table[key] = swapped
        return table

    return replace(family, rows=rows)
