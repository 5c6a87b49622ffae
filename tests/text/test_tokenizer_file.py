"""``tokenizer.json``: everything comes back, and a file that was changed is refused."""

import hashlib
import json
from pathlib import Path

import pytest

from glassformer.errors import CheckpointError
from glassformer.text import TextConfig, Tokenizer, TokenizerPair, train_tokenizers

LINES = ["Two dogs run.", "T-Shirts, über <s> 日本。", "Two dogs – run!"] * 3


def pair(**choices) -> TokenizerPair:
    return train_tokenizers(TextConfig.parse(choices), lambda: iter(LINES), lambda: iter(LINES[::-1] + ["zwei"] * 3))


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
@pytest.mark.parametrize("joint", [True, False])
def test_a_pair_comes_back_whole(tmp_path, kind, joint):
    written = pair(kind=kind, joint=joint, lowercase=True, normalization="nfkc", extra_special=["[MASK]"])
    written.save(tmp_path / "tokenizer.json")
    read = TokenizerPair.load(tmp_path / "tokenizer.json")
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
    assert read.config == written.config
    assert (read.source is read.target) == joint
    assert read.fingerprint == written.fingerprint
    for side in ("source", "target"):
        before, after = getattr(written, side), getattr(read, side)
        assert after.fingerprint == before.fingerprint
        assert after.special_tokens == before.special_tokens
        assert after.encode_batch([*LINES, "zwei"]) == before.encode_batch([*LINES, "zwei"])
        assert after.to_json() == before.to_json()


def test_a_tokenizer_is_a_json_document():
    tokenizer = pair().source
    document = json.loads(json.dumps(tokenizer.to_json()))
    again = Tokenizer.from_json(document)
    assert again.encode(LINES[1]) == tokenizer.encode(LINES[1])
    assert document["special_tokens"] == {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3}
    assert len(document["fingerprint"]) == 64


def test_a_fingerprint_tells_vocabularies_and_choices_apart():
    pairs = [pair(), pair(vocab_size=50), pair(lowercase=True), pair(pre_tokenizer="whitespace"), pair(kind="char")]
    assert len({p.source.fingerprint for p in pairs}) == len({p.fingerprint for p in pairs}) == 5
    # Dropout is a matter of training: the ids are the same, so the vocabulary is.
    assert pair(bpe_dropout=0.1).source.fingerprint == pair().source.fingerprint
    assert pair(bpe_dropout=0.1).fingerprint != pair().fingerprint


def swap_two_entries(document: dict) -> None:
    vocabulary = document["source"]["pipeline"]["model"]["vocab"]
    vocabulary["d"], vocabulary["o"] = vocabulary["o"], vocabulary["d"]


def move_a_special_token(document: dict) -> None:
    document["source"]["special_tokens"]["<pad>"] = 3


def choose_lowercase(document: dict) -> None:
    document["config"]["lowercase"] = True


def forget_a_merge(document: dict) -> None:
    document["source"]["pipeline"]["model"]["merges"].pop()


@pytest.mark.parametrize("edit", [swap_two_entries, move_a_special_token, choose_lowercase, forget_a_merge])
def test_an_edited_file_is_refused(tmp_path, edit):
    path = tmp_path / "tokenizer.json"
    pair().save(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    refused(path, "changed since it was written")


def refused(path: Path, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason) as error:
        TokenizerPair.load(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_invalid_tokenizer_file_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    refused(path, "cannot be read .No such file")
    for text, reason in [
        ("{", "not valid JSON"),
        ("[]", "not a tokenizer of glassformer"),
        ("{}", "not a tokenizer of glassformer"),
        ('{"format": 9, "fingerprint": ""}', "format 9 is not 1; use a matching glassformer"),
    ]:
        path.write_text(text)
        refused(path, reason)
    path.write_bytes(b"\xff\xfe")
    refused(path, "not valid JSON")


def test_a_document_that_the_library_cannot_read_is_refused():
    content = pair().source.to_json()
    content["pipeline"]["version"] = "9.0"
    content.pop("fingerprint")
    with pytest.raises(CheckpointError, match="install a matching tokenizers") as error:
        Tokenizer.from_json({**content, "fingerprint": fingerprint_of(content)})
    assert "\n" not in str(error.value)


def fingerprint_of(content: dict) -> str:
    """The definition once more: SHA-256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_fingerprint_is_the_hash_of_the_document():
    content = pair().source.to_json()
    assert content.pop("fingerprint") == fingerprint_of(content)
