"""Tokenizer files of Hugging Face, read and written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.interop.tokenizer_json import (
    MARKS,
    Around,
    Pipeline,
    named_special,
    pieces_left_out,
    pipeline_from,
    read_json,
    read_pipeline,
    to_tokenizer_json,
    way_to_a_tokenizer,
)
from glassformer.interop.transformers_api import loaded_tokenizer, transformers
from glassformer.text import Tokenizer

NAMES = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
MARK_NAMES = dict(zip(("cls_token", "sep_token", "mask_token"), MARKS, strict=True))


def write_tokenizer(place: Path, tokenizer: Tokenizer, max_length: int, around: Around = "end") -> list[str]:
    """Notes on what is left out. Text that looks like a special token is text, but where there is a ``[MASK]``."""
    whole = to_tokenizer_json(tokenizer, around)
    known = NAMES if around != "marks" else {"pad_token": "<pad>", "unk_token": "<unk>", **MARK_NAMES}
    ids = {key: tokenizer.special_tokens[name] for key, name in known.items() if name in tokenizer.special_tokens}
    found = {key: str(whole.id_to_token(id)) for key, id in ids.items()}
    if around in ("document", "nothing"):  # padding and start may be a byte that no text has, and is not to be named
        found = {key: name for key, name in found.items() if named_special(tokenizer, whole, known[key])}
        found.setdefault("pad_token", found["eos_token"])
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if around == "marks" else ["input_ids", "attention_mask"]
    options: dict[str, Any] = dict(found)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=whole,
        model_input_names=inputs,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        split_special_tokens="mask_token" not in options,
        **options,
    ).save_pretrained(place)
    left = pieces_left_out(tokenizer)
    return [f"{left} pieces that the model never knew are left out; rare words may be cut otherwise"] if left else []


SYMBOLS = "special_tokens_map.json"
"""File of the special tokens in folders of older versions."""
OLDER = ("vocab.txt", "vocab.json")
"""WordPiece's list, and the table that goes with ``merges.txt``."""


def pipeline_of(folder: Path, size: int) -> Pipeline:
    """``tokenizer.json``, or what ``AutoTokenizer`` makes of the files that were before it."""
    if (folder / "tokenizer.json").is_file():
        found = read_pipeline(folder, size)
        older = read_json(folder / SYMBOLS) if (folder / SYMBOLS).is_file() else {}
        return replace(found, settings={**older, **found.settings})
    if not any((folder / name).is_file() for name in OLDER):
        raise CheckpointError(
            f"{folder}: has neither tokenizer.json nor {' nor '.join(OLDER)}; {way_to_a_tokenizer(folder)}"
        )
    made = loaded_tokenizer(folder)
    settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    settings = {**settings, **{name: str(token) for name, token in made.special_tokens_map.items()}}
    return pipeline_from(json.loads(made.backend_tokenizer.to_str()), settings, size, folder)
