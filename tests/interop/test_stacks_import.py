"""GPT-2, Llama, Mistral, BERT and ViT as their classes save them: imported, compared, exported again; or refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models

from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.interop.folder import SETTINGS_FILE
from glassformer.interop.huggingface import export_folder, import_folder
from glassformer.interop.transformers_api import transformers
from glassformer.storage.checkpoint import fingerprint, load_checkpoint
from glassformer.text import TokenizerPair
from interop.small_checkpoint import LINES
from interop.small_folders import ROTARY, folder

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {}),
    "gpt2, untied": ("GPT2LMHeadModel", {"tie_word_embeddings": False, "activation_function": "relu", "n_inner": None}),
    "llama": ("LlamaForCausalLM", {}),
    "llama, biased": (
        "LlamaForCausalLM",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 10,
            "tie_word_embeddings": True,
            "num_key_value_heads": 1,
        },
    ),
    "mistral": ("MistralForCausalLM", {"sliding_window": 4}),
    "mistral, dense": ("MistralForCausalLM", {"sliding_window": None}),
    "masked": ("BertForMaskedLM", {}),
    "classes": ("BertForSequenceClassification", {"hidden_act": "gelu_new", "type_vocab_size": 3}),
    "tags": ("BertForTokenClassification", {}),
    "images": ("ViTForImageClassification", {}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_both_sides_are_the_same(name: str, tmp_path: Path) -> None:
    model, changes = VARIANTS[name]
    theirs, ours, again = folder(tmp_path / "theirs", model, **changes), tmp_path / "ours", tmp_path / "again"
    texts = None if name == "images" else ["A dog runs!", "I do"]
    imported = import_folder(str(theirs), ours, texts)
    assert imported.kind == theirs_type(theirs)
    assert not imported.notes
    assert imported.parity.differences["float32"] <= 1e-5
    assert imported.parity.differences["float64"] <= 1e-12
    assert all(sample.our_output == sample.their_output for sample in imported.parity.samples)
    if name.startswith("mistral, d"):  # exported as a Llama
        assert export_folder(ours, again).kind == "llama"
        return
    export_folder(ours, again)
    first, second = (load_file(path / "model.safetensors") for path in (theirs, again))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    (again / SETTINGS_FILE).unlink()  # as if someone else had made the folder
    import_folder(str(again), tmp_path / "back")
    checkpoints = [load_checkpoint(path) for path in (ours, tmp_path / "back")]
    assert fingerprint(checkpoints[0].weights) == fingerprint(checkpoints[1].weights)
    assert checkpoints[0].config["model"] | {"dropout": 0} == checkpoints[1].config["model"] | {"dropout": 0}


def theirs_type(path: Path) -> str:
    return str(json.loads((path / "config.json").read_text())["model_type"])


def tokenizer_of(checkpoint: Path) -> Any:
    return TokenizerPair.from_json(load_checkpoint(checkpoint).tokenizer).source


def test_every_text_comes_back_and_none_is_padding(tmp_path: Path) -> None:
    """GPT-2 has one special token, the end; padding is a byte that no text has."""
    import_folder(str(folder(tmp_path / "theirs", "GPT2LMHeadModel")), tmp_path / "ours")
    tokenizer = tokenizer_of(tmp_path / "ours")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    assert tokenizer.end_id == 0
    assert tokenizer.pad_id == tokenizer.start_id != 0
    for text in (*LINES, "À Á õ\n\x00"):
        ids = tokenizer.encode(text)
        assert ids == reader(text)["input_ids"]
        assert tokenizer.decode(ids) == text
        assert tokenizer.pad_id not in ids
    assert 0 not in tokenizer.encode("<|endoftext|>"), "text that looks like a special token is text"


def of_words() -> tokenizers.Tokenizer:
    """BPE tokenizer without bytes or an unknown token; the end token has id 2."""
    words = ["<pad>", "<s>", "<end>", *"abcdefgh ", "ab", "cd"]
    tokenizer = tokenizers.Tokenizer(models.BPE({word: id for id, word in enumerate(words)}, [("a", "b"), ("c", "d")]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(words[:3])
    return tokenizer


TOKEN_NAMES = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "<end>"}


@pytest.mark.parametrize("where", ["tokenizer_config.json", "special_tokens_map.json", "tokenizer.json"])
def test_import_reads_special_tokens_named_only_by_the_tokenizer(where: str, tmp_path: Path) -> None:
    """A GPT-2 with another vocabulary: ``config.json`` names neither padding nor end token."""
    theirs = folder(tmp_path / "theirs", "GPT2LMHeadModel", vocab_size=14, bos_token_id=None, eos_token_id=None)
    values = json.loads((theirs / "config.json").read_text())
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        values.pop(name, None)
    tokenizer, settings = of_words(), {"tokenizer_class": "PreTrainedTokenizerFast", **TOKEN_NAMES}
    if where == "tokenizer.json":  # then config.json must name the end token
        values["eos_token_id"] = 2
        tokenizer.enable_padding(pad_id=0, pad_token="<pad>")
        settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    elif where == "special_tokens_map.json":
        settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
        (theirs / where).write_text(json.dumps(TOKEN_NAMES))
    (theirs / "config.json").write_text(json.dumps(values))
    (theirs / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer.save(str(theirs / "tokenizer.json"))
    import_folder(str(theirs), tmp_path / "ours", ["abcd ef", "h"])
    found = tokenizer_of(tmp_path / "ours")
    assert (found.pad_id, found.end_id) == (0, 2)
    assert found.start_id == (0 if where == "tokenizer.json" else 1)
    assert found.decode(found.encode("abcd ef")) == "abcd ef"


def test_the_start_before_a_text_and_the_symbols_around_one(tmp_path: Path) -> None:
    import_folder(str(folder(tmp_path / "llama", "LlamaForCausalLM")), tmp_path / "a")
    assert tokenizer_of(tmp_path / "a").encode("a do")[0] == 1
    import_folder(str(folder(tmp_path / "bert", "BertForSequenceClassification")), tmp_path / "b")
    tokenizer, values = tokenizer_of(tmp_path / "b"), load_checkpoint(tmp_path / "b").config
    assert not {2, 3} & set(tokenizer.encode("A dog runs."))
    assert {name: tokenizer.special_tokens[name] for name in ("[CLS]", "[SEP]", "[MASK]")} == {
        "[CLS]": 2,
        "[SEP]": 3,
        "[MASK]": 4,
    }
    assert (values["task"], values["labels"], values["max_length"]) == ("classification", ["dull", "fair", "fine"], 60)


def rewritten(path: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Path:
    save_file(change(load_file(path / "model.safetensors")), path / "model.safetensors", metadata={"format": "pt"})
    return path


def test_names_of_earlier_days(tmp_path: Path) -> None:
    def without_prefix(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 60, 60) for layer in (0, 1)}
        return {**{name.removeprefix("transformer."): tensor for name, tensor in weights.items()}, **masks}

    def greek(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        kinds = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for old, new in kinds.items():
            weights = {name.replace(old, new): tensor for name, tensor in weights.items()}
        return weights

    gpt2 = rewritten(folder(tmp_path / "gpt2", "GPT2LMHeadModel"), without_prefix)
    assert not import_folder(str(gpt2), tmp_path / "a").notes
    bert = rewritten(folder(tmp_path / "bert", "BertForPreTraining"), greek)
    notes = import_folder(str(bert), tmp_path / "b").notes
    assert len(notes) == 2
    assert "next sentence" in notes[1]


@pytest.mark.parametrize(("model", "files"), [("GPT2LMHeadModel", "merges"), ("BertForMaskedLM", "vocab.txt")])
def test_vocabularies_of_earlier_days(model: str, files: str, tmp_path: Path) -> None:
    theirs = folder(tmp_path / "theirs", model)
    whole = json.loads((theirs / "tokenizer.json").read_text())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (theirs / name).unlink()
    vocabulary = whole["model"]["vocab"]
    if files == "merges":
        (theirs / "vocab.json").write_text(json.dumps(vocabulary))
        merges = "\n".join(" ".join(pair) for pair in whole["model"]["merges"])
        (theirs / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    else:
        (theirs / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n")
    import_folder(str(theirs), tmp_path / "ours", ["A dog runs!"])


def refusal(path: Path, tmp_path: Path, kind: type[Exception] = CheckpointError) -> str:
    with pytest.raises(kind) as caught:
        import_folder(str(path), tmp_path / "ours")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ours").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("GPT2LMHeadModel", {"activation_function": "gelu_fast"}, "activation_function='gelu_fast'"),
        ("LlamaForCausalLM", {"attention_bias": True}, "attention_bias=True, mlp_bias=False"),
        ("LlamaForCausalLM", {"rope_parameters": {**ROTARY, "rope_type": "linear", "factor": 2.0}}, "'linear'"),
        ("BertForMaskedLM", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ("BertForMaskedLM", {"architectures": ["BertForMultipleChoice"]}, "only BertForMaskedLM,"),
        ("BertForSequenceClassification", {"problem_type": "regression"}, "problem_type='regression'"),
        ("ViTForImageClassification", {"qkv_bias": False}, "qkv_bias=False"),
        ("ViTForImageClassification", {"patch_size": [4, 2]}, "patch_size=[4, 2]"),
    ],
)
def test_the_setting_is_named(model: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    theirs = folder(tmp_path / "theirs", model)
    their_config = json.loads((theirs / "config.json").read_text())
    (theirs / "config.json").write_text(json.dumps({**their_config, **changes}))
    assert message in refusal(theirs, tmp_path, ConfigError)


def test_every_tensor_that_does_not_fit_is_named(tmp_path: Path) -> None:
    def damaged(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        del weights["transformer.h.0.attn.c_attn.weight"], weights["transformer.ln_f.bias"]
        return weights | {"transformer.h.1.mlp.c_fc.weight": torch.zeros(20, 24), "further": torch.zeros(1)}

    message = refusal(rewritten(folder(tmp_path / "theirs", "GPT2LMHeadModel"), damaged), tmp_path)
    assert "transformer.h.0.attn.c_attn.weight is missing" in message
    assert "transformer.ln_f.bias is missing" in message
    assert "transformer.h.1.mlp.c_fc.weight is [20, 24], not [24, 20]" in message
    assert "further is not known" in message


def test_folders_with_a_part_missing(tmp_path: Path) -> None:
    bert = folder(tmp_path / "bert", "BertForMaskedLM")
    settings = json.loads((bert / "tokenizer_config.json").read_text())
    (bert / "tokenizer_config.json").write_text(json.dumps({**settings, "mask_token": "[HOLE]"}))
    assert "the tokenizer has no mask_token" in refusal(bert, tmp_path)
    (bert / "tokenizer.json").unlink()
    assert "has neither tokenizer.json nor vocab.txt" in refusal(bert, tmp_path)
    (bert / "model.safetensors").rename(bert / "pytorch_model.bin")
    assert "pytorch_model.bin is a pickle" in refusal(bert, tmp_path)
    vit = folder(tmp_path / "vit", "ViTForImageClassification")
    with pytest.raises(DataError, match="this one reads images"):
        import_folder(str(vit), tmp_path / "ours", ["A dog."])
    (vit / "preprocessor_config.json").write_text('{"do_rescale": false}')
    assert "do_rescale=False" in refusal(vit, tmp_path)
    (vit / "preprocessor_config.json").write_text('{"image_mean": [0.5]}')
    assert "image_mean=[0.5] is not one number for each of 3 channels" in refusal(vit, tmp_path)
    (vit / "preprocessor_config.json").unlink()
    assert "has no preprocessor_config.json" in refusal(vit, tmp_path)


def test_symbols_that_cannot_be(tmp_path: Path) -> None:
    theirs = folder(tmp_path / "theirs", "LlamaForCausalLM", eos_token_id=[2, 3])
    assert "eos_token_id=[2, 3] is not one id" in refusal(theirs, tmp_path)
