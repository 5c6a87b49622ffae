"""Checks of stored tokenizers before the compiled library reads them."""

import copy
import json

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from glassformer.errors import CheckpointError
from glassformer.text import TextConfig, train_tokenizers
from glassformer.text.allowed import check_pipeline, check_tokenizer, library_errors

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SLOW = [r"(a+)+$", r"(a|aa)*b", r"(?:x{1,9}){5}", r"(a)\1", r"\k<name>", r"a*a*a*b", r"[ab]+.*\s+x", r"(a|b){2,}"]


def llama_3() -> tokenizers.Tokenizer:
    """Tokenizer in the form of Llama 3: split pattern, bytes, an end token after the vocabulary."""
    tokenizer = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA_3), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False)])
    tokenizer.add_special_tokens(["<|end_of_text|>"])
    return tokenizer


def llama_2() -> tokenizers.Tokenizer:
    """Tokenizer in the form of Llama 2: characters with byte fallback."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a"]
    vocabulary = {name: id for id, name in enumerate(names)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.post_processor = processors.TemplateProcessing("<unk> $A", None, [("<unk>", 0)])
    return tokenizer


@pytest.mark.parametrize("make", [llama_3, llama_2])
def test_check_pipeline_accepts_llama_tokenizers(make) -> None:
    check_pipeline(json.loads(make().to_str()))


@pytest.mark.parametrize(
    "choices",
    [{"kind": kind} for kind in ("bpe", "word", "char")]
    + [
        {
            "pre_tokenizer": "whitespace",
            "extra_special": ["[MASK]", "</doc>"],
            "normalization": "nfkc",
            "lowercase": True,
        },
    ],
)
def test_check_tokenizer_accepts_every_learned_tokenizer(choices) -> None:
    lines = ["Two dogs run.", "T-Shirts, über <s> 日本。"] * 3
    pair = train_tokenizers(TextConfig.parse(choices), lambda: iter(lines), lambda: iter(lines))
    check_tokenizer(pair.source.to_json())


@pytest.mark.parametrize("expression", [LLAMA_3, GPT_2, r"\d{1,3}", r"[!-/:-~]+|\p{L}+\s?", r"(?=[(*+)])x"])
def test_check_pipeline_accepts_linear_time_expressions(expression: str) -> None:
    check_pipeline(splitting(expression))


@pytest.mark.parametrize("expression", SLOW)
def test_check_pipeline_refuses_exponential_time_expressions(expression: str) -> None:
    with pytest.raises(CheckpointError, match=r"Split.pattern with a regular expression that could take exponential"):
        check_pipeline(splitting(expression))


def splitting(expression: str) -> dict:
    pipeline = json.loads(llama_3().to_str())
    split = copy.deepcopy(pipeline["pre_tokenizer"]["pretokenizers"][0])
    pipeline["pre_tokenizer"] = {**split, "pattern": {"Regex": expression}}
    return pipeline


def test_library_errors_converts_panics_but_not_ctrl_c() -> None:
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    with (
        pytest.raises(CheckpointError, match=r"^tokenizer: cannot encode \(index 3 out of range\); install a matching"),
        library_errors("cannot encode"),
    ):
        raise panic("index 3 out of range\nat line 5")
    for end in (KeyboardInterrupt, SystemExit):
        with pytest.raises(end), library_errors("cannot encode"):
            raise end
