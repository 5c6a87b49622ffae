"""Which pipelines are given to the ``tokenizers`` library.

The library trusts what it reads: a pattern may take exponential time, a few replacements a text of gigabytes, and an id
that is out of range a crash in compiled code. A stored pipeline is therefore checked against a list of what may be in
it, before the library sees it.
"""

import base64
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, get_args

from glassformer.config import CheckpointError
from glassformer.text.config import SPECIAL_TOKENS, TextConfig
from glassformer.text.words import normalizer

KEYS = {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"}
PARTS: dict[str, dict[str, set[str]]] = {
    "normalizer": {
        "Sequence": {"normalizers"},
        **{kind: set() for kind in ("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents")},
        "Strip": {"strip_left", "strip_right"},
        "Replace": {"pattern", "content"},
        "Prepend": {"prepend"},
        "ByteLevel": set(),
        "BertNormalizer": {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"},
        "Precompiled": {"precompiled_charsmap"},
    },
    "pre_tokenizer": {
        "Sequence": {"pretokenizers"},
        **{kind: set() for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")},
        "Split": {"pattern", "behavior", "invert"},
        "ByteLevel": {"add_prefix_space", "trim_offsets", "use_regex"},
        "Metaspace": {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"},
        "Punctuation": {"behavior"},
        "Digits": {"individual_digits"},
    },
    "post_processor": {
        "Sequence": {"processors"},
        "TemplateProcessing": {"single", "pair", "special_tokens"},
        "ByteLevel": {"add_prefix_space", "trim_offsets", "use_regex"},
        "BertProcessing": {"sep", "cls"},
        "RobertaProcessing": {"sep", "cls", "trim_offsets", "add_prefix_space"},
    },
    "decoder": {
        "Sequence": {"decoders"},
        **{kind: set() for kind in ("Fuse", "ByteFallback")},
        "ByteLevel": {"add_prefix_space", "trim_offsets", "use_regex"},
        "Metaspace": {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"},
        "Replace": {"pattern", "content"},
        "Strip": {"content", "start", "stop"},
        "WordPiece": {"prefix", "cleanup"},
        "BPEDecoder": {"suffix"},
    },
}
"""For each part of a pipeline the kinds it may be of, and the settings of each."""

MODELS: dict[str, set[str]] = {
    "BPE": {
        *("vocab", "merges", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk"),
        *("byte_fallback", "ignore_merges"),
    },
    "WordLevel": {"vocab", "unk_token"},
    "WordPiece": {"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"},
    "Unigram": {"vocab", "unk_id", "byte_fallback"},
}
LISTS = ("normalizers", "pretokenizers", "processors", "decoders")
TOKEN = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}
MAX_STEPS, MAX_DEPTH, MAX_CHARACTERS, MAX_GROWTH = 64, 4, 1_000, 16
LARGEST_MAP = 4 << 20
MAX_UNNAMED = 100_000
"""Ids below the largest one that no entry has."""

_LITERAL = re.compile(r"\(\?<=\[<\\\[\]\)\(\?=[\w>/|\\\]]+\)")  # ``words`` builds it from the names of special tokens
_QUANTIFIED_GROUP = re.compile(r"(?<!\\)\)(?:[*+{])")
_BACKREFERENCE = re.compile(r"\\[1-9kg]")
_CLASS = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]")
_UNBOUNDED = re.compile(r"[*+]|\{\d*,\}")


def check_pipeline(pipeline: Any) -> None:
    """``CheckpointError`` names the first thing in the document of a ``tokenizers.Tokenizer`` that is not allowed."""
    _require(
        isinstance(pipeline, dict) and set(pipeline) <= KEYS | {"model"}, "has other sections than a tokenizer has"
    )
    for part, kinds in PARTS.items():
        steps = list(_steps(pipeline.get(part), part, kinds))
        _require(len(steps) <= MAX_STEPS, f"has more than {MAX_STEPS} steps in its {part}")
        growth = math.prod(max(1, len(step["content"])) for step in steps if step["type"] == "Replace")
        _require(growth <= MAX_GROWTH, f"has replacements in its {part} that lengthen a text {MAX_GROWTH}-fold")
    n_entries = _check_model(pipeline.get("model"))
    added = pipeline.get("added_tokens", [])
    _require(isinstance(added, list) and len(added) <= MAX_UNNAMED, "has added_tokens that are no list")
    for token in added:
        _require(isinstance(token, dict) and set(token) <= TOKEN, "has an added token with other settings than known")
        _require(_is_text(token.get("content")) and bool(token["content"]), "has an added token without a text")
        _require(_is_whole(token.get("id"), n_entries + MAX_UNNAMED), "has an added token with an id out of range")
        flags = (value for key, value in token.items() if key not in ("id", "content"))
        _require(all(isinstance(value, bool) for value in flags), "has an added token whose settings are not yes or no")


def check_tokenizer(document: dict[str, Any]) -> None:
    """The same of a vocabulary that was learned here: ids without a gap, and nothing that stands around a text."""
    kind, pipeline, names = document.get("kind"), document.get("pipeline"), document.get("special_tokens")
    _require(kind in get_args(TextConfig.model_fields["kind"].annotation), "is of a kind that is not known")
    check_pipeline(pipeline)
    assert isinstance(pipeline, dict)
    for part in ("truncation", "padding", "post_processor", "added_tokens"):
        _require(not pipeline.get(part), f"has {part}")
    vocabulary = pipeline["model"]["vocab"]
    _require(isinstance(vocabulary, dict), "has a vocabulary that is no table")
    _require(set(vocabulary.values()) == set(range(len(vocabulary))), "has ids that are not 0, 1, 2, … without a gap")
    _require(isinstance(names, dict) and set(SPECIAL_TOKENS) <= set(names), "has not all of the special tokens")
    assert isinstance(names, dict)
    _require(all(vocabulary.get(name) == id for name, id in names.items()), "has special tokens that are no entries")
    unknown = pipeline["model"].get("unk_token")
    _require(unknown is None or unknown in vocabulary, "has an unknown symbol that is no entry")
    parts = {"bpe": ("normalizer", "pre_tokenizer"), "word": ("normalizer", "pre_tokenizer"), "char": ("normalizer",)}
    for part in parts.get(str(kind), ()):
        _require(bool(pipeline.get(part)), f"has no {part}")


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Errors of the compiled library, its panics included, as a ``CheckpointError`` of one line."""
    try:
        yield
    except CheckpointError:
        raise
    except BaseException as error:
        panic = type(error).__name__ == "PanicException" and type(error).__module__ == "pyo3_runtime"
        if not isinstance(error, Exception) and not panic:
            raise  # Ctrl-C, or the end of the process
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"tokenizer: {what} ({reason}); install a matching tokenizers") from None


def _steps(step: Any, part: str, kinds: dict[str, set[str]], depth: int = 0) -> Iterator[dict[str, Any]]:
    """The steps of a part that do something, each checked."""
    if step is None and depth == 0:
        return
    kind = step.get("type") if isinstance(step, dict) else None
    _require(isinstance(kind, str) and kind in kinds, f"has a {part} that is not known")
    assert isinstance(kind, str)
    _require(set(step) <= kinds[kind] | {"type"}, f"has a {part} {kind} with other settings than known")
    _require(depth < MAX_DEPTH, f"has a {part} nested more than {MAX_DEPTH} deep")
    for key in LISTS:
        if key in step:
            _require(isinstance(step[key], list) and len(step[key]) <= MAX_STEPS, f"has a {part} that is no short list")
            for inner in step[key]:
                yield from _steps(inner, part, kinds, depth + 1)
            return
    for key, value in step.items():
        _check_setting(f"{part} {kind}.{key}", key, value)
    _require("content" in step or kind != "Replace", f"has a {part} Replace without content")
    yield step


def _check_setting(where: str, key: str, value: Any) -> None:
    if key == "precompiled_charsmap":
        _require(value is None or _is_character_map(value), f"has a {where} that is no map of characters")
    elif key == "pattern":
        _check_pattern(where, value)
    elif key in ("single", "pair", "special_tokens", "sep", "cls"):
        _require(len(json.dumps(value)) <= 100 * MAX_CHARACTERS, f"has a {where} that is too long")
        _require(all(_is_whole(n, 1 << 31) for n in _numbers(value)), f"has a {where} with a number out of range")
    elif isinstance(value, int) and not isinstance(value, bool):
        _require(0 <= value <= MAX_CHARACTERS, f"has a {where} out of range")
    else:
        _require(value is None or isinstance(value, bool) or _is_text(value), f"has a {where} that is no short text")


def _is_character_map(value: Any) -> bool:
    """Four bytes with the length of a table of four-byte numbers, the table, and the texts that it points into.

    The library does not return from one that is built otherwise.
    """
    try:
        data = base64.b64decode(value, validate=True)
        length = int.from_bytes(data[:4], "little")
        data[4 + length :].decode()
    except (TypeError, ValueError):
        return False
    return len(data) <= LARGEST_MAP and length % 4 == 0 and 4 + length <= len(data)


def _numbers(value: Any) -> Iterator[Any]:
    """All numbers at any depth."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _numbers(inner)
    elif isinstance(value, int | float):
        yield value


def _check_pattern(where: str, pattern: Any) -> None:
    """A text as it is, one of the expressions that ``words`` uses, or one that cannot take exponential time."""
    known = isinstance(pattern, dict) and len(pattern) == 1 and set(pattern) <= {"String", "Regex"}
    text = next(iter(pattern.values())) if known else None
    _require(_is_text(text), f"has a {where} that is no short text")
    assert isinstance(text, str)
    if "String" in pattern:
        _require(bool(text), f"has a {where} that is empty")
        return
    if text in _own_patterns() or _LITERAL.fullmatch(text):
        return
    plain = _CLASS.sub("x", text)
    _require(
        not _QUANTIFIED_GROUP.search(plain)
        and not _BACKREFERENCE.search(text)
        and all(len(_UNBOUNDED.findall(choice)) <= 2 for choice in plain.split("|")),
        f"has a {where} whose expression could take very long",
    )


@cache
def _own_patterns() -> frozenset[str]:
    """The expressions in the normalizers that are built here, whatever the configuration."""
    forms = [
        TextConfig.parse({"kind": kind, "pre_tokenizer": cut})
        for kind in ("bpe", "word", "char")
        for cut in ("punctuation", "whitespace")
    ]
    documents = [json.loads(normalizer(form).__getstate__()) for form in forms]
    steps = [step for document in documents for step in document["normalizers"]]
    ends = [r"\z", r"\A | \z", r"\A +| +\z", r"\A\x00\x00.*", " +", " {2,}"]
    found = [step["pattern"].get("Regex") for step in steps if step["type"] == "Replace"]
    return frozenset(pattern for pattern in [*found, *ends] if pattern)


def _check_model(model: Any) -> int:
    """How many entries it has."""
    kind = model.get("type", "BPE" if "merges" in model else None) if isinstance(model, dict) else None
    _require(isinstance(kind, str) and kind in MODELS, "has a model that is not known")
    assert isinstance(kind, str)
    _require(set(model) <= MODELS[kind] | {"type"}, f"has a {kind} model with other settings than known")
    _require(not model.get("dropout"), "leaves out merges at random")
    for key, value in model.items():
        if key not in ("vocab", "merges", "unk_id"):
            _check_setting(f"model {kind}.{key}", key, value)
    vocabulary = model.get("vocab")
    _require(isinstance(vocabulary, list if kind == "Unigram" else dict), "has no vocabulary")
    assert isinstance(vocabulary, list | dict)
    if not vocabulary:  # all entries may be added tokens
        return 0
    if isinstance(vocabulary, list):
        pieces = all(isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) for p in vocabulary)
        _require(pieces, "has a piece that is not a text and a score")
        scores = all(type(p[1]) in (int, float) and math.isfinite(p[1]) for p in vocabulary)
        _require(scores, "has a piece whose score is not a finite number")
        unknown = model.get("unk_id")
        _require(unknown is None or _is_whole(unknown, len(vocabulary)), "has an unknown symbol that is no entry")
        return len(vocabulary)
    _require(all(type(id) is int for id in vocabulary.values()), "has an id that is not a whole number")
    _require(len(set(vocabulary.values())) == len(vocabulary), "has two entries of one id")
    least, largest = min(vocabulary.values()), max(vocabulary.values())
    _require(least >= 0 and largest < len(vocabulary) + MAX_UNNAMED, "has an id out of range")
    if kind == "BPE":
        _check_merges(model, vocabulary)
    return len(vocabulary)


def _check_merges(model: dict[str, Any], vocabulary: dict[str, int]) -> None:
    merges, prefix = model.get("merges", []), model.get("continuing_subword_prefix") or ""
    _require(isinstance(merges, list), "has merges that are no list")
    _require(isinstance(prefix, str), "has a prefix that is no text")
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        whole = isinstance(pair, list) and len(pair) == 2 and all(isinstance(side, str) for side in pair)
        _require(whole, "has a merge that is not of two entries")
        made = pair[0] + pair[1].removeprefix(prefix)
        _require({pair[0], pair[1], made} <= vocabulary.keys(), "has a merge of what is no entry")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_CHARACTERS


def _is_whole(value: Any, end: int) -> bool:
    return type(value) is int and 0 <= value < end


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise CheckpointError(f"tokenizer: {fault}; restore the original")
