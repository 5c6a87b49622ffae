"""Decoding settings: conversion between ``generation_config.json`` of Hugging Face and our configuration."""

from typing import Any

from glassformer.generate import DecodingConfig, LanguageDecodingConfig
from glassformer.text import Tokenizer

GENERATION: dict[str, Any] = {
    "forced_bos_token_id": None,
    "forced_decoder_ids": None,
    "bad_words_ids": None,
    "force_words_ids": None,
    "sequence_bias": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "diversity_penalty": 0.0,
}
"""Settings of Hugging Face that change the generated text, each with its neutral value; None is neutral too."""


def suppressed_ids(tokenizer: Tokenizer) -> list[int]:
    """Tokens that a search never produces here: padding and start, unless one is the end."""
    return sorted({tokenizer.pad_id, tokenizer.start_id} - {tokenizer.end_id})


def export_decoding(decoding: DecodingConfig, max_length: int) -> tuple[dict[str, Any], list[str]]:
    """Values of ``generation_config.json``, and a note on each setting without a counterpart.

    A length is absolute there, so the limit is that of the positions.
    """
    values, notes = _export_search(decoding)
    if decoding.max_length is None:
        notes.append(f"max_extra={decoding.max_extra} is not said there; max_length={max_length} is")
    longest = max_length if decoding.max_length is None else min(decoding.max_length + 1, max_length)
    return {**values, "max_length": longest, "num_return_sequences": decoding.n_best}, notes


def export_continuation(decoding: DecodingConfig) -> tuple[dict[str, Any], list[str]]:
    """Values of ``generation_config.json`` for a language model; both limits count new tokens."""
    values, notes = _export_search(decoding)
    return {**values, "max_new_tokens": decoding.max_length or decoding.max_extra}, notes


def draws(decoding: DecodingConfig) -> bool:
    """True if decoding samples. A temperature of 0 is greedy search, and Hugging Face rejects it as a temperature."""
    return decoding.sample and decoding.temperature > 0


def _export_search(decoding: DecodingConfig) -> tuple[dict[str, Any], list[str]]:
    """Settings of the search, and notes on those that hold text: theirs hold ids or need the tokenizer."""
    values, notes = _export_penalty(decoding)
    values["num_beams"] = 1 if decoding.sample else decoding.beam_size
    values |= {"no_repeat_ngram_size": decoding.no_repeat_ngram, "do_sample": draws(decoding)}
    if decoding.repetition_penalty != 1:
        values["repetition_penalty"] = decoding.repetition_penalty
    if decoding.min_length:
        values["min_new_tokens"] = decoding.min_length
    if draws(decoding):
        values |= {"temperature": decoding.temperature, "top_k": decoding.top_k, "top_p": decoding.top_p}
        values |= {"min_p": decoding.min_p} if decoding.min_p else {}
    stop = decoding.stop if isinstance(decoding, LanguageDecodingConfig) else ()
    texts = {"logit_bias": decoding.logit_bias, "stop": list(stop)}
    return values, notes + [f"{name}={x} is not exported; set it when you generate" for name, x in texts.items() if x]


def _export_penalty(decoding: DecodingConfig) -> tuple[dict[str, Any], list[str]]:
    """Length penalty; theirs divides by |y|^α as our ``average``, and is rejected there without a beam."""
    if decoding.sample or decoding.beam_size == 1:
        return {}, []
    if decoding.length_penalty == "gnmt":
        note = "length_penalty=gnmt has no counterpart there; length_penalty=1.0 is written, which is average"
        return {"length_penalty": 1.0}, [note]
    return {"length_penalty": decoding.alpha if decoding.length_penalty == "average" else 0.0}, []


def import_decoding(settings: dict[str, Any]) -> DecodingConfig:
    """Our decoding settings for ``generation_config.json``, whose lengths include the start token."""
    values = _import_search(settings)
    longest, least = settings.get("max_length"), settings.get("min_length")
    if longest is not None and longest > 1:
        values["max_length"] = longest - 1
    if new := settings.get("max_new_tokens"):
        values["max_length"] = new
    if least is not None and least - 1 > values.get("min_length", 0):
        values["min_length"] = least - 1
    return DecodingConfig.parse(values, "generation_config.json")


def import_continuation(settings: dict[str, Any]) -> LanguageDecodingConfig:
    """Our decoding settings of a language model for ``generation_config.json``."""
    values = _import_search(settings)
    if longest := settings.get("max_new_tokens"):
        values["max_length"] = longest
    return LanguageDecodingConfig.parse(values, "generation_config.json")


def _import_search(settings: dict[str, Any]) -> dict[str, Any]:
    """Search settings with the defaults of transformers: greedy search, or a ``top_k`` of 50 when sampling."""
    sample = bool(settings.get("do_sample"))
    values: dict[str, Any] = {"sample": sample, "beam_size": 1 if sample else settings.get("num_beams") or 1}
    values |= {"length_penalty": "average", "alpha": 1.0}
    if (penalty := settings.get("length_penalty")) is not None and penalty >= 0:
        values["alpha"] = penalty
    if sample:
        values["top_k"] = 50 if settings.get("top_k") is None else settings["top_k"]
        values |= {name: settings[name] for name in ("temperature", "top_p", "min_p") if settings.get(name) is not None}
    if least := settings.get("min_new_tokens"):
        values["min_length"] = least
    if (penalty := settings.get("repetition_penalty") or 1) >= 1:
        values["repetition_penalty"] = penalty
    if ngram := settings.get("no_repeat_ngram_size"):
        values["no_repeat_ngram"] = ngram
    return values


def unsupported_generation(settings: dict[str, Any], neutral: dict[str, Any], suppressed: set[int]) -> dict[str, Any]:
    """Settings of ``generation_config.json`` without a counterpart, except bans of tokens in ``suppressed``."""
    unsupported = {name: settings[name] for name in neutral if settings.get(name) not in (None, [], neutral[name])}
    if unsupported.get("repetition_penalty", 0) > 1:
        del unsupported["repetition_penalty"]
    for name in ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens"):
        if all(_ids(word) <= suppressed and len(_ids(word)) == 1 for word in unsupported.get(name, ())):
            unsupported.pop(name, None)
    if (settings.get("length_penalty") or 0) < 0 and (settings.get("num_beams") or 1) > 1:
        unsupported["length_penalty"] = settings["length_penalty"]
    return unsupported


def _ids(word: int | list[int]) -> set[int]:
    return {word} if isinstance(word, int) else set(word)
