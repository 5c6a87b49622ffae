"""Models that Hugging Face's classes have made: imported, compared, exported again; what cannot be is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from glassformer.cli import export, import_
from glassformer.errors import CheckpointError, ConfigError
from glassformer.generate import SpecialTokens
from glassformer.interop.huggingface import export_folder, import_folder
from glassformer.predict.translator import Translator
from glassformer.storage.checkpoint import fingerprint, load_checkpoint
from interop.small_checkpoint import LINES
from interop.small_folders import translator

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("marian", {"activation_function": "swish"}),
    ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 300}),
    ("pegasus", {"activation_function": "gelu_new", "d_model": 15}),
    ("pegasus", {"tie_word_embeddings": False}),
    ("blenderbot", {"activation_function": "relu"}),
    ("m2m_100", {}),
    ("m2m_100", {"tie_word_embeddings": False}),
    ("bart", {"scale_embedding": False}),
    ("bart", {"tie_word_embeddings": False, "activation_function": "relu"}),
    ("mbart", {}),
    ("mbart", {"scale_embedding": False, "activation_function": "swish"}),
    ("plbart", {}),
]


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """A folder as ``save_pretrained`` leaves it."""
    return lambda kind="marian", **changes: translator(tmp_path / "theirs", kind, **changes)


@pytest.mark.parametrize(("kind", "changes"), VARIANTS)
def test_both_sides_are_the_same(kind: str, changes: dict[str, Any], made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made(kind, **changes)
    imported = import_folder(str(folder), tmp_path / "ours", LINES)
    assert imported.parity.differences["float32"] <= 1e-5
    assert imported.parity.differences["float64"] <= 1e-12
    assert [sample.source for sample in imported.parity.samples] == list(LINES)
    assert all(sample.our_output == sample.their_output for sample in imported.parity.samples)
    tokenizer = Translator.load(tmp_path / "ours").tokenizers.source
    assert [tokenizer.decode(tokenizer.encode(line)) for line in LINES] == list(LINES)
    if kind == "m2m_100":
        return  # exported as a Blenderbot
    exported = load_file(export_folder(tmp_path / "ours", tmp_path / "again").path / "model.safetensors")
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.endswith("embed_positions.weight") and "bart" in kind:
            tensor[:2] = 0  # never looked up
        if name != "model.shared.weight" or changes.get("tie_word_embeddings", True):  # there it is not used
            assert torch.equal(exported[name], tensor), name


def test_imported_then_exported_then_imported(made: Callable[..., Path], tmp_path: Path) -> None:
    import_folder(str(made("pegasus")), tmp_path / "ours")
    export_folder(tmp_path / "ours", tmp_path / "again")
    import_folder(str(tmp_path / "again"), tmp_path / "back")
    first, second = load_checkpoint(tmp_path / "ours"), load_checkpoint(tmp_path / "back")
    assert fingerprint(first.weights) == fingerprint(second.weights)
    assert (first.config, first.tokenizer) == (second.config, second.tokenizer)


def test_weights_in_several_files(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made()
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for part, some in parts.items():
        save_file({name: weights[name] for name in some}, folder / part, metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {name: part for part, some in parts.items() for name in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert import_folder(str(folder), tmp_path / "ours").parity.differences["float32"] <= 1e-5


def refusal(folder: Path | str, tmp_path: Path, kind: type[Exception] = CheckpointError) -> str:
    with pytest.raises(kind) as caught:
        import_folder(str(folder), tmp_path / "ours")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ours").exists()
    return str(caught.value)


def test_no_pickle_is_read(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    message = refusal(folder, tmp_path)
    assert "pytorch_model.bin is a pickle" in message
    assert "safe_serialization=True" in message
    (folder / "pytorch_model.bin").unlink()
    assert "has no model.safetensors" in refusal(folder, tmp_path)


def test_every_fault_of_the_weights_is_listed(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made()
    weights = load_file(folder / "model.safetensors")
    del weights["model.encoder.layers.0.fc1.weight"], weights["model.decoder.layers.0.encoder_attn.k_proj.bias"]
    weights["model.encoder.layers.1.fc2.bias"] = torch.zeros(5)
    weights["model.encoder.layers.2.fc2.bias"] = torch.zeros(12)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    message = refusal(folder, tmp_path)
    assert "model.encoder.layers.0.fc1.weight is missing" in message
    assert "model.decoder.layers.0.encoder_attn.k_proj.bias is missing" in message
    assert "model.encoder.layers.1.fc2.bias is [5], not [12]" in message
    assert "model.encoder.layers.2.fc2.bias is not known" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "gelu_fast"}, "activation_function='gelu_fast'"),
        ({"scale_embedding": False}, "scale_embedding=False"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads=2"),
    ],
)
def test_the_setting_is_named(changes: dict[str, Any], message: str, made: Callable[..., Path], tmp_path: Path) -> None:
    assert message in refusal(made("marian", **changes), tmp_path, ConfigError)


def test_dropout_of_the_attention_weights_and_shortest_texts_are_read(
    made: Callable[..., Path], tmp_path: Path
) -> None:
    folder = made("marian", dropout=0.2, attention_dropout=0.3)
    (folder / "generation_config.json").write_text('{"min_new_tokens": 3, "max_length": 40}')
    import_folder(str(folder), tmp_path / "ours")
    stored_values = load_checkpoint(tmp_path / "ours").config
    assert (stored_values["model"]["dropout"], stored_values["model"]["attention_dropout"]) == (0.2, 0.3)
    assert (stored_values["decoding"]["min_length"], stored_values["decoding"]["max_length"]) == (3, 39)
    again = export_folder(tmp_path / "ours", tmp_path / "again").path
    assert json.loads((again / "config.json").read_text())["attention_dropout"] == 0.3


def test_models_that_are_not_known(made: Callable[..., Path], tmp_path: Path) -> None:
    assert "layernorm_embedding" in refusal(made("blenderbot-small"), tmp_path, ConfigError)
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "xyz"}')
    message = refusal(tmp_path / "theirs", tmp_path, ConfigError)
    assert "model_type='xyz'" in message
    assert "bart, bert, blenderbot, gpt2, llama, m2m_100, marian, mbart, mistral, pegasus, plbart, vit" in message


def test_folders_that_are_none(tmp_path: Path) -> None:
    assert "there is no such folder" in refusal(tmp_path / "nowhere", tmp_path)
    assert "has no config.json" in refusal(tmp_path, tmp_path)


@pytest.mark.parametrize("kind", ["m2m_100", "marian"])
def test_a_start_that_is_the_end(kind: str, made: Callable[..., Path], tmp_path: Path) -> None:
    """In M2M100 and NLLB the start is the end: both sides write the same texts, and can end them."""
    imported = import_folder(str(made(kind, decoder_start_token_id=2)), tmp_path / "ours", LINES)
    assert all(sample.our_output == sample.their_output for sample in imported.parity.samples)
    assert Translator.load(tmp_path / "ours").symbols == SpecialTokens(pad=1, start=2, end=2)
    if kind == "marian":
        again = export_folder(tmp_path / "ours", tmp_path / "again", LINES).path
        stored_values = json.loads((again / "generation_config.json").read_text())
        assert stored_values["suppress_tokens"] == [1]


def test_import_keeps_biases_that_the_stored_config_denies(made: Callable[..., Path], tmp_path: Path) -> None:
    """The weights decide, because training elsewhere may change biases from zero."""
    import_folder(str(made()), tmp_path / "first")
    export_folder(tmp_path / "first", tmp_path / "again")
    own = json.loads((tmp_path / "again" / "glassformer.json").read_text())
    own["model"]["attention_bias"] = False
    (tmp_path / "again" / "glassformer.json").write_text(json.dumps(own))
    import_folder(str(tmp_path / "again"), tmp_path / "back")
    checkpoints = [load_checkpoint(tmp_path / name) for name in ("first", "back")]
    assert checkpoints[1].config["model"]["attention_bias"] is True
    assert fingerprint(checkpoints[0].weights) == fingerprint(checkpoints[1].weights)


def test_import_and_export_print_the_compared_values(
    made: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines.txt").write_text("A dog.\n\nRuns!\n")
    import_.command(str(made()), tmp_path / "ours", str(tmp_path / "lines.txt"))
    stored_values = capsys.readouterr()
    assert stored_values.out == f"{tmp_path / 'ours'}\n"
    assert "largest difference in float64: " in stored_values.err
    assert "'A dog.': here " in stored_values.err
    export.command(str(tmp_path / "ours"), tmp_path / "again", "huggingface")
    assert capsys.readouterr().out == f"{tmp_path / 'again'}\n"
    with pytest.raises(ConfigError, match="goes with --to ctranslate2"):
        export.command(str(tmp_path / "ours"), tmp_path / "x", "onnx", "int8")
