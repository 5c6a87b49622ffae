"""Translation: an encoder–decoder between two vocabularies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.generate import TranslationDecodingConfig
from glassformer.interop.decoding import GENERATION, decoding_to_ours, decoding_to_theirs, never_written
from glassformer.interop.parity import Logits, ParityInputs, Sample
from glassformer.interop.samples import (
    compared,
    greedy_texts,
    logits_of,
    longest_text,
    random_inputs,
    read_back,
    refuse_long,
)
from glassformer.interop.tasks.tokenizer_files import write_tokenizer
from glassformer.interop.tokenizer_json import generation_settings, read_tokenizers
from glassformer.interop.transformers_api import loaded_tokenizer, quiet, read_by, transformers
from glassformer.predict.loading import LoadedRun
from glassformer.text import Tokenizer, TokenizerPair


class TranslationConversion:
    """Source and target may have a folder of tokenizer files each."""

    loader = "AutoModelForSeq2SeqLM"
    generation = GENERATION

    def read(self, folder: Path, theirs: dict[str, Any], config: Any) -> tuple[dict[str, Any], TokenizerPair]:
        pair = read_tokenizers(folder, theirs, config.vocab_sizes)
        decoding = decoding_to_ours(generation_settings(folder))
        values = {"decoding": decoding.model_dump(mode="json"), "tokenizer": pair.fingerprint}
        return {"task": "translation", **values}, pair

    def settings(self, held: LoadedRun) -> dict[str, Any]:
        return _symbols(held.pair.target)

    def write(self, folder: Path, held: LoadedRun) -> list[str]:
        tokenizers, config = held.pair, held.model.config
        decoding = TranslationDecodingConfig.parse(held.settings.get("decoding", {}), "decoding")
        values, notes = decoding_to_theirs(decoding, config.max_length)
        values |= {**_symbols(tokenizers.target), "suppress_tokens": never_written(tokenizers.target)}
        transformers.GenerationConfig(**values).save_pretrained(folder)
        if config.positions == "sinusoidal":
            notes.append(f"positions end there: texts of more than {config.max_length} tokens cannot be read")
        sides = {folder: tokenizers.source}
        if tokenizers.target is not tokenizers.source:
            sides[folder / "target"] = tokenizers.target
            notes.append('the target has a vocabulary of its own: AutoTokenizer.from_pretrained(…, subfolder="target")')
        for place, tokenizer in sides.items():
            notes += write_tokenizer(place, tokenizer, config.max_length)
        return notes

    def inputs(self, held: LoadedRun) -> ParityInputs:
        return random_inputs(held.model, held.pair)

    def logits(self, model: Any) -> Logits:
        return logits_of(model)

    def their_logits(self, theirs: Any) -> Logits:
        def logits(source: Tensor, source_mask: Tensor, target: Tensor) -> Tensor:
            given = {"input_ids": source, "attention_mask": source_mask.long(), "decoder_input_ids": target}
            found: Tensor = theirs(**given, use_cache=False).logits
            return found

        return logits

    def samples(self, held: LoadedRun, theirs: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        given = compared(texts, held.tokenizer)
        for text, ids in zip(given, held.tokenizer.encode_batch(given), strict=True):
            refuse_long(text, len(ids) + 1, held.model.config.max_length)
        ours = greedy_texts(held.model, held.pair, given)
        return [Sample(*row) for row in zip(given, ours, _their_texts(held, theirs, folder, given), strict=True)]


@torch.inference_mode()
def _their_texts(held: LoadedRun, theirs: Any, folder: Path, texts: list[str]) -> list[str]:
    """By their tokenizer and their ``generate``, cut where ours ends at the latest."""
    symbols, longest = held.pair.target, longest_text(held.model)
    source, target = loaded_tokenizer(folder), folder / "target"
    reader = loaded_tokenizer(target) if target.is_dir() else source
    given = read_by(source, folder, texts, return_tensors="pt", padding=True)
    with quiet():
        theirs.generation_config = transformers.GenerationConfig(
            num_beams=1,
            max_new_tokens=longest + 1,
            suppress_tokens=never_written(symbols),
            pad_token_id=symbols.pad_id,
            eos_token_id=symbols.end_id,
            decoder_start_token_id=symbols.start_id,
        )
        found = theirs.generate(input_ids=given["input_ids"], attention_mask=given["attention_mask"])
    return [read_back(reader, symbols, _said(row, symbols.end_id, longest)) for row in found.tolist()]


def _said(ids: list[int], end: int, longest: int) -> list[int]:
    """Without the start, and what comes with and after the end."""
    said = ids[1:]
    return (said[: said.index(end)] if end in said else said)[:longest]


def _symbols(tokenizer: Tokenizer) -> dict[str, int]:
    return {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.start_id,
        "decoder_start_token_id": tokenizer.start_id,
        "eos_token_id": tokenizer.end_id,
    }


TRANSLATION = TranslationConversion()
