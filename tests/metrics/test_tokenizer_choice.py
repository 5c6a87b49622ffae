"""Choice of sacreBLEU's tokenizer by the writing system of a text."""

import importlib.util
import re

import pytest

import glassformer.metrics.translation
from glassformer.errors import ConfigError
from glassformer.metrics import bleu, tokenizer_for

CHINESE = ["我喜欢这本书。", "GPT-2 是 2019 年发布的模型。", "她看着の字。"]
JAPANESE = ["私はこの本が好きです。", "日本国憲法第九条は東京で議論された。", "猫は寝ている。"]
WITH_SPACES = {
    "English": ["The dog runs, and the cat sleeps.", "I saw it."],
    "English with a Chinese name": ["Her name, written 李, means plum tree."],
    "Finnish": ["Järjestelmällistämättömyydestäänkään huolimatta kirja ilmestyi.", "Kissa nukkuu talossa."],
    "Korean": ["나는 이 책을 좋아한다.", "고양이가 집에서 잔다."],
    "Arabic": ["أحب هذا الكتاب كثيرا.", "القط ينام في البيت."],
    "phonemes": ["k u cː a", "h aː z"],
}
WITHOUT_SPACES = {
    "Thai": ["ฉันชอบหนังสือเล่มนี้", "แมวนอนหลับอยู่ในบ้าน เมื่อวาน"],
    "Thai with frequent spaces": ["แมว นอน ใน บ้าน ของ ฉัน"],
    "English without spaces": ["thedogrunsandthecatsleeps.", "isawit."],
    "single words": ["dog", "elephant"],
}


@pytest.fixture
def mecab(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Pretend that MeCab is installed: ``find_spec`` finds it."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        glassformer.metrics.translation,
        "find_spec",
        lambda name: find("sys") if name in ("MeCab", "ipadic") else find(name),
    )
    return monkeypatch


@pytest.fixture
def no_mecab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glassformer.metrics.translation, "find_spec", lambda name: None)


@pytest.mark.parametrize("language", WITH_SPACES)
def test_text_with_spaces_selects_13a(language: str) -> None:
    assert tokenizer_for(WITH_SPACES[language]) == "13a"


@pytest.mark.parametrize("language", WITHOUT_SPACES)
def test_text_without_spaces_selects_char(language: str) -> None:
    assert tokenizer_for(WITHOUT_SPACES[language]) == "char"


def test_chinese_text_selects_zh() -> None:
    assert tokenizer_for(CHINESE) == "zh"


def test_japanese_text_selects_mecab_if_installed(mecab: pytest.MonkeyPatch) -> None:
    assert tokenizer_for(JAPANESE) == "ja-mecab"


@pytest.mark.usefixtures("no_mecab")
def test_japanese_text_selects_char_without_mecab() -> None:
    assert tokenizer_for(JAPANESE) == "char"


def test_empty_text_selects_13a() -> None:
    assert tokenizer_for([]) == "13a"
    assert tokenizer_for(["", "  "]) == "13a"


@pytest.mark.usefixtures("no_mecab")
@pytest.mark.parametrize(("tokenize", "extra"), [("ja-mecab", "ja"), ("ko-mecab", "ko")])
def test_missing_tokenizer_names_its_package(tokenize: str, extra: str) -> None:
    fault = f"tokenize={tokenize!r} needs MeCab and a dictionary, which are not installed"
    way_out = f"pip install 'sacrebleu[{extra}]', or choose from 13a, char, intl, none, zh"
    with pytest.raises(ConfigError, match=re.escape(f"{fault}; {way_out}")):
        bleu(["a"], ["a"], tokenize=tokenize)
