"""The vocabulary of a folder of theirs, whichever files it has."""

import json
from dataclasses import replace
from pathlib import Path

from glassformer.errors import CheckpointError
from glassformer.interop.tokenizer_json import Pipeline, pipeline_from, read_json, read_pipeline, way_to_a_tokenizer
from glassformer.interop.transformers_api import loaded_tokenizer

SYMBOLS = "special_tokens_map.json"
"""File of the special tokens in folders of older versions."""
OLDER = ("vocab.txt", "vocab.json")
"""WordPiece's list, and the table that goes with ``merges.txt``."""


def pipeline_of(folder: Path, size: int) -> Pipeline:
    """``tokenizer.json``, or what ``AutoTokenizer`` makes of the files that were before it."""
    if (folder / "tokenizer.json").is_file():
        found = read_pipeline(folder, size)
        older = read_json(folder / SYMBOLS) if (folder / SYMBOLS).is_file() else {}
        return replace(found, settings={**older, **found.settings})
    if not any((folder / name).is_file() for name in OLDER):
        raise CheckpointError(
            f"{folder}: has neither tokenizer.json nor {' nor '.join(OLDER)}; {way_to_a_tokenizer(folder)}"
        )
    made = loaded_tokenizer(folder)
    settings = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    settings = {**settings, **{name: str(token) for name, token in made.special_tokens_map.items()}}
    return pipeline_from(json.loads(made.backend_tokenizer.to_str()), settings, size, folder)
