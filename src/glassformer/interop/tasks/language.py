"""Language modeling: a stack of decoder layers that continues text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.errors import CheckpointError
from glassformer.generate import DecodingConfig, LanguageDecodingConfig, SpecialTokens, continue_texts
from glassformer.interop.decoding import GENERATION, export_continuation, import_continuation, suppressed_ids
from glassformer.interop.folder import generation_settings
from glassformer.interop.parity import (
    Logits,
    ParityInputs,
    Sample,
    comparison_texts,
    random_rows,
    read_back,
    refuse_long,
)
from glassformer.interop.tasks.tokenizer_files import pipeline_of, write_tokenizer
from glassformer.interop.tokenizer_json import (
    Around,
    Pipeline,
    named_special,
    pretrained_pair,
    to_tokenizer_json,
)
from glassformer.interop.transformers_api import load_tokenizer, quiet, read_by, refuse_other_ids, transformers
from glassformer.predict.loading import LoadedRun
from glassformer.text import TokenizerPair
from glassformer.text.pretrained import PretrainedTokenizer

NEW_TOKENS = 8
"""Maximum tokens of a continuation that is compared."""
NEVER_IN_UTF8 = ("À", "<0xC0>")
"""Names of the byte 0xC0, which no text contains, in byte-level and byte-fallback vocabularies."""

UNCUT = {"truncation": None, "padding": None}
"""Pipeline settings that disable truncation and padding; the limits of the model apply instead."""


class LanguageConversion:
    """Conversion of a language model; if training separated documents, a text follows the end token on both sides."""

    loader = "AutoModelForCausalLM"
    generation = GENERATION | {"min_length": 0}  # counts the prompt there

    def read(self, folder: Path, their_config: dict[str, Any], config: Any) -> tuple[dict[str, Any], TokenizerPair]:
        pipeline = pipeline_of(folder, config.vocab_size)
        special_ids = _special_ids(their_config, pipeline)
        pair = pretrained_pair(PretrainedTokenizer(special_ids, {**pipeline.document, **UNCUT}, pipeline.entries))
        values = {
            "task": "language",
            "decoding": import_continuation(generation_settings(folder)).model_dump(mode="json"),
            "context": config.max_length,
            "documents": "line" if pipeline.around() == [special_ids["</s>"]] else "file",
            "tokenizer": pair.fingerprint,
        }
        return values, pair

    def settings(self, run: LoadedRun) -> dict[str, Any]:
        """Ids of the special tokens; without a start token there, the end token is the start, as in GPT-2."""
        tokenizer, converted = run.tokenizer, to_tokenizer_json(run.tokenizer, "nothing")
        pad = tokenizer.pad_id if named_special(tokenizer, converted, "<pad>") else None
        start = tokenizer.start_id if named_special(tokenizer, converted, "<s>") else tokenizer.end_id
        return {"pad_token_id": pad, "bos_token_id": start, "eos_token_id": tokenizer.end_id}

    def write(self, folder: Path, run: LoadedRun) -> list[str]:
        decoding = LanguageDecodingConfig.parse(run.settings.get("decoding", {}), "decoding")
        values, notes = export_continuation(decoding)
        values = {**values, **self.settings(run), "suppress_tokens": suppressed_ids(run.tokenizer)}
        transformers.GenerationConfig(**values).save_pretrained(folder)
        around: Around = "document" if _starts_with_end(run) else "nothing"
        return notes + write_tokenizer(folder, run.tokenizer, run.model.config.max_length, around)

    def inputs(self, run: LoadedRun) -> ParityInputs:
        c, tokenizer = run.model.config, run.tokenizer
        generator = torch.Generator().manual_seed(1)
        ids, mask = random_rows(c.vocab_size, set(), tokenizer.pad_id, c.max_length, generator)
        return ParityInputs((ids, mask), mask)

    def logits(self, model: Any) -> Logits:
        return lambda ids, mask: model(ids, mask)

    def their_logits(self, their_model: Any) -> Logits:
        return lambda ids, mask: their_model(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits

    def samples(self, run: LoadedRun, their_model: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        tokenizer, reader, samples = run.tokenizer, load_tokenizer(folder), []
        before = [tokenizer.end_id] if _starts_with_end(run) else []
        for text in comparison_texts(texts, tokenizer):
            ids = [*before, *tokenizer.encode(text)]
            refuse_other_ids(folder, text, ids, read_by(reader, folder, text)["input_ids"])
            refuse_long(text, len(ids) + 1, run.model.config.max_length)
            max_tokens = min(NEW_TOKENS, run.model.config.max_length - len(ids))
            our_text = tokenizer.decode([*ids, *_our_continuation(run, ids, max_tokens)])
            their_ids = _their_continuation(run, their_model, ids, max_tokens)
            samples.append(Sample(text, our_text, read_back(reader, tokenizer, [*ids, *their_ids])))
        return samples


def _starts_with_end(run: LoadedRun) -> bool:
    return bool(run.settings.get("documents", "file") != "file")


def _our_continuation(run: LoadedRun, ids: list[int], max_tokens: int) -> list[int]:
    config = DecodingConfig.parse({"beam_size": 1, "max_length": max_tokens, "length_penalty": "none"}, "decoding")
    return continue_texts(run.model, [ids], SpecialTokens.of(run.tokenizer), config)[0][0].tokens


@torch.inference_mode()
def _their_continuation(run: LoadedRun, their_model: Any, ids: list[int], max_tokens: int) -> list[int]:
    tokenizer = run.tokenizer
    config = transformers.GenerationConfig(
        num_beams=1,
        do_sample=False,
        max_new_tokens=max_tokens,
        suppress_tokens=suppressed_ids(tokenizer),
        pad_token_id=tokenizer.pad_id,
        eos_token_id=tokenizer.end_id,
    )
    their_model.generation_config = config
    with quiet():
        prompt = torch.tensor([ids])
        output: list[int] = their_model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt))[0].tolist()
    new = output[len(ids) :]
    return new[: new.index(tokenizer.end_id)] if tokenizer.end_id in new else new


def _special_ids(their_config: dict[str, Any], pipeline: Pipeline) -> dict[str, int]:
    """Ids of the special tokens, from ``config.json`` or else from the tokenizer.

    The ``config.json`` of a GPT-2 with a custom vocabulary may hold ids outside of that vocabulary. Padding must be a
    token that no text contains, and not the end token, which separates documents; failing that, a byte that no text
    contains. The same holds for the start token if it has no symbol.
    """
    their_config = {**their_config, **_ids_of_tokenizer(their_config, pipeline)}
    end = their_config.get("eos_token_id")
    if not isinstance(end, int):
        raise CheckpointError(f"config.json: eos_token_id={end!r} is not one id; name it there")
    bytewise = "ByteLevel" in json.dumps(pipeline.document.get("pre_tokenizer")) or pipeline.document["model"].get(
        "byte_fallback"
    )
    impossible = [pipeline.encoder.token_to_id(name) for name in NEVER_IN_UTF8] if bytewise else []
    others = [their_config.get("pad_token_id"), pipeline.special("pad_token"), pipeline.unknown(), *impossible]
    pad = next((id for id in others if isinstance(id, int) and id != end and id >= 0), None)
    if pad is None:
        configured = f"pad_token_id={their_config.get('pad_token_id')}"
        raise CheckpointError(
            f"{pipeline.origin}: no symbol can be the padding: {configured}, there is no unknown symbol, "
            "and the vocabulary is not of bytes; add a pad_token to the tokenizer"
        )
    start, unknown = their_config.get("bos_token_id"), pipeline.unknown()
    if not isinstance(start, int) or start == end:
        start = pad
    return {"<pad>": pad, "<s>": start, "</s>": end, "<unk>": pad if unknown in (None, end) else unknown}


def _ids_of_tokenizer(their_config: dict[str, Any], pipeline: Pipeline) -> dict[str, int | None]:
    """Ids of padding, start and end that ``config.json`` lacks, or that are outside the vocabulary there.

    The value is ``None`` if the tokenizer lacks the token too.
    """
    size = (
        len(pipeline.entries)
        if pipeline.entries is not None
        else len(pipeline.encoder.get_vocab(with_added_tokens=True))
    )
    ids: dict[str, int | None] = {}
    for role in ("pad", "bos", "eos"):
        configured, id = their_config.get(f"{role}_token_id"), pipeline.special(f"{role}_token")
        if role == "pad" and id is None:
            id = (pipeline.document.get("padding") or {}).get("pad_id")
        outside = isinstance(configured, int) and not 0 <= configured < size
        if (outside and role != "eos") or (id is not None and (outside or configured is None)):
            ids[f"{role}_token_id"] = id
    return ids


LANGUAGE = LanguageConversion()
