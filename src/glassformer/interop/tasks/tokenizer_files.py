"""A vocabulary of ours as the files that ``AutoTokenizer`` reads."""

from pathlib import Path
from typing import Any

from glassformer.interop.tokenizer_json import MARKS, Around, named_special, pieces_left_out, to_tokenizer_json
from glassformer.interop.transformers_api import transformers
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
