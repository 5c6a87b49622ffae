"""SentencePiece model files, parsed as protocol buffers, and the equivalent pipeline of ``tokenizers``.

The wire format: https://protobuf.dev/programming-guides/encoding/; the fields: sentencepiece_model.proto.
"""

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.errors import CheckpointError
from glassformer.text.pretrained import UNNAMED

UNIGRAM, NORMAL, UNKNOWN, USER_DEFINED = 1, 1, 2, 4


@dataclass(frozen=True)
class SentencePiece:
    """Unigram model: ``scores`` are log-probabilities of pieces (Kudo 2018, arXiv:1804.10959)."""

    scores: dict[str, float]
    characters: bytes
    """Compiled character map of the normalization; empty for none."""
    dummy_prefix: bool
    merges_spaces: bool


def read_sentencepiece(path: Path) -> SentencePiece:
    """Read a model file; ``CheckpointError`` if it is damaged or not a unigram model."""
    try:
        return _read(path.read_bytes(), path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); copy it again") from None
    except (ValueError, IndexError, struct.error):
        raise CheckpointError(f"{path}: is not a SentencePiece model; copy it again") from None


def unigram_pipeline(model: SentencePiece, entries: list[str], unknown: int) -> dict[str, Any]:
    """JSON document of a ``tokenizers.Tokenizer`` with the ids of ``entries``.

    An entry without a piece gets a name that no text contains. Pieces without an entry follow all entries.
    """
    least = min(model.scores.values())
    known = set(entries)
    vocabulary = [[e, model.scores[e]] if e in model.scores else [f"{UNNAMED}{e}", least] for e in entries]
    vocabulary += [[piece, score] for piece, score in model.scores.items() if piece not in known]
    steps: list[dict[str, Any]] = []
    if model.characters:
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.characters).decode()})
    if model.merges_spaces:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    scheme = "always" if model.dummy_prefix else "never"
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
    joined: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"Regex": r"\A\x00\x00.*"}, "content": ""},
        {"type": "Replace", "pattern": {"String": "\0"}, "content": ""},
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "Fuse"},
        {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": spaces,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": joined},
        "model": {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": False},
    }


def _read(data: bytes, path: Path) -> SentencePiece:
    scores: dict[str, float] = {}
    characters, dummy_prefix, merges_spaces, kind = b"", True, True, UNIGRAM
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(_bytes(value)))
            if piece.get(3, NORMAL) in (NORMAL, USER_DEFINED):
                scores[_bytes(piece[1]).decode()] = struct.unpack("<f", _bytes(piece.get(2, bytes(4))))[0]
        elif number == 2:
            kind = int(dict(_fields(_bytes(value))).get(3, UNIGRAM))
        elif number == 3:
            rules = dict(_fields(_bytes(value)))
            characters = _bytes(rules.get(2, b""))
            dummy_prefix, merges_spaces = bool(rules.get(3, 1)), bool(rules.get(4, 1))
    if kind != UNIGRAM or not scores:
        raise CheckpointError(f"{path}: model_type={kind} is not read; only unigram models (1) are")
    return SentencePiece(scores, characters, dummy_prefix, merges_spaces)


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield (number, value) of each field of a message; a value is an integer or bytes."""
    offset = 0
    while offset < len(data):
        key, offset = _varint(data, offset)
        wire = key & 7
        if wire == 0:
            value, offset = _varint(data, offset)
            yield key >> 3, value
            continue
        if wire not in (1, 2, 5):
            raise ValueError(wire)
        size = {1: 8, 5: 4}.get(wire)
        if size is None:
            size, offset = _varint(data, offset)
        if offset + size > len(data):
            raise ValueError(size)
        yield key >> 3, data[offset : offset + size]
        offset += size


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 128:
            return value, offset


def _bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError(value)
    return value
