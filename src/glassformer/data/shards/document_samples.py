"""Samples of running text: documents for a language model, and their parts for a masked language model."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.documents import Piece, read_pieces, text_files
from glassformer.data.held_out import Part
from glassformer.data.masking import equal_parts
from glassformer.data.read_report import FileReadReport, Reason, TokenReadReport
from glassformer.data.readers import CHUNK_CHARACTERS, CHUNK_ROWS
from glassformer.data.shards.samples import Chunk, Encoded, Samples, Written, ragged
from glassformer.data.token_store import Ragged

SPOOL_BYTES = 1 << 24
"""A longer document, of several chunks, is collected on the disk."""
BLOCK = 1 << 20
"""Values of such a document that are in memory at a time."""


@dataclass
class EncodedDocument:
    """A document, or a part of one."""

    line: int
    fault: Reason | None = None
    blank: bool = True
    ids: list[NDArray[np.int32]] = field(default_factory=list)
    account: TokenReadReport = field(default_factory=TokenReadReport)

    @property
    def reason_to_drop(self) -> Reason | None:
        return self.fault or (None if self.account.tokens and not self.blank else "empty")

    def add(self, other: "EncodedDocument") -> None:
        """Go on with the next part, apart from its ids."""
        if other.fault and not self.fault:
            self.fault, self.line = other.fault, other.line
        self.blank = self.blank and other.blank
        self.account.add(other.account)


class DocumentSamples(Samples[Piece]):
    """Documents, complete in one chunk or collected from several."""

    def __init__(self, config: Any, tokenizers: Any) -> None:
        super().__init__(config, tokenizers)
        self._open: tuple[EncodedDocument, IO[bytes]] | None = None

    @property
    def paths(self) -> list[str]:
        return text_files(self.config.train)

    def set_of(self, file: int) -> str | None:
        """One set of all text, or of the files of each path where ``data.weights`` says how often each is seen."""
        if not self.config.weights:
            return ", ".join(self.config.train) if not file else None
        counts = [len(text_files([path])) for path in self.config.train]
        starts = dict(zip(np.cumsum([0, *counts]).tolist(), self.config.train))
        return starts.get(file)

    def chunks(self, path: str) -> Iterator[Chunk[Piece]]:
        """Whole documents, or a part of a document that is longer than a chunk."""
        part: Part = "train" if self.config.validation_share else "all"
        pieces, characters, last = list[Piece](), 0, 0
        for piece in read_pieces(self.config, path, part, self.tokenizer.tokens_span_lines):
            full = len(pieces) >= CHUNK_ROWS or characters > CHUNK_CHARACTERS
            if pieces and piece.opens and (full or not pieces[0].opens):
                yield Chunk(pieces, pieces[0].opens)
                pieces, characters = [], 0
            elif full and not piece.opens:
                yield Chunk(pieces[: last or None], pieces[0].opens, closes=last > 0)
                pieces = pieces[last:] if last else []
                characters, last = sum(len(one.text) for one in pieces), 0
            if piece.opens:
                last = len(pieces)
            pieces.append(piece)
            characters += len(piece.text)
        if pieces:
            yield Chunk(pieces, pieces[0].opens)

    def encode(self, chunk: Chunk[Piece], path: str) -> Encoded:
        file, source = FileReadReport(path), TokenReadReport()
        documents = self._documents(chunk.rows)
        if not (chunk.opens and chunk.closes):
            (document,) = documents
            ids, document.ids = ragged([np.concatenate(document.ids)]), []
            return Encoded((ids,), file, part=document)
        kept = list[NDArray[np.int32]]()
        for document in documents:
            if _account(document, file):
                kept.append(np.concatenate(document.ids))
                source.add(document.account)
        return Encoded((ragged(kept),), file, source)

    def assemble(self, encoded: Encoded, chunk: Chunk[Any], written: Written) -> Iterator[tuple[Ragged, ...]]:
        if encoded.part is None:
            (columns,) = super().assemble(encoded, chunk, written)
            if len(columns[0]):
                yield (self.rows_of(columns[0], written),)
            return
        if chunk.opens:
            spool = SpooledTemporaryFile(SPOOL_BYTES, dir=str(self.folder))  # noqa: SIM115
            self._open = EncodedDocument(encoded.part.line), spool
        assert self._open is not None
        document, file = self._open
        document.add(encoded.part)
        file.write(encoded.columns[0].values.astype("<i4").tobytes())
        if not chunk.closes:
            return
        with file:
            if _account(document, written.account.files[-1]):
                written.account.source.add(document.account)
                for rows in self.rows_of_long(file, document.account.tokens, written):
                    yield (rows,)
        self._open = None

    @abstractmethod
    def rows_of(self, documents: Ragged, written: Written) -> Ragged:
        """The rows of whole documents."""

    @abstractmethod
    def rows_of_long(self, file: IO[bytes], tokens: int, written: Written) -> Iterator[Ragged]:
        """The rows of a document of so many tokens, which ``file`` contains."""

    def _documents(self, pieces: list[Piece]) -> list[EncodedDocument]:
        tokenizer, documents = self.tokenizer, list[EncodedDocument]()
        encoded = tokenizer.encode_batch([piece.text for piece in pieces])
        for piece, tokens in zip(pieces, encoded, strict=True):
            if piece.opens or not documents:
                documents.append(EncodedDocument(piece.line))
            document, ids = documents[-1], np.array(tokens, np.int32)
            if piece.fault and not document.fault:
                document.fault, document.line = piece.fault, piece.line
            document.ids.append(ids)
            document.account.count(ids, tokenizer.unknown_id)
            document.account.compare(piece.text, tokenizer.decode(tokens))
            document.blank = document.blank and not piece.text.strip()
        return documents


class StreamSamples(DocumentSamples):
    """One stream of documents with the end token between them; a row is a document, or its part in one shard."""

    columns = ("tokens",)
    decisive = ("documents", "text_key", "validation_share", "weights")
    divisible = True

    def rows_of(self, documents: Ragged, written: Written) -> Ragged:
        values = np.insert(documents.values, documents.offsets[:-1], self.tokenizer.end_id)
        rows = Ragged(values, documents.offsets + np.arange(len(documents) + 1))
        return rows if written.sets[-1].values else Ragged(values[1:], np.maximum(rows.offsets - 1, 0))

    def rows_of_long(self, file: IO[bytes], tokens: int, written: Written) -> Iterator[Ragged]:
        before = [self.tokenizer.end_id] if written.sets[-1].values else []
        for values in _blocks(file, [min(BLOCK, tokens - begin) for begin in range(0, tokens, BLOCK)]):
            yield ragged([np.concatenate([np.array(before, np.int32), values])])
            before = []


class MaskedSamples(DocumentSamples):
    """Parts of documents of at most ``max_length`` tokens, frame included."""

    columns = ("tokens",)
    decisive = ("documents", "text_key", "validation_share", "weights", "max_length")

    def rows_of(self, documents: Ragged, written: Written) -> Ragged:
        _, _, sizes = equal_parts(np.diff(documents.offsets), self.config.max_length - 2)
        return Ragged(documents.values, np.cumsum([0, *sizes.tolist()]))

    def rows_of_long(self, file: IO[bytes], tokens: int, written: Written) -> Iterator[Ragged]:
        _, _, sizes = equal_parts(np.array([tokens]), self.config.max_length - 2)
        blocks = [list(block) for _, block in groupby(sizes.tolist(), _BlockNumber())]
        for block, values in zip(blocks, _blocks(file, [sum(block) for block in blocks]), strict=True):
            yield Ragged(values, np.cumsum([0, *block]))


class _BlockNumber:
    """Number of the block of at most about ``BLOCK`` values that the next size belongs to."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, size: int) -> int:
        self.total += size
        return (self.total - size) // BLOCK


def _account(document: EncodedDocument, file: FileReadReport) -> bool:
    """Count a document as kept or dropped; True if it is kept."""
    file.read += 1
    if reason := document.reason_to_drop:
        file.drop(reason, document.line)
        return False
    file.kept += 1
    return True


def _blocks(file: IO[bytes], sizes: list[int]) -> Iterator[NDArray[np.int32]]:
    file.seek(0)
    for size in sizes:
        yield np.frombuffer(file.read(4 * size), "<i4").astype(np.int32)
