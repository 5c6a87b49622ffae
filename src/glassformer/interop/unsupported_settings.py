"""What their settings say and ours have no word for: told when a model is imported, unless it says nothing."""

import reprlib
from pathlib import Path
from typing import Any

from glassformer.interop.decoding import never_written
from glassformer.interop.runs import Held
from glassformer.interop.table import Family
from glassformer.interop.tokenizer_json import generation_file, read_json

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
"""What changes the text that is generated, and the value that does not; ``None`` never does."""
OF_TASK: dict[str, dict[str, Any]] = {"translation": GENERATION, "language": {**GENERATION, "min_length": 0}}
"""The least length counts the prompt there, and no other search."""


def unsupported_settings(family: Family, theirs: dict[str, Any], folder: Path, held: Held) -> list[str]:
    """One sentence that names each setting, its value and its file; none where nothing is left out."""
    said: list[str] = []
    if family.task in OF_TASK:
        file = generation_file(folder)
        found = _of_generation(read_json(file), OF_TASK[family.task], set(never_written(held.pair.target)))
        said += [f"{_shown(name, value)} ({file.name})" for name, value in found.items()]
    for name, neutral in family.training_only.items():
        value = theirs.get(name)
        if value is not None and value != (theirs[neutral] if isinstance(neutral, str) else neutral):
            said.append(f"{_shown(name, value)} (config.json)")
    return [f"left out: {', '.join(said)}"] if said else []


def _of_generation(theirs: dict[str, Any], neutral: dict[str, Any], never: set[int]) -> dict[str, Any]:
    """``never``: what is never written here anyway, so that forbidding it says nothing."""
    found = {name: theirs[name] for name in neutral if theirs.get(name) not in (None, [], neutral[name])}
    if found.get("repetition_penalty", 0) > 1:
        del found["repetition_penalty"]
    for name in ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens"):
        if all(_ids(word) <= never and len(_ids(word)) == 1 for word in found.get(name, ())):
            found.pop(name, None)
    if (theirs.get("length_penalty") or 0) < 0 and (theirs.get("num_beams") or 1) > 1:
        found["length_penalty"] = theirs["length_penalty"]
    return found


def _ids(word: int | list[int]) -> set[int]:
    return {word} if isinstance(word, int) else set(word)


def _shown(name: str, value: Any) -> str:
    """Long lists are cut."""
    return f"{name}={reprlib.repr(value)}"
