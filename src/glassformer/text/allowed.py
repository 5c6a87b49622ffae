"""Validation of stored pipelines before the ``tokenizers`` library loads them.

The library trusts its input. A pattern may take exponential time, a few replacements may expand a text to gigabytes,
and an id out of range crashes compiled code. Stored pipelines are therefore checked against an allow list first.
"""

import base64
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, get_args

from glassformer.errors import CheckpointError
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
"""Allowed step types of each pipeline section, with the allowed settings of each type."""

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
"""Maximum number of unused ids below the largest one."""

_LITERAL = re.compile(r"\(\?<=\[<\\\[\]\)\(\?=[\w>/|\\\]]+\)")  # as built by ``words`` from the special tokens
_QUANTIFIED_GROUP = re.compile(r"(?<!\\)\)(?:[*+{])")
_BACKREFERENCE = re.compile(r"\\[1-9kg]")
_CLASS = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]")
_UNBOUNDED = re.compile(r"[*+]|\{\d*,\}")


def check_pipeline(pipeline: Any) -> None:
    """Validate the JSON document of a ``tokenizers.Tokenizer``; ``CheckpointError`` names the first violation."""
    _require(isinstance(pipeline, dict) and set(pipeline) <= KEYS | {"model"}, "has unknown sections")
    for part, kinds in PARTS.items():
        steps = list(_steps(pipeline.get(part), part, kinds))
        _require(len(steps) <= MAX_STEPS, f"has more than {MAX_STEPS} steps in its {part}")
        growth = math.prod(max(1, len(step["content"])) for step in steps if step["type"] == "Replace")
        _require(growth <= MAX_GROWTH, f"has {part} replacements that lengthen text more than {MAX_GROWTH}-fold")
    n_entries = _check_model(pipeline.get("model"))
    added = pipeline.get("added_tokens", [])
    short = isinstance(added, list) and len(added) <= MAX_UNNAMED
    _require(short, f"has added_tokens that are not a list of at most {MAX_UNNAMED:,}")
    for token in added:
        _require(isinstance(token, dict) and set(token) <= TOKEN, "has an added token with unknown settings")
        _require(_is_text(token.get("content")) and bool(token["content"]), "has an added token without content")
        _require(_is_index(token.get("id"), n_entries + MAX_UNNAMED), "has an added token with an id out of range")
        flags = (value for key, value in token.items() if key not in ("id", "content"))
        boolean = all(isinstance(value, bool) for value in flags)
        _require(boolean, "has an added token with a flag that is not true or false")


def check_tokenizer(document: dict[str, Any]) -> None:
    """Validate a vocabulary learned by glassformer: contiguous ids; no padding, truncation or post-processing."""
    kind, pipeline, names = document.get("kind"), document.get("pipeline"), document.get("special_tokens")
    _require(kind in get_args(TextConfig.model_fields["kind"].annotation), "is of an unknown kind")
    check_pipeline(pipeline)
    assert isinstance(pipeline, dict)
    for part in ("truncation", "padding", "post_processor", "added_tokens"):
        _require(not pipeline.get(part), f"has {part}")
    vocabulary = pipeline["model"]["vocab"]
    _require(isinstance(vocabulary, dict), "has a vocabulary that is not a JSON object")
    _require(set(vocabulary.values()) == set(range(len(vocabulary))), "has ids that are not contiguous from 0")
    _require(isinstance(names, dict) and set(SPECIAL_TOKENS) <= set(names), "lacks one of the special tokens")
    assert isinstance(names, dict)
    in_vocabulary = all(vocabulary.get(name) == id for name, id in names.items())
    _require(in_vocabulary, "has special tokens that are missing from the vocabulary")
    unknown = pipeline["model"].get("unk_token")
    _require(unknown is None or unknown in vocabulary, "has an unk_token that is missing from the vocabulary")
    parts = {"bpe": ("normalizer", "pre_tokenizer"), "word": ("normalizer", "pre_tokenizer"), "char": ("normalizer",)}
    for part in parts.get(str(kind), ()):
        _require(bool(pipeline.get(part)), f"has no {part}")


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn errors of the compiled library, panics included, into a one-line ``CheckpointError``."""
    try:
        yield
    except CheckpointError:
        raise
    except BaseException as error:
        panic = type(error).__name__ == "PanicException" and type(error).__module__ == "pyo3_runtime"
        if not isinstance(error, Exception) and not panic:
            raise  # KeyboardInterrupt or SystemExit
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"tokenizer: {what} ({reason}); install a matching tokenizers") from None


def _steps(step: Any, part: str, kinds: dict[str, set[str]], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the validated steps of a pipeline section; sequences are flattened."""
    if step is None and depth == 0:
        return
    kind = step.get("type") if isinstance(step, dict) else None
    _require(isinstance(kind, str) and kind in kinds, f"has an unknown {part}")
    assert isinstance(kind, str)
    _require(set(step) <= kinds[kind] | {"type"}, f"has a {part} {kind} with unknown settings")
    _require(depth < MAX_DEPTH, f"has a {part} nested more than {MAX_DEPTH} levels deep")
    for key in LISTS:
        if key in step:
            short = isinstance(step[key], list) and len(step[key]) <= MAX_STEPS
            _require(short, f"has {part} steps that are not a list of at most {MAX_STEPS}")
            for inner in step[key]:
                yield from _steps(inner, part, kinds, depth + 1)
            return
    for key, value in step.items():
        _check_setting(f"{part} {kind}.{key}", key, value)
    _require("content" in step or kind != "Replace", f"has a {part} Replace without content")
    yield step


def _check_setting(where: str, key: str, value: Any) -> None:
    if key == "precompiled_charsmap":
        _require(value is None or _is_character_map(value), f"has an invalid {where}")
    elif key == "pattern":
        _check_pattern(where, value)
    elif key in ("single", "pair", "special_tokens", "sep", "cls"):
        _require(len(json.dumps(value)) <= 100 * MAX_CHARACTERS, f"has a {where} that is too long")
        _require(all(_is_index(n, 1 << 31) for n in _numbers(value)), f"has a {where} with a number out of range")
    elif isinstance(value, int) and not isinstance(value, bool):
        _require(0 <= value <= MAX_CHARACTERS, f"has a {where} out of range")
    else:
        valid = value is None or isinstance(value, bool) or _is_text(value)
        _require(valid, f"has a {where} that is not a string of at most {MAX_CHARACTERS:,} characters")


def _is_character_map(value: Any) -> bool:
    """True for a well-formed map: table length in four bytes, table of four-byte numbers, texts it points into.

    The library hangs on a malformed map.
    """
    try:
        data = base64.b64decode(value, validate=True)
        length = int.from_bytes(data[:4], "little")
        data[4 + length :].decode()
    except (TypeError, ValueError):
        return False
    return len(data) <= LARGEST_MAP and length % 4 == 0 and 4 + length <= len(data)


def _numbers(value: Any) -> Iterator[Any]:
    """Yield all numbers in a nested JSON value."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _numbers(inner)
    elif isinstance(value, int | float):
        yield value


def _check_pattern(where: str, pattern: Any) -> None:
    """Accept a literal string, a pattern that ``words`` uses, or a pattern that cannot take exponential time."""
    known = isinstance(pattern, dict) and len(pattern) == 1 and set(pattern) <= {"String", "Regex"}
    text = next(iter(pattern.values())) if known else None
    _require(_is_text(text), f"has a {where} that is not a string of at most {MAX_CHARACTERS:,} characters")
    assert isinstance(text, str)
    if "String" in pattern:
        _require(bool(text), f"has an empty {where}")
        return
    if text in _own_patterns() or _LITERAL.fullmatch(text):
        return
    plain = _CLASS.sub("x", text)
    _require(
        not _QUANTIFIED_GROUP.search(plain)
        and not _BACKREFERENCE.search(text)
        and all(len(_UNBOUNDED.findall(choice)) <= 2 for choice in plain.split("|")),
        f"has a {where} with a regular expression that could take exponential time",
    )


@cache
def _own_patterns() -> frozenset[str]:
    """Regular expressions of glassformer's own normalizers, for all configurations."""
    forms = [
        TextConfig.parse({"kind": kind, "pre_tokenizer": cut})
        for kind in ("bpe", "word", "char")
        for cut in ("punctuation", "whitespace")
    ]
    documents = [json.loads(normalizer(form).__getstate__()) for form in forms]
    steps = [step for document in documents for step in document["normalizers"]]
    ends = [r"\z", r"\A | \z", r"\A +| +\z", r"\A\x00\x00.*", " +", " {2,}"]
    patterns = [step["pattern"].get("Regex") for step in steps if step["type"] == "Replace"]
    return frozenset(pattern for pattern in [*patterns, *ends] if pattern)


def _check_model(model: Any) -> int:
    """Validate a model and return the number of its entries."""
    kind = model.get("type", "BPE" if "merges" in model else None) if isinstance(model, dict) else None
    _require(isinstance(kind, str) and kind in MODELS, "has an unknown model type")
    assert isinstance(kind, str)
    _require(set(model) <= MODELS[kind] | {"type"}, f"has a {kind} model with unknown settings")
    _require(not model.get("dropout"), "has merge dropout enabled")
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
        _require(pieces, "has a piece that is not a pair of text and score")
        scores = all(type(p[1]) in (int, float) and math.isfinite(p[1]) for p in vocabulary)
        _require(scores, "has a piece with a score that is not a finite number")
        unknown = model.get("unk_id")
        _require(unknown is None or _is_index(unknown, len(vocabulary)), "has an unk_id out of range")
        return len(vocabulary)
    _require(all(type(id) is int for id in vocabulary.values()), "has an id that is not an integer")
    _require(len(set(vocabulary.values())) == len(vocabulary), "has two entries with the same id")
    least, largest = min(vocabulary.values()), max(vocabulary.values())
    _require(least >= 0 and largest < len(vocabulary) + MAX_UNNAMED, "has an id out of range")
    if kind == "BPE":
        _check_merges(model, vocabulary)
    return len(vocabulary)


def _check_merges(model: dict[str, Any], vocabulary: dict[str, int]) -> None:
    merges, prefix = model.get("merges", []), model.get("continuing_subword_prefix") or ""
    _require(isinstance(merges, list), "has merges that are not a list")
    _require(isinstance(prefix, str), "has a continuing_subword_prefix that is not a string")
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(isinstance(side, str) for side in pair)
        _require(is_pair, "has a merge that is not a pair of strings")
        merged = pair[0] + pair[1].removeprefix(prefix)
        known = {pair[0], pair[1], merged} <= vocabulary.keys()
        _require(known, "has a merge with an entry that is missing from the vocabulary")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_CHARACTERS


def _is_index(value: Any, end: int) -> bool:
    return type(value) is int and 0 <= value < end


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise CheckpointError(f"tokenizer: {message}; restore the original")
