"""Samples with labels: texts with a class, and sentences with a tag for each word."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.data.held_out import Part, of_part
from glassformer.data.read_report import FileReadReport, TokenReadReport
from glassformer.data.readers import chunked
from glassformer.data.sequences import framed_length, truncated
from glassformer.data.shards.samples import Chunk, Encoded, Samples, Written, numbered, ragged
from glassformer.data.text_classification import LabeledRow, check_labels, encode_labeled, read_labeled
from glassformer.data.token_classification import TaggedRow, encode_tagged, fitting_words, read_tagged
from glassformer.data.token_store import Ragged
from glassformer.text import TokenizerPair


class NamedSamples(Samples[Any]):
    """Samples with names, which get their numbers when all processes' samples come together."""

    @property
    def dtype(self) -> str:
        """Numbers of labels and lengths of words need not fit the type of the tokens."""
        return "<i4"

    @property
    def part(self) -> Part:
        return "train" if self.config.validation_share else "all"

    def assemble(self, encoded: Encoded, chunk: Chunk[Any], written: Written) -> Iterator[tuple[Ragged, ...]]:
        (columns,) = super().assemble(encoded, chunk, written)
        yield (*columns, numbered(encoded.names, written.names))

    @abstractmethod
    def encode(self, chunk: Chunk[Any], path: str) -> Encoded: ...


class LabeledSamples(NamedSamples):
    """A text, its pair where there is one, and its label."""

    annotations = ("label",)
    decisive = ("validation_share", "max_length", "text_column", "pair_column", "label_column")

    def __init__(self, config: Any, tokenizers: TokenizerPair) -> None:
        super().__init__(config, tokenizers)
        self.columns = ("text", *(["pair"] if config.pair_column else []), "label")

    def chunks(self, path: str) -> Iterator[Chunk[LabeledRow]]:
        rows = read_labeled(self.config, path)
        yield from map(Chunk, chunked(rows, lambda row: sum(map(len, row.value.texts))))

    def encode(self, chunk: Chunk[LabeledRow], path: str) -> Encoded:
        file, source = FileReadReport(path), TokenReadReport()
        rows = of_part(chunk.rows, self.part, self.config.validation_share, lambda value: value.texts, file)
        texts, names = list[list[NDArray[np.int32]]](), list[list[str]]()
        for row, parts in encode_labeled(rows, self.tokenizer, file):
            cut = truncated(parts, self.config.max_length)
            file.truncated += framed_length(cut) < framed_length(parts)
            texts.append([np.array(ids, np.int32) for ids in cut])
            names.append([row.value.label])
        columns = tuple(ragged([parts[number] for parts in texts]) for number in range(len(self.columns) - 1))
        for column in columns:
            source.count(column.values, self.tokenizer.unknown_id)
        return Encoded(columns, file, source, names=names)

    def check(self, written: Written) -> None:
        check_labels(written.names, self.paths)


class TaggedSamples(NamedSamples):
    """The pieces of the words of a sentence, the number of pieces of each word, and its tag."""

    columns = ("pieces", "words", "tags")
    annotations = ("words", "tags")
    decisive = ("validation_share", "max_length")

    def chunks(self, path: str) -> Iterator[Chunk[TaggedRow]]:
        rows = read_tagged(self.config, path)
        yield from map(Chunk, chunked(rows, lambda row: sum(map(len, row.value.words))))

    def encode(self, chunk: Chunk[TaggedRow], path: str) -> Encoded:
        file, source = FileReadReport(path), TokenReadReport()
        rows = of_part(chunk.rows, self.part, self.config.validation_share, lambda value: value.words, file)
        sentences, names = list[Ragged](), list[list[str]]()
        for row, pieces in encode_tagged(rows, self.tokenizer, file):
            words = fitting_words(pieces, self.config.max_length)
            if not len(words):
                file.drop("too_long", row.line)  # its first word alone does not fit
                continue
            file.kept += 1
            file.truncated += len(words) < len(pieces)
            sentences.append(words)
            names.append(row.value.tags[: len(words)])
        columns = ragged([words.values for words in sentences]), ragged([words.lengths for words in sentences])
        source.count(columns[0].values, self.tokenizer.unknown_id)
        return Encoded(columns, file, source, names=names)
