"""BART and mBART with their tokenizers: two tables of positions, a start that is the end, language tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file

from glassformer.errors import CheckpointError
from glassformer.generate import SpecialTokens
from glassformer.interop.huggingface import export_folder, import_folder, transformers
from glassformer.predict.translator import Translator
from glassformer.storage.checkpoint import load_checkpoint
from interop.small_checkpoint import LINES, checkpoint
from interop.small_folders import byte_level, translator

BART = {"decoder_start_token_id": 2, "forced_eos_token_id": 2, "scale_embedding": False}
PLAIN = LINES[:4]
"""Lines without the text of a special token, which their tokenizers take for the token."""


def their_tokenizer() -> Any:
    """Tokenizer of ``facebook/bart-base``, which is that of RoBERTa."""
    model = json.loads(byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]).to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return transformers.BartTokenizer(vocab=model["vocab"], merges=merges)


def language_tokenizer(name: str) -> Any:
    """Tokenizer of mBART with pieces of our lines."""
    pieces = tokenizers.SentencePieceUnigramTokenizer()
    pieces.train_from_iterator(LINES, vocab_size=120, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    entries = [(piece, score) for piece, score in json.loads(pieces.to_str())["model"]["vocab"] if piece != "<unk>"]
    vocabulary = [(symbol, 0.0) for symbol in ("<s>", "<pad>", "</s>", "<unk>")] + entries
    return getattr(transformers, name)(vocab=vocabulary, src_lang="en_XX", tgt_lang="ro_RO")


def replace_values(folder: Path, file: str, **values: Any) -> None:
    """Replace ``values`` in a JSON file."""
    path = folder / file
    values_before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**values_before, **values}))


@pytest.mark.parametrize("kind", ["bart", "bare bart"])
def test_bart_tokenizer_and_generation_equal_transformers(kind: str, tmp_path: Path) -> None:
    """The first BARTs are saved as bare models. A forced token is reported, and not forced here."""
    theirs, reader = translator(tmp_path / "theirs", kind, **BART), their_tokenizer()
    reader.save_pretrained(theirs)
    generation = {"forced_bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    lengths = {"min_length": 5, "max_length": 30, "no_repeat_ngram_size": 3, "num_beams": 4, "length_penalty": 2.0}
    (theirs / "generation_config.json").write_text(json.dumps(generation | lengths))
    imported = import_folder(str(theirs), tmp_path / "ours", PLAIN)
    assert imported.notes == ["left out: forced_bos_token_id=0 (generation_config.json)"]
    assert all(sample.our_output == sample.their_output for sample in imported.parity.samples)
    ours = Translator.load(tmp_path / "ours")
    assert ours.symbols == SpecialTokens(pad=1, start=2, end=2)
    tokenizer = ours.tokenizers.source
    for line in PLAIN:
        assert [*tokenizer.encode(line), tokenizer.end_id] == reader(line)["input_ids"]
        assert tokenizer.decode(tokenizer.encode(line)) == line
    stored = load_checkpoint(tmp_path / "ours").config["decoding"]
    expected = {"min_length": 4, "max_length": 29, "no_repeat_ngram": 3, "beam_size": 4, "alpha": 2.0}
    assert {name: stored[name] for name in expected} == expected
    again = export_folder(tmp_path / "ours", tmp_path / "again", PLAIN)
    assert again.kind == "bart"
    assert (
        transformers.AutoTokenizer.from_pretrained(again.path)(PLAIN[0])["input_ids"] == reader(PLAIN[0])["input_ids"]
    )


def test_two_tables_are_one_where_they_are_equal(tmp_path: Path) -> None:
    """Two equal tables are tied, whatever their unused rows contain."""
    theirs = translator(tmp_path / "theirs", "bart", **BART)
    weights = load_file(theirs / "model.safetensors")
    for name in ("embed_positions.weight", "layernorm_embedding.weight", "layernorm_embedding.bias"):
        weights[f"model.decoder.{name}"] = weights[f"model.encoder.{name}"].clone()
    weights["model.decoder.embed_positions.weight"][:2] += 1
    save_file(weights, theirs / "model.safetensors", metadata={"format": "pt"})
    import_folder(str(theirs), tmp_path / "tied")
    assert load_checkpoint(tmp_path / "tied").config["model"]["tie_embeddings"]
    weights["model.decoder.layernorm_embedding.bias"][3] += 0.1
    save_file(weights, theirs / "model.safetensors", metadata={"format": "pt"})
    import_folder(str(theirs), tmp_path / "untied")
    assert not load_checkpoint(tmp_path / "untied").config["model"]["tie_embeddings"]


@pytest.mark.parametrize("table", ["embed_positions.weight", "layernorm_embedding.weight"])
def test_tables_that_training_elsewhere_changed_come_back_untied(table: str, tmp_path: Path) -> None:
    ours = checkpoint(tmp_path / "ours", positions="learned", scale_embeddings=False, norm_embeddings=True)
    theirs = export_folder(ours, tmp_path / "theirs").path
    weights = load_file(theirs / "model.safetensors")
    weights[f"model.decoder.{table}"][3] += 1
    save_file(weights, theirs / "model.safetensors", metadata={"format": "pt"})
    import_folder(str(theirs), tmp_path / "back")
    assert load_checkpoint(ours).config["model"]["tie_embeddings"]
    assert not load_checkpoint(tmp_path / "back").config["model"]["tie_embeddings"]


def test_a_language_before_the_text(tmp_path: Path) -> None:
    """Tokenizer of mBART-50; the forced target language there is the beginning of a translation here."""
    reader = language_tokenizer("MBart50Tokenizer")
    theirs = translator(tmp_path / "theirs", "mbart", vocab_size=len(reader), decoder_start_token_id=2)
    reader.save_pretrained(theirs)
    replace_values(theirs, "generation_config.json", forced_bos_token_id=reader.convert_tokens_to_ids("ro_RO"))
    imported = import_folder(str(theirs), tmp_path / "ours", PLAIN)
    assert "forced_bos_token_id=" in imported.notes[0]
    tokenizer = Translator.load(tmp_path / "ours").tokenizers.source
    for line in PLAIN:
        assert [*tokenizer.encode(line), tokenizer.end_id] == reader(line)["input_ids"]
    assert export_folder(tmp_path / "ours", tmp_path / "again", PLAIN).kind == "mbart"


def test_a_language_behind_the_end_is_refused(tmp_path: Path) -> None:
    """The first tokenizer of mBART puts the language after the end token."""
    reader = language_tokenizer("MBartTokenizer")
    theirs = translator(tmp_path / "theirs", "mbart", vocab_size=len(reader), decoder_start_token_id=2)
    reader.save_pretrained(theirs)
    with pytest.raises(CheckpointError, match=r"puts '</s> en_XX' around a text, .* ends with the end symbol"):
        import_folder(str(theirs), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_import_ignores_extra_tensors_of_old_folders(tmp_path: Path) -> None:
    theirs = translator(tmp_path / "theirs", "bart", **BART)
    weights = load_file(theirs / "model.safetensors")
    weights |= {f"model.{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}
    weights |= {name: weights["model.shared.weight"].clone() for name in ("lm_head.weight",)}
    save_file(weights, theirs / "model.safetensors", metadata={"format": "pt"})
    assert not import_folder(str(theirs), tmp_path / "ours").notes
