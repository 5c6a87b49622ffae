"""Tokenizer files of Hugging Face, read and written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.interop.folder import read_optional
from glassformer.interop.tokenizer_json import (
    Around,
    Pipeline,
    count_unused_pieces,
    named_special,
    pipeline_from,
    read_pipeline,
    to_tokenizer_json,
    tokenizer_remedy,
)
from glassformer.interop.transformers_api import load_tokenizer, transformers
from glassformer.text import Tokenizer
from glassformer.text.config import MARKS

NAMES = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
MARK_NAMES = dict(zip(("cls_token", "sep_token", "mask_token"), MARKS, strict=True))


def write_tokenizer(folder: Path, tokenizer: Tokenizer, max_length: int, around: Around = "end") -> list[str]:
    """Write tokenizer files, and return notes on dropped entries.

    Text that looks like a special token stays text, except with a ``[MASK]``.
    """
    converted = to_tokenizer_json(tokenizer, around)
    names = NAMES if around != "marks" else {"pad_token": "<pad>", "unk_token": "<unk>", **MARK_NAMES}
    ids = {key: tokenizer.special_tokens[name] for key, name in names.items() if name in tokenizer.special_tokens}
    entries = {key: str(converted.id_to_token(id)) for key, id in ids.items()}
    if around in ("document", "nothing"):  # padding and start may be a byte that no text contains, and need no name
        entries = {key: name for key, name in entries.items() if named_special(tokenizer, converted, names[key])}
        entries.setdefault("pad_token", entries["eos_token"])
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if around == "marks" else ["input_ids", "attention_mask"]
    options: dict[str, Any] = dict(entries)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=converted,
        model_input_names=inputs,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        split_special_tokens="mask_token" not in options,
        **options,
    ).save_pretrained(folder)
    dropped = count_unused_pieces(tokenizer)
    return (
        [f"{dropped} pieces that the model never knew are left out; rare words may be cut otherwise"] if dropped else []
    )


SPECIAL_TOKENS_FILE = "special_tokens_map.json"
"""File of the special tokens in older folders."""
OLDER_FILES = ("vocab.txt", "vocab.json")
"""Vocabulary of WordPiece, and the table that belongs to ``merges.txt``."""


def pipeline_of(folder: Path, size: int) -> Pipeline:
    """Read ``tokenizer.json``, or convert older files with ``AutoTokenizer``."""
    if (folder / "tokenizer.json").is_file():
        pipeline = read_pipeline(folder, size)
        older = read_optional(folder / SPECIAL_TOKENS_FILE)
        return replace(pipeline, settings={**older, **pipeline.settings})
    if not any((folder / name).is_file() for name in OLDER_FILES):
        raise CheckpointError(
            f"{folder}: has neither tokenizer.json nor {' nor '.join(OLDER_FILES)}; {tokenizer_remedy(folder)}"
        )
    converted = load_tokenizer(folder)
    settings = read_optional(folder / "tokenizer_config.json")
    settings = {**settings, **{name: str(token) for name, token in converted.special_tokens_map.items()}}
    return pipeline_from(json.loads(converted.backend_tokenizer.to_str()), settings, size, folder)
