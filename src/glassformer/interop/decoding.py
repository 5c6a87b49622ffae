"""How text is generated, in Hugging Face's words and in ours."""

from typing import Any

from glassformer.generate import DecodingConfig


def decoding_to_theirs(decoding: DecodingConfig, max_length: int) -> tuple[dict[str, Any], list[str]]:
    """``generation_config.json``, and a sentence for each setting that it cannot say.

    Theirs divides by |y|^α as our ``average``; a length is absolute there, so the limit is that of the positions.
    """
    notes = []
    penalty = decoding.alpha if decoding.length_penalty == "average" else 0.0
    if decoding.length_penalty == "gnmt":
        penalty = 1.0
        notes.append("length_penalty=gnmt has no counterpart there; length_penalty=1.0 is written, which is average")
    if decoding.max_length is None:
        notes.append(f"max_extra={decoding.max_extra} is not said there; max_length={max_length} is")
    values: dict[str, Any] = {
        "num_beams": decoding.beam_size,
        "length_penalty": penalty,
        "max_length": max_length if decoding.max_length is None else min(decoding.max_length + 1, max_length),
        "num_return_sequences": decoding.n_best,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "do_sample": decoding.sample,
    }
    if decoding.min_length:
        values["min_new_tokens"] = decoding.min_length
    if decoding.sample:
        values |= {"num_beams": 1, "temperature": decoding.temperature, "top_k": decoding.top_k}
        values |= {"top_p": decoding.top_p, "min_p": decoding.min_p or None}
    return {name: value for name, value in values.items() if value is not None}, notes


def decoding_to_ours(theirs: dict[str, Any]) -> DecodingConfig:
    """What ``generation_config.json`` says, as far as ours knows it; greedy where it says nothing, as theirs is."""
    beam = theirs.get("num_beams") or 1
    values: dict[str, Any] = {"beam_size": beam, "length_penalty": "average", "alpha": 1.0}
    if (penalty := theirs.get("length_penalty")) is not None and penalty >= 0:
        values["alpha"] = penalty
    if (longest := theirs.get("max_length")) is not None and longest > 1:
        values["max_length"] = longest - 1  # theirs counts the start
    if ngram := theirs.get("no_repeat_ngram_size"):
        values["no_repeat_ngram"] = ngram
    return DecodingConfig.parse(values, "generation_config.json")


def continuing_to_theirs(decoding: DecodingConfig) -> dict[str, Any]:
    """Of a language model, where both count the new tokens."""
    values: dict[str, Any] = {
        "num_beams": 1 if decoding.sample else decoding.beam_size,
        "max_new_tokens": decoding.max_length or decoding.max_extra,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        "do_sample": decoding.sample,
    }
    if decoding.min_length:
        values["min_new_tokens"] = decoding.min_length
    if decoding.sample:
        values |= {"temperature": decoding.temperature, "top_k": decoding.top_k, "top_p": decoding.top_p}
        values |= {"min_p": decoding.min_p} if decoding.min_p else {}
    return values


def continuing_to_ours(theirs: dict[str, Any]) -> DecodingConfig:
    """Greedy where it says nothing; ``top_k`` is 50 there when text is drawn, unless it is said."""
    sample = bool(theirs.get("do_sample"))
    values: dict[str, Any] = {"sample": sample, "beam_size": 1 if sample else theirs.get("num_beams") or 1}
    values |= {"length_penalty": "average", "alpha": 1.0}
    if sample:
        values["top_k"] = 50 if theirs.get("top_k") is None else theirs["top_k"]
        values |= {name: theirs[name] for name in ("temperature", "top_p", "min_p") if theirs.get(name) is not None}
    if longest := theirs.get("max_new_tokens"):
        values["max_length"] = longest
    if ngram := theirs.get("no_repeat_ngram_size"):
        values["no_repeat_ngram"] = ngram
    return DecodingConfig.parse(values, "generation_config.json")
