"""Report Hugging Face settings that have no counterpart here."""

import reprlib
from pathlib import Path
from typing import Any

from glassformer.interop.decoding import never_written
from glassformer.interop.table import Family
from glassformer.interop.tasks.conversion import conversion_of
from glassformer.interop.tokenizer_json import generation_file, read_json
from glassformer.predict.loading import LoadedRun


def unsupported_settings(family: Family, theirs: dict[str, Any], folder: Path, held: LoadedRun) -> list[str]:
    """One sentence that names each setting, its value and its file; none where nothing is left out."""
    said: list[str] = []
    if neutral := conversion_of(family.task).generation:
        file = generation_file(folder)
        found = _of_generation(read_json(file), neutral, set(never_written(held.pair.target)))
        said += [f"{_shown(name, value)} ({file.name})" for name, value in found.items()]
    for name, unused in family.training_only.items():
        value = theirs.get(name)
        if value is not None and value != (theirs[unused] if isinstance(unused, str) else unused):
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
