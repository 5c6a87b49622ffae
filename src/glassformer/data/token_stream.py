"""One stream of token ids: documents end to end with the end token between them, on disk, mapped into memory."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.config import DocumentsConfig
from glassformer.data.documents import Piece, read_pieces, text_files, text_form
from glassformer.data.held_out import Part
from glassformer.data.read_report import FileReadReport, ReadReport, Reason, TokenReadReport
from glassformer.data.readers import chunked, regular
from glassformer.data.token_store import (
    Contents,
    Ragged,
    RaggedWriter,
    account_of,
    content_digest,
    digest,
    ids_dtype,
    json_digest,
    open_or_build,
    ragged_writer,
)
from glassformer.text import Tokenizer

NAME = "stream"


@dataclass(frozen=True)
class Stream:
    """Document ``i`` is ``ids[offsets[i] : offsets[i + 1] - 1]``, its end token ``ids[offsets[i + 1] - 1]``.

    The last document has no end token: the text may go on behind it, as it does when a file is divided.
    ``fingerprint`` (SHA-256) covers the content of the files, how it was divided, and the vocabulary;
    ``content_digest`` (SHA-256) the token ids themselves.
    """

    ids: NDArray[np.integer]
    offsets: NDArray[np.int64]
    characters: int  # of the kept documents
    bytes: int  # of the same in UTF-8
    account: ReadReport
    fingerprint: str
    content_digest: str = ""

    def __len__(self) -> int:
        """Tokens, end tokens included."""
        return len(self.ids)

    @property
    def documents(self) -> int:
        return len(self.offsets) - 1

    def document(self, index: int) -> NDArray[np.integer]:
        """The ids of one document without its end token."""
        if not 0 <= index < self.documents:
            raise IndexError(f"document {index} of {self.documents}")
        return self.ids[self.offsets[index] : self.offsets[index + 1] - 1]


def training_streams(config: DocumentsConfig, tokenizer: Tokenizer) -> list[Stream]:
    """One stream of all training text, or, where ``config.weights`` says how often each is seen, one of each path."""
    part: Part = "train" if config.validation_share else "all"
    parts = [[path] for path in config.train] if config.weights else [config.train]
    return [prepare_stream(config, paths, tokenizer, part) for paths in parts]


def validation_stream(config: DocumentsConfig, tokenizer: Tokenizer) -> Stream | None:
    """The validation text, or what is held out of the training text; ``None`` when there is neither."""
    if config.validation:
        return prepare_stream(config, config.validation, tokenizer)
    return prepare_stream(config, config.train, tokenizer, "held_out") if config.validation_share else None


def prepare_stream(config: DocumentsConfig, paths: list[str], tokenizer: Tokenizer, part: Part = "all") -> Stream:
    """The stream of all ``paths``, which may be patterns; from the cache if it is there.

    Raises ``DataError`` for files that cannot be read, when no document is left, and when the cache cannot be written.
    """
    paths = text_files(paths)
    key = _fingerprint(config, paths, tokenizer, part)
    return open_or_build(
        config.cache, key, partial(_open, key=key, paths=paths), partial(_build, config, paths, tokenizer, part)
    )


def _fingerprint(config: DocumentsConfig, paths: list[str], tokenizer: Tokenizer, part: Part) -> str:
    made_from = {
        "stream": [[text_form(path), digest(regular(Path(path)))] for path in paths],
        "documents": [config.documents, config.text_key],
        "part": [part, 0.0 if part == "all" else config.validation_share],
        "vocabulary": tokenizer.fingerprint,
    }
    return json_digest(made_from)


def _open(folder: Path, index: dict[str, Any], key: str, paths: list[str]) -> Stream | None:
    account, content = account_of(index, paths), content_digest(index)
    text = Ragged.open(folder, NAME, index["dtypes"][NAME])
    stream = Stream(text.values, text.offsets, int(index["characters"]), int(index["bytes"]), account, key, content)
    return stream if len(text) == account.kept and text.offsets[-1] == len(text.values) + 1 else None


def _build(config: DocumentsConfig, paths: list[str], tokenizer: Tokenizer, part: Part, build: Path) -> Contents:
    account = ReadReport()
    with ragged_writer(build, NAME, ids_dtype(tokenizer.vocab_size)) as rows:
        writer = _StreamWriter(rows, tokenizer)
        for path in paths:
            file = FileReadReport(path)
            account.files.append(file)
            for chunk in chunked(read_pieces(config, path, part, tokenizer.tokens_span_lines), _characters):
                writer.add(chunk, tokenizer.encode_batch([piece.text for piece in chunk]), file)
            writer.close(file)
        writer.finish(account)
    if not account.kept:
        raise account.nothing_left("document", "give text, as UTF-8 (iconv -f LATIN1 -t UTF-8 converts)")
    return Contents({NAME: rows.dtype}, account, {"characters": writer.characters, "bytes": writer.bytes})


class _StreamWriter:
    """Appends documents piece by piece. One that turns out empty or faulty is taken back, end token included."""

    def __init__(self, rows: RaggedWriter, tokenizer: Tokenizer) -> None:
        self.rows = rows
        self.fault: Reason | None = None
        self.tokenizer, self.account = tokenizer, TokenReadReport()
        self.tokens = self.characters = self.bytes = self.kept = 0
        self._begin(0)
        self.open = False  # none has begun

    def add(self, pieces: list[Piece], encoded: list[list[int]], file: FileReadReport) -> None:
        for piece, ids in zip(pieces, encoded, strict=True):
            if piece.opens:
                self.close(file)
                self._begin(piece.line)
            if piece.fault and not self.fault:
                self.fault, self.line = piece.fault, piece.line
            self._append(ids, piece.text)

    def close(self, file: FileReadReport) -> None:
        """The document that is open, if one is, is kept or dropped."""
        if not self.open:
            return
        self.open = False
        file.read += 1
        reason: Reason | None = self.fault or (None if self.new.tokens and not self.blank else "empty")
        if reason:
            file.drop(reason, self.line)
            self.rows.values.seek(self.tokens * np.dtype(self.rows.dtype).itemsize)
            self.rows.values.truncate()
            return
        file.kept += 1
        self.tokens += self.new.tokens + (self.kept > 0)
        self.kept += 1
        self.account.add(self.new)
        self.characters += self.new_characters
        self.bytes += self.new_bytes
        self.rows.write_offset(self.tokens + 1)

    def finish(self, account: ReadReport) -> None:
        account.source = self.account

    def _begin(self, line: int) -> None:
        self.line, self.open, self.blank = line, True, True
        self.fault = None
        self.new = TokenReadReport()
        self.new_characters = self.new_bytes = 0

    def _append(self, tokens: list[int], text: str) -> None:
        ids = np.array(tokens, self.rows.dtype)
        before = [self.tokenizer.end_id] if self.kept and not self.new.tokens and len(ids) else []
        self.rows.values.write(np.array(before, self.rows.dtype).tobytes() + ids.tobytes())
        self.new.count(ids, self.tokenizer.unknown_id)
        self.new.compare(text, self.tokenizer.decode(tokens))
        self.new_characters += len(text)
        self.new_bytes += len(text.encode())
        self.blank = self.blank and not text.strip()


def _characters(piece: Piece) -> int:
    return len(piece.text)
