"""Translation: an encoder–decoder between two vocabularies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from glassformer.generate import TranslationDecodingConfig
from glassformer.interop.decoding import GENERATION, export_decoding, import_decoding, suppressed_ids
from glassformer.interop.folder import generation_settings
from glassformer.interop.parity import (
    Logits,
    ParityInputs,
    Sample,
    comparison_texts,
    greedy_texts,
    logits_of,
    longest_text,
    random_inputs,
    read_back,
    refuse_long,
)
from glassformer.interop.tasks.tokenizer_files import write_tokenizer
from glassformer.interop.tokenizer_json import read_tokenizers
from glassformer.interop.transformers_api import load_tokenizer, quiet, read_by, transformers
from glassformer.predict.loading import LoadedRun
from glassformer.text import Tokenizer, TokenizerPair


class TranslationConversion:
    """Conversion of a translator; source and target may have a folder of tokenizer files each."""

    loader = "AutoModelForSeq2SeqLM"
    generation = GENERATION

    def read(self, folder: Path, their_config: dict[str, Any], config: Any) -> tuple[dict[str, Any], TokenizerPair]:
        pair = read_tokenizers(folder, their_config, config.vocab_sizes)
        decoding = import_decoding(generation_settings(folder))
        values = {"decoding": decoding.model_dump(mode="json"), "tokenizer": pair.fingerprint}
        return {"task": "translation", **values}, pair

    def settings(self, run: LoadedRun) -> dict[str, Any]:
        return _special_ids(run.pair.target)

    def write(self, folder: Path, run: LoadedRun) -> list[str]:
        tokenizers, config = run.pair, run.model.config
        decoding = TranslationDecodingConfig.parse(run.settings.get("decoding", {}), "decoding")
        values, notes = export_decoding(decoding, config.max_length)
        values |= {**_special_ids(tokenizers.target), "suppress_tokens": suppressed_ids(tokenizers.target)}
        transformers.GenerationConfig(**values).save_pretrained(folder)
        if config.positions == "sinusoidal":
            notes.append(f"positions end there: texts of more than {config.max_length} tokens cannot be read")
        sides = {folder: tokenizers.source}
        if tokenizers.target is not tokenizers.source:
            sides[folder / "target"] = tokenizers.target
            notes.append('the target has a vocabulary of its own: AutoTokenizer.from_pretrained(…, subfolder="target")')
        for subfolder, tokenizer in sides.items():
            notes += write_tokenizer(subfolder, tokenizer, config.max_length)
        return notes

    def inputs(self, run: LoadedRun) -> ParityInputs:
        return random_inputs(run.model, run.pair)

    def logits(self, model: Any) -> Logits:
        return logits_of(model)

    def their_logits(self, their_model: Any) -> Logits:
        return lambda source, source_mask, target: (
            their_model(
                input_ids=source, attention_mask=source_mask.long(), decoder_input_ids=target, use_cache=False
            ).logits
        )

    def samples(self, run: LoadedRun, their_model: Any, folder: Path, texts: Sequence[str] | None) -> list[Sample]:
        sources = comparison_texts(texts, run.tokenizer)
        for text, ids in zip(sources, run.tokenizer.encode_batch(sources), strict=True):
            refuse_long(text, len(ids) + 1, run.model.config.max_length)
        our_texts = greedy_texts(run.model, run.pair, sources)
        return [
            Sample(*row)
            for row in zip(sources, our_texts, _their_texts(run, their_model, folder, sources), strict=True)
        ]


@torch.inference_mode()
def _their_texts(run: LoadedRun, their_model: Any, folder: Path, texts: list[str]) -> list[str]:
    """Translate with their tokenizer and ``generate``, at most as many tokens as our search."""
    tokenizer, longest = run.pair.target, longest_text(run.model)
    source, target = load_tokenizer(folder), folder / "target"
    reader = load_tokenizer(target) if target.is_dir() else source
    inputs = read_by(source, folder, texts, return_tensors="pt", padding=True)
    with quiet():
        their_model.generation_config = transformers.GenerationConfig(
            num_beams=1,
            max_new_tokens=longest + 1,
            suppress_tokens=suppressed_ids(tokenizer),
            pad_token_id=tokenizer.pad_id,
            eos_token_id=tokenizer.end_id,
            decoder_start_token_id=tokenizer.start_id,
        )
        outputs = their_model.generate(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
    return [read_back(reader, tokenizer, _content(row, tokenizer.end_id, longest)) for row in outputs.tolist()]


def _content(ids: list[int], end: int, longest: int) -> list[int]:
    """Ids between the start and the end token, at most ``longest``."""
    content = ids[1:]
    return (content[: content.index(end)] if end in content else content)[:longest]


def _special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.start_id,
        "decoder_start_token_id": tokenizer.start_id,
        "eos_token_id": tokenizer.end_id,
    }


TRANSLATION = TranslationConversion()
