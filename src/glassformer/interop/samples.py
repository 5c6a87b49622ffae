"""Inputs for the comparison of two models: texts, random tokens, greedy translations."""

from collections.abc import Sequence
from typing import Any

import torch

from glassformer.errors import DataError
from glassformer.generate import DecodingConfig
from glassformer.interop.parity import LONGEST, Logits, ParityInputs, random_rows
from glassformer.interop.tokenizer_json import to_tokenizer_json
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.predict.translator import Translator
from glassformer.text import Tokenizer, TokenizerPair
from glassformer.text.pretrained import UNNAMED


def comparison_texts(texts: Sequence[str] | None, tokenizer: Tokenizer) -> list[str]:
    """Texts to compare on: ``texts`` without empty ones, which never reach the model, or random ones."""
    if texts is None:
        return random_texts(tokenizer)
    if not (nonempty := [text for text in texts if text.strip()]):
        raise DataError("no text to compare on: each is empty; give one that says something, or leave them out")
    return nonempty


def random_texts(tokenizer: Tokenizer, count: int = 4, seed: int = 1) -> list[str]:
    """Draw texts of random vocabulary entries, for models of an unknown language."""
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
    """Decode with ``reader``; incomplete characters by ``tokenizer``, as the two may differ in the number of U+FFFD."""
    text = str(reader.decode(ids, skip_special_tokens=True))
    return tokenizer.decode(ids) if "\ufffd" in text else text


def refuse_long(text: str, tokens: int, limit: int) -> None:
    """Raise ``DataError`` if ``text`` is longer than the positions of the other model."""
    if tokens > limit:
        raise DataError(f"{text!r} has {tokens} tokens, and there are {limit} positions; compare shorter texts")


def random_inputs(model: EncoderDecoder, tokenizers: TokenizerPair, seed: int = 1) -> ParityInputs:
    """Draw ids except padding and start, in rows of 9, 5 and 1 tokens; a target begins with the start token."""
    generator = torch.Generator().manual_seed(seed)
    c, source, target = model.config, tokenizers.source, tokenizers.target
    longest = min(9, c.max_length)
    lengths = [longest, min(5, longest), 1], [min(4, longest), longest, min(2, longest)]
    ids, mask = random_rows(c.vocab_sizes[0], {source.pad_id, source.start_id}, lengths[0], source.pad_id, generator)
    words, compared = random_rows(
        c.vocab_sizes[1], {target.pad_id, target.start_id}, lengths[1], target.pad_id, generator
    )
    words[:, 0] = target.start_id
    return ParityInputs((ids, mask, words), compared)


def logits_of(model: EncoderDecoder) -> Logits:
    return lambda source, source_mask, target: model(source, target, source_mask)


def greedy_texts(model: EncoderDecoder, tokenizers: TokenizerPair, texts: Sequence[str]) -> list[str]:
    """Translate with our model greedily, at most ``LONGEST`` tokens and within the learned positions."""
    config: dict[str, Any] = {"beam_size": 1, "max_length": longest_text(model), "length_penalty": "none"}
    return Translator([model], tokenizers, DecodingConfig.parse(config)).translate(texts)


def longest_text(model: EncoderDecoder) -> int:
    return max(1, min(LONGEST, model.config.max_length - 2))
