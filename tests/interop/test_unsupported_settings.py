"""Notes on settings of transformers without a counterpart; neutral values are not reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from glassformer.interop.huggingface import export_folder, import_folder
from glassformer.storage.checkpoint import load_checkpoint
from interop.small_folders import folder, translator


def import_notes(path: Path, tmp_path: Path, **generation: Any) -> list[str]:
    if generation:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return import_folder(str(path), tmp_path / "ours").notes


def test_unsupported_settings_are_one_note(tmp_path: Path) -> None:
    theirs = translator(tmp_path / "theirs", "pegasus", activation_dropout=0.1, decoder_layerdrop=0.05)
    generation = {"repetition_penalty": 0.8, "bad_words_ids": [[7], [8, 9]], "length_penalty": -1.0, "num_beams": 3}
    assert import_notes(theirs, tmp_path, **generation) == [
        "left out: bad_words_ids=[[7], [8, 9]] (generation_config.json), repetition_penalty=0.8 "
        "(generation_config.json), length_penalty=-1.0 (generation_config.json), activation_dropout=0.1 (config.json), "
        "decoder_layerdrop=0.05 (config.json)"
    ]


def test_neutral_settings_are_not_reported(tmp_path: Path) -> None:
    """Marian's models forbid their padding, which is also their start and never written here."""
    theirs = translator(tmp_path / "theirs", "marian", decoder_start_token_id=1)
    neutral = {"repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0, "forced_bos_token_id": None}
    assert not import_notes(theirs, tmp_path, bad_words_ids=[[1]], suppress_tokens=[1], length_penalty=0.0, **neutral)
    export_folder(tmp_path / "ours", tmp_path / "again")
    assert not import_folder(str(tmp_path / "again"), tmp_path / "back").notes


def test_settings_of_earlier_days_are_in_the_configuration(tmp_path: Path) -> None:
    theirs = translator(tmp_path / "theirs", "marian")
    (theirs / "generation_config.json").unlink()
    path = theirs / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "forced_bos_token_id": 5, "min_length": 4}))
    assert import_notes(theirs, tmp_path) == ["left out: forced_bos_token_id=5 (config.json)"]
    assert load_checkpoint(tmp_path / "ours").config["decoding"]["min_length"] == 3


STACKS: list[tuple[str, dict[str, Any], str]] = [
    ("GPT2LMHeadModel", {"embd_pdrop": 0.2}, "left out: embd_pdrop=0.2 (config.json)"),
    ("BertForTokenClassification", {"classifier_dropout": 0.3}, "left out: classifier_dropout=0.3 (config.json)"),
]


@pytest.mark.parametrize(("model", "changes", "ending"), STACKS)
def test_dropouts_without_a_counterpart_are_reported(
    model: str, changes: dict[str, Any], ending: str, tmp_path: Path
) -> None:
    [note] = import_notes(folder(tmp_path / "theirs", model, **changes), tmp_path)
    assert note.endswith(ending)


def test_minimum_length_of_a_language_model_is_reported(tmp_path: Path) -> None:
    """The minimum length includes the prompt there and is reported; the length penalty is imported."""
    theirs = folder(tmp_path / "theirs", "GPT2LMHeadModel")
    notes = import_notes(theirs, tmp_path, min_length=9, repetition_penalty=0.7, num_beams=2, length_penalty=0.5)
    assert notes == ["left out: repetition_penalty=0.7 (generation_config.json), min_length=9 (generation_config.json)"]
    assert load_checkpoint(tmp_path / "ours").config["decoding"]["alpha"] == 0.5
    again = export_folder(tmp_path / "ours", tmp_path / "again").path
    assert json.loads((again / "generation_config.json").read_text())["length_penalty"] == 0.5


def test_sampling_settings_are_imported(tmp_path: Path) -> None:
    theirs = translator(tmp_path / "theirs", "marian")
    assert not import_notes(theirs, tmp_path, do_sample=True, temperature=0.7, max_new_tokens=17, max_length=40)
    stored = load_checkpoint(tmp_path / "ours").config["decoding"]
    expected = {"sample": True, "beam_size": 1, "temperature": 0.7, "top_k": 50, "max_length": 17}
    assert {name: stored[name] for name in expected} == expected


def test_long_lists_are_cut(tmp_path: Path) -> None:
    theirs = translator(tmp_path / "theirs", "marian")
    [note] = import_notes(theirs, tmp_path, bad_words_ids=[[word] for word in range(10, 60)])
    assert "[12], [13], [14], [15], ...]" in note
