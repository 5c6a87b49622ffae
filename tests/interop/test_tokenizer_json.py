"""Our tokenizers as ``tokenizer.json`` with the same ids and texts, and tokenizers of other libraries here."""

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from glassformer.errors import CheckpointError, ConfigError
from glassformer.interop import require
from glassformer.interop.sentencepiece import read_sentencepiece
from glassformer.interop.tokenizer_json import read_tokenizers, to_tokenizer_json
from glassformer.text import TextConfig, TokenizerPair, train_tokenizers
from glassformer.text.pretrained import PretrainedConfig, PretrainedTokenizer
from interop.small_checkpoint import LINES

TEXTS = (
    *LINES,
    "",
    " ",
    "  a   b ",
    "a-b - c- -d",
    "￭ joiner ￭￭ ■",
    "snow❄️and\tsun☀️\nÅ Å ﬁ ½ ㎒",
    "?!... «a» ''b'' <s></s><unk>[PAD]</w>",
    "unseen: Ωжé漢字 𝔘𝔫𝔦 \u200d\u00a0\u2009 e\u0301",
    "-" * 40,
)


@pytest.mark.parametrize("pre_tokenizer", ["punctuation", "whitespace"])
@pytest.mark.parametrize("kind", ["bpe", "word", "char", "bytes"])
def test_exported_tokenizer_encodes_and_decodes_equally(kind: str, pre_tokenizer: str, tmp_path: Path) -> None:
    config = TextConfig.parse({"kind": kind, "vocab_size": 400, "min_frequency": 1, "pre_tokenizer": pre_tokenizer})
    ours = train_tokenizers(config, lambda: iter(LINES), lambda: iter(LINES)).source
    to_tokenizer_json(ours).save(str(tmp_path / "tokenizer.json"))
    converted = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    converted.encode_special_tokens = True  # the one property that the file does not hold
    for text in TEXTS:
        ids = converted.encode(text).ids
        assert ids == [*ours.encode(text), ours.end_id], text
        assert converted.decode(ids) == ours.decode(ids), text
    for id in range(ours.vocab_size):  # also what no text is encoded as
        for ids in ([id], [id, id], [5, id, 6], [ours.start_id, id, ours.end_id]):
            assert converted.decode(ids) == ours.decode(ids)


def test_portable_tokenizer_matches_byte_fallback(tmp_path: Path) -> None:
    config = TextConfig.parse({"byte_fallback": True, "vocab_size": 400})
    ours = train_tokenizers(config, lambda: iter(LINES), lambda: iter(LINES)).source
    to_tokenizer_json(ours).save(str(tmp_path / "tokenizer.json"))
    converted = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    converted.encode_special_tokens = True
    for text in (*TEXTS, "<0x41> <0xE2>"):
        ids = converted.encode(text).ids
        assert ids == [*ours.encode(text), ours.end_id], text
        assert converted.decode(ids) == ours.decode(ids), text
        assert ours.unknown_id not in ids


def test_pretrained_vocabulary_is_unchanged(tmp_path: Path) -> None:
    converted = tokenizers.Tokenizer(models.WordLevel({"[U]": 0, "[P]": 1, "[E]": 2, "[L]": 3, "a": 5, "b": 6}, "[U]"))
    converted.pre_tokenizer = pre_tokenizers.Whitespace()
    converted.decoder = decoders.WordPiece()
    converted.add_special_tokens(["[P]", "[E]", "[L]"])
    converted.post_processor = processors.TemplateProcessing("[L] $A [E]", "[L] $A $B [E]", [("[L]", 3), ("[E]", 2)])
    converted.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"unk_token": "[U]"}')
    config = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    pair = read_tokenizers(tmp_path, config, (8, 8))
    tokenizer = pair.source
    assert pair.target is tokenizer
    assert tokenizer.vocab_size == 8
    assert tokenizer.encode("a b c") == [3, 5, 6, 0], "the language before the text is part of it"
    assert tokenizer.encode("a [E]") == [3, 5, 0, 0, 0], "text that looks like a special token is text"
    assert tokenizer.decode([3, 5, 6, 0, 7, 2]) == "a b"
    assert tokenizer.tokens([5, 0]) == ["a", "[U]"]
    assert tokenizer.word_of([3, 5, 6]) == [-1, 0, 1]
    again = TokenizerPair.from_json(json.loads(json.dumps(pair.to_json())))
    assert isinstance(again.config, PretrainedConfig)
    assert isinstance(again.source, PretrainedTokenizer)
    assert again.fingerprint == pair.fingerprint
    assert again.source.encode("b b a") == [3, 6, 6, 5]
    edited = pair.to_json() | {"target": pair.source.to_json()}
    with pytest.raises(CheckpointError, match="changed since it was written"):
        TokenizerPair.from_json(edited)


def test_missing_library_is_named_with_its_extra() -> None:
    with pytest.raises(ConfigError, match=r"no_such_library is not installed; pip install 'glassformer\[onnx\]'"):
        require("no_such_library", "onnx")


def test_damaged_tokenizer_files_are_refused(tmp_path: Path) -> None:
    config = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    with pytest.raises(CheckpointError, match=r"has neither tokenizer\.json nor source\.spm"):
        read_tokenizers(tmp_path, config, (8, 8))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        read_tokenizers(tmp_path, config, (8, 8))
    (tmp_path / "source.spm").write_bytes(b"\x0a\x7f\x00")
    with pytest.raises(CheckpointError, match="is not a SentencePiece model"):
        read_sentencepiece(tmp_path / "source.spm")
