"""Texts to compare on, given or made up."""

from collections.abc import Sequence
from typing import Any

import torch

from glassformer.errors import DataError
from glassformer.interop.tokenizer_json import to_tokenizer_json
from glassformer.text import Tokenizer
from glassformer.text.pretrained import UNNAMED


def compared(texts: Sequence[str] | None, tokenizer: Tokenizer) -> list[str]:
    """Those given that say something (of nothing ours makes nothing, without asking the model), or random ones."""
    if texts is None:
        return sentences(tokenizer)
    if not (given := [text for text in texts if text.strip()]):
        raise DataError("no text to compare on: each is empty; give one that says something, or leave them out")
    return given


def sentences(tokenizer: Tokenizer, count: int = 4, seed: int = 1) -> list[str]:
    """Texts made of random entries, for models whose language nobody has said."""
    generator = torch.Generator().manual_seed(seed)
    special = {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id}
    special |= set(tokenizer.special_tokens.values())
    names = to_tokenizer_json(tokenizer)
    allowed = [
        i
        for i in range(tokenizer.vocab_size)
        if i not in special and tokenizer.decode([i]) and not (names.id_to_token(i) or UNNAMED).startswith(UNNAMED)
    ]
    if not allowed:
        raise DataError("the vocabulary has no entry that is text, so none is made up to compare on; give texts")
    texts: list[str] = []
    while len(texts) < count:
        drawn = torch.randint(len(allowed), (6,), generator=generator).tolist()
        texts.append(tokenizer.decode([allowed[i] for i in drawn]).strip() or tokenizer.tokens(allowed[:1])[0])
    return texts


def read_back(reader: Any, tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Decode by ``reader``; incomplete characters by ``tokenizer``, as the two may differ in the number of U+FFFD."""
    text = str(reader.decode(ids, skip_special_tokens=True))
    return tokenizer.decode(ids) if "\ufffd" in text else text


def refuse_long(text: str, tokens: int, limit: int) -> None:
    """Where the other side ends after ``limit`` positions, so must what is compared."""
    if tokens > limit:
        raise DataError(f"{text!r} has {tokens} tokens, and there are {limit} positions; compare shorter texts")
