"""Models that Hugging Face's classes have made: imported, compared, exported again; what cannot be is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from small_checkpoint import LINES, fill
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from glassformer.checkpoint import fingerprint, load_checkpoint
from glassformer.cli import export, import_
from glassformer.config import CheckpointError, ConfigError
from glassformer.interop.huggingface import export_folder, import_folder, transformers
from glassformer.translator import Translator

KINDS = {
    "marian": ("MarianConfig", "MarianMTModel"),
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration"),
    "blenderbot": ("BlenderbotConfig", "BlenderbotForConditionalGeneration"),
    "m2m_100": ("M2M100Config", "M2M100ForConditionalGeneration"),
    "bart": ("BartConfig", "BartForConditionalGeneration"),
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("marian", {"activation_function": "swish"}),
    ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 300}),
    ("pegasus", {"activation_function": "gelu", "d_model": 15}),
    ("pegasus", {"tie_word_embeddings": False}),
    ("blenderbot", {"activation_function": "relu"}),
    ("m2m_100", {}),
    ("m2m_100", {"tie_word_embeddings": False}),
]


@pytest.fixture(scope="session")
def byte_level() -> tokenizers.Tokenizer:
    """Byte-level BPE: a pipeline unlike any of ours."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A $B </s>", [("</s>", 2)])
    return tokenizer


@pytest.fixture
def made(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> Callable[..., Path]:
    """A folder as ``save_pretrained`` leaves it."""

    def make(kind: str = "marian", **changes: Any) -> Path:
        sizes = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 10, "decoder_ffn_dim": 10}
        heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
        symbols = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
        whole = {"vocab_size": 300, "scale_embedding": True, "max_position_embeddings": 90, "forced_eos_token_id": None}
        config, model = (getattr(transformers, name) for name in KINDS[kind])
        torch.manual_seed(1)
        built = model(config(**{**sizes, **heads, **symbols, **whole, **changes})).eval()
        fill(built, without=["position"])
        if hasattr(built, "final_logits_bias"):
            built.final_logits_bias.normal_()
        built.save_pretrained(tmp_path / "theirs")
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=byte_level, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
        ).save_pretrained(tmp_path / "theirs")
        return tmp_path / "theirs"

    return make


@pytest.mark.parametrize(("kind", "changes"), VARIANTS)
def test_both_sides_are_the_same(kind: str, changes: dict[str, Any], made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made(kind, **changes)
    imported = import_folder(str(folder), tmp_path / "ours", LINES)
    assert imported.parity.differences["float32"] <= 1e-5
    assert imported.parity.differences["float64"] <= 1e-12
    assert [sample.source for sample in imported.parity.samples] == list(LINES)
    assert all(sample.ours == sample.theirs for sample in imported.parity.samples)
    tokenizer = Translator.load(tmp_path / "ours").tokenizers.source
    assert [tokenizer.decode(tokenizer.encode(line)) for line in LINES] == list(LINES)
    if kind == "m2m_100":
        return  # its way back is Blenderbot's
    exported = load_file(export_folder(tmp_path / "ours", tmp_path / "again").path / "model.safetensors")
    for name, tensor in load_file(folder / "model.safetensors").items():
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
    said = refusal(folder, tmp_path)
    assert "pytorch_model.bin is a pickle" in said and "safe_serialization=True" in said
    (folder / "pytorch_model.bin").unlink()
    assert "has no model.safetensors" in refusal(folder, tmp_path)


def test_every_fault_of_the_weights_is_listed(made: Callable[..., Path], tmp_path: Path) -> None:
    folder = made()
    weights = load_file(folder / "model.safetensors")
    del weights["model.encoder.layers.0.fc1.weight"], weights["model.decoder.layers.0.encoder_attn.k_proj.bias"]
    weights["model.encoder.layers.1.fc2.bias"] = torch.zeros(5)
    weights["model.encoder.layers.2.fc2.bias"] = torch.zeros(12)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    said = refusal(folder, tmp_path)
    assert "model.encoder.layers.0.fc1.weight is missing" in said
    assert "model.decoder.layers.0.encoder_attn.k_proj.bias is missing" in said
    assert "model.encoder.layers.1.fc2.bias is [5], not [12]" in said
    assert "model.encoder.layers.2.fc2.bias is not known" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"activation_function": "gelu_new"}, "activation_function='gelu_new'"),
        ({"scale_embedding": False}, "scale_embedding=False"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads=2"),
    ],
)
def test_the_setting_is_named(changes: dict[str, Any], said: str, made: Callable[..., Path], tmp_path: Path) -> None:
    assert said in refusal(made("marian", **changes), tmp_path, ConfigError)


def test_models_that_are_not_known(made: Callable[..., Path], tmp_path: Path) -> None:
    assert "layernorm_embedding" in refusal(made("bart"), tmp_path, ConfigError)
    (tmp_path / "theirs" / "config.json").write_text('{"model_type": "xyz"}')
    said = refusal(tmp_path / "theirs", tmp_path, ConfigError)
    assert "model_type='xyz'" in said and "blenderbot, gpt2, llama, m2m_100, marian, mistral, pegasus, vit" in said


def test_folders_that_are_none(tmp_path: Path) -> None:
    assert "there is no such folder" in refusal(tmp_path / "nowhere", tmp_path)
    assert "has no config.json" in refusal(tmp_path, tmp_path)


def test_a_start_that_is_the_end_is_refused(made: Callable[..., Path], tmp_path: Path) -> None:
    said = refusal(made("m2m_100", decoder_start_token_id=2), tmp_path)
    assert "decoder_start_token_id=2 is eos_token_id" in said


def test_changed_biases_have_no_place(made: Callable[..., Path], tmp_path: Path) -> None:
    """Where our own record says that there are none."""
    import_folder(str(made()), tmp_path / "first")
    export_folder(tmp_path / "first", tmp_path / "again")
    own = json.loads((tmp_path / "again" / "glassformer.json").read_text())
    own["model"]["attention_bias"] = False
    (tmp_path / "again" / "glassformer.json").write_text(json.dumps(own))
    assert "k_proj.bias is not zero, and attention_bias=false" in refusal(tmp_path / "again", tmp_path)


def test_the_verbs_say_what_was_compared(
    made: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines.txt").write_text("A dog.\n\nRuns!\n")
    import_.command(str(made()), tmp_path / "ours", str(tmp_path / "lines.txt"))
    told = capsys.readouterr()
    assert told.out == f"{tmp_path / 'ours'}\n"
    assert "largest difference in float64: " in told.err and "'A dog.': here " in told.err
    export.command(str(tmp_path / "ours"), tmp_path / "again", "huggingface")
    assert capsys.readouterr().out == f"{tmp_path / 'again'}\n"
    with pytest.raises(ConfigError, match="goes with --to ctranslate2"):
        export.command(str(tmp_path / "ours"), tmp_path / "x", "onnx", "int8")
