"""Language modeling: a stack of decoder layers that continues text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import CheckpointError
from glassformer.generate import DecodingConfig, LanguageDecodingConfig, SpecialTokens, continue_texts
from glassformer.interop.decoding import GENERATION, continuing_to_ours, continuing_to_theirs, never_written
from glassformer.interop.parity import Logits, ParityInputs, Sample, random_rows
from glassformer.interop.samples import compared, read_back, refuse_long
from glassformer.interop.tasks.tokenizer_files import pipeline_of, write_tokenizer
from glassformer.interop.tokenizer_json import (
    Around,
    Pipeline,
    foreign_pair,
    generation_settings,
    named_special,
    to_tokenizer_json,
)
from glassformer.interop.transformers_api import loaded_tokenizer, quiet, read_by, refuse_other_ids, transformers
from glassformer.predict.loading import LoadedRun
from glassformer.text import TokenizerPair
from glassformer.text.pretrained import PretrainedTokenizer

NEW_TOKENS = 8
"""Of a compared continuation."""
NEVER_IN_UTF8 = ("À", "<0xC0>")
"""What byte-level vocabularies, and those that fall back to bytes, call the byte 0xC0, which no text has."""

UNCUT = {"truncation": None, "padding": None}
"""Pipeline settings that disable truncation and padding; the limits of the model apply instead."""


class LanguageConversion:
    """Where documents were parted for training, a text begins behind the end symbol on both sides."""

    loader = "AutoModelForCausalLM"
    generation = GENERATION | {"min_length": 0}  # counts the prompt there

    def read(self, folder: Path, theirs: dict[str, Any], config: Any) -> tuple[dict[str, Any], TokenizerPair]:
        found = pipeline_of(folder, config.vocab_size)
        symbols = _symbols(theirs, found)
        pair = foreign_pair(PretrainedTokenizer(symbols, {**found.document, **UNCUT}, found.entries))
        values = {
            "task": "language",
            "decoding": continuing_to_ours(generation_settings(folder)).model_dump(mode="json"),
            "context": config.max_length,
            "documents": "line" if found.around() == [symbols["</s>"]] else "file",
            "tokenizer": pair.fingerprint,
        }
        return values, pair

    def settings(self, held: LoadedRun) -> dict[str, Any]:
        """A symbol that stands for nothing there is left out; a start that does is the end, as in GPT-2."""
        tokenizer, whole = held.tokenizer, to_tokenizer_json(held.tokenizer, "nothing")
        pad = tokenizer.pad_id if named_special(tokenizer, whole, "<pad>") else None
        start = tokenizer.start_id if named_special(tokenizer, whole, "<s>") else tokenizer.end_id
        return {"pad_token_id": pad, "bos_token_id": start, "eos_token_id": tokenizer.end_id}

    def write(self, folder: Path, held: LoadedRun) -> list[str]:
        decoding = LanguageDecodingConfig.parse(held.settings.get("decoding", {}), "decoding")
        said, notes = continuing_to_theirs(decoding)
        values = {**said, **self.settings(held), "suppress_tokens": never_written(held.tokenizer)}
        transformers.GenerationConfig(**values).save_pretrained(folder)
        around: Around = "document" if _begins(held) else "nothing"
        return notes + write_tokenizer(folder, held.tokenizer, held.model.config.max_length, around)

    def inputs(self, held: LoadedRun) -> ParityInputs:
        c, tokenizer = held.model.config, held.tokenizer
        longest = min(9, c.max_length)
        lengths = [longest, min(5, longest), 1]
        ids, mask = random_rows(c.vocab_size, set(), lengths, tokenizer.pad_id, torch.Generator().manual_seed(1))
        return ParityInputs((ids, mask), mask)

    def logits(self, model: Any) -> Logits:
        return lambda ids, mask: model(ids, mask)

    def their_logits(self, theirs: Any) -> Logits:
        def logits(ids: Tensor, mask: Tensor) -> Tensor:
            found: Tensor = theirs(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits
            return found

        return logits

    def samples(self, held: LoadedRun, theirs: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        tokenizer, reader, samples = held.tokenizer, loaded_tokenizer(folder), []
        before = [tokenizer.end_id] if _begins(held) else []
        for text in compared(texts, tokenizer):
            ids = [*before, *tokenizer.encode(text)]
            refuse_other_ids(folder, text, ids, read_by(reader, folder, text)["input_ids"])
            refuse_long(text, len(ids) + 1, held.model.config.max_length)
            most = min(NEW_TOKENS, held.model.config.max_length - len(ids))
            said = tokenizer.decode([*ids, *_continued(held, ids, most)])
            found = _their_continuation(held, theirs, ids, most)
            samples.append(Sample(text, said, read_back(reader, tokenizer, [*ids, *found])))
        return samples


def _begins(held: LoadedRun) -> bool:
    return bool(held.settings.get("documents", "file") != "file")


def _continued(held: LoadedRun, ids: list[int], most: int) -> list[int]:
    tokenizer = held.tokenizer
    symbols = SpecialTokens(pad=tokenizer.pad_id, start=tokenizer.start_id, end=tokenizer.end_id)
    config = DecodingConfig.parse({"beam_size": 1, "max_length": most, "length_penalty": "none"}, "decoding")
    return continue_texts(held.model, [ids], symbols, config)[0][0].tokens


@torch.inference_mode()
def _their_continuation(held: LoadedRun, theirs: Any, ids: list[int], most: int) -> list[int]:
    tokenizer = held.tokenizer
    config = transformers.GenerationConfig(
        num_beams=1,
        do_sample=False,
        max_new_tokens=most,
        suppress_tokens=never_written(tokenizer),
        pad_token_id=tokenizer.pad_id,
        eos_token_id=tokenizer.end_id,
    )
    theirs.generation_config = config
    with quiet():
        given = torch.tensor([ids])
        found: list[int] = theirs.generate(input_ids=given, attention_mask=torch.ones_like(given))[0].tolist()
    new = found[len(ids) :]
    return new[: new.index(tokenizer.end_id)] if tokenizer.end_id in new else new


def _symbols(theirs: dict[str, Any], found: Pipeline) -> dict[str, int]:
    """Ids of the special tokens, from ``config.json`` or else from the tokenizer.

    The ``config.json`` of a GPT-2 with a custom vocabulary may hold ids outside of that vocabulary. Padding must be a
    token that no text contains, and not the end token, which separates documents; failing that, a byte that no text
    contains. The same holds for the start token if it has no symbol.
    """
    theirs = {**theirs, **_named_by_tokenizer(theirs, found)}
    end = theirs.get("eos_token_id")
    if not isinstance(end, int):
        raise CheckpointError(f"config.json: eos_token_id={end!r} is not one id; name it there")
    bytewise = "ByteLevel" in json.dumps(found.document.get("pre_tokenizer")) or found.document["model"].get(
        "byte_fallback"
    )
    unused = [found.encoder.token_to_id(name) for name in NEVER_IN_UTF8] if bytewise else []
    others = [theirs.get("pad_token_id"), found.special("pad_token"), found.unknown(), *unused]
    pad = next((id for id in others if isinstance(id, int) and id != end and id >= 0), None)
    if pad is None:
        raise CheckpointError(
            f"{found.origin}: no symbol can be the padding: pad_token_id={theirs.get('pad_token_id')}, there is no "
            "unknown symbol, and the vocabulary is not of bytes; add a pad_token to the tokenizer"
        )
    start, unknown = theirs.get("bos_token_id"), found.unknown()
    if not isinstance(start, int) or start == end:
        start = pad
    return {"<pad>": pad, "<s>": start, "</s>": end, "<unk>": pad if unknown in (None, end) else unknown}


def _named_by_tokenizer(theirs: dict[str, Any], found: Pipeline) -> dict[str, int | None]:
    """Ids of padding, start and end that ``config.json`` lacks, or that are outside the vocabulary there.

    The value is ``None`` if the tokenizer lacks the token too.
    """
    size = len(found.entries) if found.entries is not None else len(found.encoder.get_vocab(with_added_tokens=True))
    named: dict[str, int | None] = {}
    for symbol in ("pad", "bos", "eos"):
        given, id = theirs.get(f"{symbol}_token_id"), found.special(f"{symbol}_token")
        if symbol == "pad" and id is None:
            id = (found.document.get("padding") or {}).get("pad_id")
        outside = isinstance(given, int) and not 0 <= given < size
        if (outside and symbol != "eos") or (id is not None and (outside or given is None)):
            named[f"{symbol}_token_id"] = id
    return named


LANGUAGE = LanguageConversion()
