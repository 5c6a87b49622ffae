"""Folders as ``save_pretrained`` leaves them, with random weights: of single stacks, and of encoder–decoders."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassformer.interop.transformers_api import transformers

from .small_checkpoint import LINES, fill

SIZES = {"hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4}
GPT2_SIZES = {"n_embd": 24, "n_inner": 20, "n_layer": 2, "n_head": 4, "n_positions": 60}
LABELS = {"id2label": {0: "dull", 1: "fair", 2: "fine"}, "label2id": {"dull": 0, "fair": 1, "fine": 2}}
END, ROTARY = "<|endoftext|>", {"rope_type": "default", "rope_theta": 500.0}


def byte_level(special: Sequence[str] = (END,)) -> tokenizers.Tokenizer:
    """GPT-2's: bytes, and one special token for everything."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def with_pad() -> tokenizers.Tokenizer:
    """Byte-level too, with BART's symbols and the end behind every text: a pipeline unlike any of ours."""
    tokenizer = byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", "$A $B </s>", [("</s>", 2)])
    return tokenizer


def with_start() -> tokenizers.Tokenizer:
    """Llama's: characters with bytes for the rest, and a start symbol before every text."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"adginostu"]
    merges = [("▁", "a"), ("d", "o"), ("i", "n")]
    vocabulary = {piece: id for id, piece in enumerate([*pieces, *(a + b for a, b in merges)])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return tokenizer


def word_pieces() -> tokenizers.Tokenizer:
    """BERT's, with its post-processor."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


NAMES: dict[str, dict[str, str]] = {
    "gpt2": {"bos_token": END, "eos_token": END, "unk_token": END},
    "llama": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "bert": {
        key: f"[{key[:-6].upper()}]" for key in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    },
}
SYMBOLS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
TOKENIZERS = {
    "translator": with_pad,
    "gpt2": byte_level,
    "llama": with_start,
    "mistral": with_start,
    "bert": word_pieces,
}


TRANSLATORS = {
    "marian": ("MarianConfig", "MarianMTModel"),
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration"),
    "blenderbot": ("BlenderbotConfig", "BlenderbotForConditionalGeneration"),
    "blenderbot-small": ("BlenderbotSmallConfig", "BlenderbotSmallForConditionalGeneration"),
    "m2m_100": ("M2M100Config", "M2M100ForConditionalGeneration"),
    "bart": ("BartConfig", "BartForConditionalGeneration"),
    "bare bart": ("BartConfig", "BartModel"),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration"),
    "plbart": ("PLBartConfig", "PLBartForConditionalGeneration"),
}


@cache
def trained(kind: str) -> str:
    return TOKENIZERS[kind]().to_str()


def folder(path: Path, model: str, **changes: Any) -> Path:
    """``model`` names their class; ``changes`` are of its configuration."""
    built = getattr(transformers, model)(_config(model, changes)).eval()
    with torch.no_grad():
        for parameter in built.parameters():  # large enough to matter
            parameter.normal_(0, 0.25)
    fill(built)
    built.save_pretrained(path)
    kind = built.config.model_type
    if kind == "vit":
        size = {"height": 8, "width": 12}
        values = {"size": size, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
        document = {"image_processor_type": "ViTImageProcessor", "do_normalize": True, **values}
        (path / "preprocessor_config.json").write_text(json.dumps(document))
        return path
    names = NAMES["llama" if kind == "mistral" else kind]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(trained(kind)), **names
    ).save_pretrained(path)
    return path


def translator(path: Path, kind: str = "marian", **changes: Any) -> Path:
    """An encoder–decoder; ``changes`` are of its configuration."""
    sizes = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 10, "decoder_ffn_dim": 10}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
    symbols = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    common = {"vocab_size": 300, "scale_embedding": True, "max_position_embeddings": 90, "forced_eos_token_id": None}
    config, model = (getattr(transformers, name) for name in TRANSLATORS[kind])
    torch.manual_seed(1)
    built = model(config(**{**sizes, **heads, **symbols, **common, **changes})).eval()
    fill(built, without=["position"])
    if hasattr(built, "final_logits_bias"):
        built.final_logits_bias.normal_()
    built.save_pretrained(path)
    tokenizer = tokenizers.Tokenizer.from_str(trained("translator"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SYMBOLS).save_pretrained(path)
    return path


def _config(model: str, changes: dict[str, Any]) -> Any:
    torch.manual_seed(1)
    kind = model.partition("For")[0].removesuffix("LMHeadModel").removesuffix("Model")
    if kind == "GPT2":
        values = {**GPT2_SIZES, "vocab_size": 300, "bos_token_id": 0, "eos_token_id": 0}
    elif kind == "Bert":
        values = {**SIZES, **LABELS, "vocab_size": 210, "max_position_embeddings": 60, "pad_token_id": 0}
    elif kind == "ViT":
        values = {**SIZES, **LABELS, "image_size": [8, 12], "patch_size": 4, "num_channels": 3}
    else:
        heads = {"num_key_value_heads": 2, "rope_parameters": dict(ROTARY), "max_position_embeddings": 60}
        values = {**SIZES, **heads, "vocab_size": 280, "bos_token_id": 1, "eos_token_id": 2}
    return getattr(transformers, f"{kind}Config")(**{**values, **changes})
