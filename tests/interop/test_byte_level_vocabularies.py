"""Byte-level vocabularies: import from, export to and agreement with transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, processors, trainers

import glassformer
from glassformer.interop.folder import SETTINGS_FILE
from glassformer.interop.huggingface import export_folder, import_folder
from glassformer.interop.transformers_api import quiet, transformers
from glassformer.storage.checkpoint import load_checkpoint
from glassformer.text import Tokenizer, TokenizerPair
from interop.small_checkpoint import LINES
from interop.small_folders import folder
from interop.test_stacks_export import GPT, LLAMA, checkpoint

START, END = "<|begin_of_text|>", "<|end_of_text|>"
HARD = (
    *LINES,
    "def f(x):\n    if x:\n\n\t\treturn 'naïve'\n\n\n",
    "a\r\nb\rc\x85d\u2028e\x00\x7f",
    "   three    four\t\ttabs   ",
    "it's WE'LL 12345678 e\u0301 ﬁ Ⅷ \u00a0\u3000",
    "<|endoftext|> <|begin_of_text|> <s></s>",
    "\ufeff👩‍👩‍👧 Привет \U0010ffff",
    " ",
    "\n",
)


def llama_3() -> tokenizers.Tokenizer:
    """Tokenizer in the form of Llama 3: own split pattern, digits in threes, a start token."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=278, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_special_tokens([START, END])
    tokenizer.post_processor = processors.TemplateProcessing(f"{START} $A", f"{START} $A $B", [(START, 278)])
    return tokenizer


def llama_3_folder(path: Path) -> Path:
    folder(path, "LlamaForCausalLM", vocab_size=280, bos_token_id=278, eos_token_id=279)
    for file in path.glob("*token*"):
        file.unlink()
    names = {"bos_token": START, "eos_token": END}
    transformers.PreTrainedTokenizerFast(tokenizer_object=llama_3(), **names).save_pretrained(path)
    return path


def tokenizer_of(path: Path) -> Tokenizer:
    return TokenizerPair.from_json(load_checkpoint(path).tokenizer).source


def plain(reader: Any, text: str) -> list[int]:
    """Encode without special tokens: their names are text."""
    return list(reader(text, split_special_tokens=True)["input_ids"])


@pytest.mark.parametrize("family", ["gpt2", "llama 3", "llama 2"])
def test_byte_level_vocabularies_survive_import_and_export(family: str, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    if family == "llama 3":
        llama_3_folder(theirs)
    else:
        folder(theirs, "GPT2LMHeadModel" if family == "gpt2" else "LlamaForCausalLM")
    import_folder(str(theirs), tmp_path / "ours", ["a do"])
    export_folder(tmp_path / "ours", tmp_path / "again", ["a do"])
    (tmp_path / "again" / SETTINGS_FILE).unlink()  # like a folder from another tool
    import_folder(str(tmp_path / "again"), tmp_path / "back", ["a do"])
    readers = [transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("theirs", "again")]
    ours = [tokenizer_of(tmp_path / name) for name in ("ours", "back")]
    for text in HARD:
        ids = plain(readers[0], text)
        assert plain(readers[1], text) == ids, text
        assert [tokenizer.encode(text) for tokenizer in ours] == [ids, ids], text
        decoded = {reader.decode(ids, skip_special_tokens=True) for reader in readers}
        assert {*decoded, *(tokenizer.decode(ids) for tokenizer in ours)} == decoded
        assert len(decoded) == 1
        if family != "llama 2":  # Llama 2 adds a space at the start
            assert decoded == {text}


def test_imported_byte_level_tokens_are_readable(tmp_path: Path) -> None:
    import_folder(str(llama_3_folder(tmp_path / "theirs")), tmp_path / "ours", ["a do"])
    tokenizer = tokenizer_of(tmp_path / "ours")
    tokens = tokenizer.tokens(tokenizer.encode("A dog ж\n"))
    assert tokens[0] == START
    assert "".join(tokens[1:]) == "A dog <0xD0><0xB6>\n"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_exported_byte_level_model_matches_transformers(name: str, tmp_path: Path) -> None:
    model = GPT if name == "gpt2" else {**GPT, **LLAMA}
    run = checkpoint(tmp_path / "ours", model, {"task": "language"}, "bytes")
    theirs = export_folder(run, tmp_path / "theirs", ["A dog"]).path
    reader, tokenizer = transformers.AutoTokenizer.from_pretrained(theirs), tokenizer_of(run)
    for text in HARD:
        ids = tokenizer.encode(text)
        assert list(reader(text)["input_ids"]) == ids, text
        assert reader.decode(ids) == tokenizer.decode(ids) == text
    generator = glassformer.load(run)
    prompts = ["A dog", "def f(x):\n   ", "日本", " "]
    continued = generator.generate(prompts, sample=False, max_length=6)
    with quiet():
        pipeline = transformers.pipeline("text-generation", model=str(theirs), device="cpu")
        found = [pipeline(text, max_new_tokens=6, do_sample=False, return_full_text=False) for text in prompts]
    assert [one[0]["generated_text"] for one in found] == continued


def test_exported_tokenizer_keeps_the_first_space(tmp_path: Path) -> None:
    run = checkpoint(tmp_path / "ours", GPT, {"task": "language"}, "bytes")
    theirs, tokenizer = export_folder(run, tmp_path / "theirs", ["A dog"]).path, tokenizer_of(run)
    reader = transformers.AutoTokenizer.from_pretrained(theirs)
    for continuation in (" runs through", "\n    return", "  two"):
        assert reader.decode(tokenizer.encode(continuation)) == continuation
    document = json.loads((theirs / "tokenizer.json").read_text(encoding="utf-8"))
    assert document["pre_tokenizer"]["type"] == document["decoder"]["type"] == "ByteLevel"
    assert not document["pre_tokenizer"]["add_prefix_space"]
