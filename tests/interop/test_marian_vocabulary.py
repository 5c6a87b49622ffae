"""Marian's vocabulary, two SentencePiece models and a list of entries, cut as SentencePiece itself cuts."""

import json
import random
import shutil
import warnings
from pathlib import Path

import pytest
import sentencepiece
import torch

from glassformer.interop.huggingface import export_folder, import_folder, transformers
from glassformer.interop.tokenizer_json import read_tokenizers
from glassformer.predict.translator import Translator
from glassformer.storage.checkpoint import load_checkpoint
from interop.small_checkpoint import LINES, fill

TEXTS = (
    *LINES,
    "",
    "  a  b ",
    "ﬁne ½ ㎒ e\u0301",
    "a\tb\u00a0c\u200bd\u00ade",
    "ɸɸ x ▁y",
    ">>fra<< Hi!",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some pieces of the models are no entries, some entries are of neither model, and the matrix has rows to spare."""
    path = tmp_path_factory.mktemp("marian")
    pieces: set[str] = set()
    for side, lines in (("source", LINES), ("target", LINES[1:4])):
        (path / "text").write_text("\n".join([*lines] * 3))
        options = {"vocab_size": 150, "hard_vocab_limit": False, "minloglevel": 2}
        sentencepiece.SentencePieceTrainer.train(input=str(path / "text"), model_prefix=str(path / side), **options)
        shutil.move(path / f"{side}.model", path / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(path / f"{side}.spm"))
        pieces |= {model.id_to_piece(i) for i in range(model.get_piece_size())}
    entries = ["</s>", "<unk>", ">>fra<<", *sorted(pieces - {"<s>", "</s>", "<unk>"})[5:], "▁Other", "<pad>"]
    (path / "vocab.json").write_text(json.dumps({entry: id for id, entry in enumerate(entries)}))
    return path


def special_ids(folder: Path) -> dict[str, int]:
    pad = json.loads((folder / "vocab.json").read_text())["<pad>"]
    return {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad}


def test_text_is_cut_as_sentencepiece_cuts_it(folder: Path) -> None:
    ids = json.loads((folder / "vocab.json").read_text())
    pair = read_tokenizers(folder, special_ids(folder), (len(ids) + 2,) * 2)
    names = list(ids)
    generator = random.Random(1)
    drawn = ["".join(generator.choices("abcde ▁.,-ɸß日😀\t\u200b", k=15)) for _ in range(100)]
    for side, ours in (("source", pair.source), ("target", pair.target)):
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        for text in (*TEXTS[:-1], "<unk> </s> <pad>", *drawn):
            expected = [ids.get(piece, 1) for piece in model.encode(text, out_type=str)]
            assert ours.encode(text) == expected, text
            decoded = model.decode_pieces([names[i] for i in expected if i != 1])
            assert ours.decode(expected) == decoded.replace("▁", " ").strip(), text
    assert pair.source.encode(">>fra<< Hi!")[0] == ids[">>fra<<"]


@pytest.mark.parametrize("separate", [False, True])
def test_a_whole_model_comes_and_goes(folder: Path, separate: bool, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(folder, theirs)
    size = len(json.loads((folder / "vocab.json").read_text())) + 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
        transformers.MarianTokenizer(*files).save_pretrained(theirs)
    sizes = {"d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 10, "decoder_ffn_dim": 10}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 120}
    kinds = {"scale_embedding": True, "vocab_size": size, "decoder_vocab_size": size, "activation_function": "swish"}
    shared = {"share_encoder_decoder_embeddings": not separate}
    config = transformers.MarianConfig(**sizes, **heads, **kinds, **shared, **special_ids(folder))
    torch.manual_seed(1)
    model = transformers.MarianMTModel(config)
    fill(model, without=["position"])
    model.save_pretrained(theirs)

    assert import_folder(str(theirs), tmp_path / "ours", TEXTS).parity.differences["float32"] <= 1e-5
    exported = export_folder(tmp_path / "ours", tmp_path / "again")
    assert any("pieces that the model never knew" in note for note in exported.notes)
    import_folder(str(tmp_path / "again"), tmp_path / "back")
    assert load_checkpoint(tmp_path / "ours").config == load_checkpoint(tmp_path / "back").config
    texts = Translator.load(tmp_path / "ours").translate(TEXTS, max_length=8)
    assert texts == Translator.load(tmp_path / "back").translate(TEXTS, max_length=8)
