"""How text is generated, in Hugging Face's words and in ours."""

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
"""Their settings that change the generated text, each with the value that does not; None never does."""


def never_written(tokenizer: Tokenizer) -> list[int]:
    """What a search here never writes, and theirs must be told so: padding and start, unless one is the end."""
    return sorted({tokenizer.pad_id, tokenizer.start_id} - {tokenizer.end_id})


def decoding_to_theirs(decoding: DecodingConfig, max_length: int) -> tuple[dict[str, Any], list[str]]:
    """``generation_config.json``, and a sentence for each setting that it cannot say.

    A length is absolute there, so the limit is that of the positions.
    """
    penalty, notes = _penalty_to_theirs(decoding)
    if decoding.max_length is None:
        notes.append(f"max_extra={decoding.max_extra} is not said there; max_length={max_length} is")
    values: dict[str, Any] = {
        "num_beams": decoding.beam_size,
        **penalty,
        "max_length": max_length if decoding.max_length is None else min(decoding.max_length + 1, max_length),
        "num_return_sequences": decoding.n_best,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "do_sample": draws(decoding),
        **_repetition(decoding),
    }
    notes += _not_written(decoding)
    if decoding.min_length:
        values["min_new_tokens"] = decoding.min_length
    if draws(decoding):
        values |= {"num_beams": 1, "temperature": decoding.temperature, "top_k": decoding.top_k}
        values |= {"top_p": decoding.top_p, "min_p": decoding.min_p or None}
    return {name: value for name, value in values.items() if value is not None}, notes


def draws(decoding: DecodingConfig) -> bool:
    """True if decoding samples. A temperature of 0 is greedy search, and Hugging Face rejects it as a temperature."""
    return decoding.sample and decoding.temperature > 0


def _repetition(decoding: DecodingConfig) -> dict[str, Any]:
    return {} if decoding.repetition_penalty == 1 else {"repetition_penalty": decoding.repetition_penalty}


def _not_written(decoding: DecodingConfig) -> list[str]:
    """Notes on settings that hold text, while those of Hugging Face hold ids or need the tokenizer."""
    stop = decoding.stop if isinstance(decoding, LanguageDecodingConfig) else ()
    settings = {"logit_bias": decoding.logit_bias, "stop": list(stop)}
    return [f"{name}={value} is not exported; set it when you generate" for name, value in settings.items() if value]


def _penalty_to_theirs(decoding: DecodingConfig) -> tuple[dict[str, Any], list[str]]:
    """Theirs divides by |y|^α as our ``average``, and refuses to write what only a beam heeds where there is none."""
    if decoding.sample or decoding.beam_size == 1:
        return {}, []
    if decoding.length_penalty == "gnmt":
        said = "length_penalty=gnmt has no counterpart there; length_penalty=1.0 is written, which is average"
        return {"length_penalty": 1.0}, [said]
    return {"length_penalty": decoding.alpha if decoding.length_penalty == "average" else 0.0}, []


def decoding_to_ours(theirs: dict[str, Any]) -> DecodingConfig:
    """What ``generation_config.json`` says, as far as ours knows it; the lengths of theirs count the start."""
    values = _searched(theirs)
    longest, least = theirs.get("max_length"), theirs.get("min_length")
    if longest is not None and longest > 1:
        values["max_length"] = longest - 1
    if new := theirs.get("max_new_tokens"):
        values["max_length"] = new
    if least is not None and least - 1 > values.get("min_length", 0):
        values["min_length"] = least - 1
    return DecodingConfig.parse(values, "generation_config.json")


def continuing_to_theirs(decoding: DecodingConfig) -> tuple[dict[str, Any], list[str]]:
    """Of a language model, where both count the new tokens."""
    penalty, notes = _penalty_to_theirs(decoding)
    values: dict[str, Any] = {
        "num_beams": 1 if decoding.sample else decoding.beam_size,
        **penalty,
        "max_new_tokens": decoding.max_length or decoding.max_extra,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "do_sample": draws(decoding),
        **_repetition(decoding),
    }
    notes += _not_written(decoding)
    if decoding.min_length:
        values["min_new_tokens"] = decoding.min_length
    if draws(decoding):
        values |= {"temperature": decoding.temperature, "top_k": decoding.top_k, "top_p": decoding.top_p}
        values |= {"min_p": decoding.min_p} if decoding.min_p else {}
    return values, notes


def continuing_to_ours(theirs: dict[str, Any]) -> LanguageDecodingConfig:
    """Decoding settings of a language model."""
    values = _searched(theirs)
    if longest := theirs.get("max_new_tokens"):
        values["max_length"] = longest
    return LanguageDecodingConfig.parse(values, "generation_config.json")


def _searched(theirs: dict[str, Any]) -> dict[str, Any]:
    """Greedy where it says nothing; ``top_k`` is 50 there when text is drawn, unless it is said."""
    sample = bool(theirs.get("do_sample"))
    values: dict[str, Any] = {"sample": sample, "beam_size": 1 if sample else theirs.get("num_beams") or 1}
    values |= {"length_penalty": "average", "alpha": 1.0}
    if (penalty := theirs.get("length_penalty")) is not None and penalty >= 0:
        values["alpha"] = penalty
    if sample:
        values["top_k"] = 50 if theirs.get("top_k") is None else theirs["top_k"]
        values |= {name: theirs[name] for name in ("temperature", "top_p", "min_p") if theirs.get(name) is not None}
    if least := theirs.get("min_new_tokens"):
        values["min_length"] = least
    if (penalty := theirs.get("repetition_penalty") or 1) >= 1:
        values["repetition_penalty"] = penalty
    if ngram := theirs.get("no_repeat_ngram_size"):
        values["no_repeat_ngram"] = ngram
    return values
