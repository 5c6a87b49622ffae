"""Word alignments: read beside their text, and turned into links between the tokens of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64
from numpy.typing import NDArray
from torch import Tensor

from glassformer.alignment.links import read_links
from glassformer.data.loader import Tensors
from glassformer.data.parallel_text import PairRow
from glassformer.data.readers import raw_lines, regular
from glassformer.errors import DataError
from glassformer.text import Tokenizer, TokenizerPair


class AlignedLines:
    """The lines of a Pharaoh file (``0-0 1-2``), taken in step with those of the text at ``path``."""

    def __init__(self, file: str, path: str, tokenizers: TokenizerPair) -> None:
        self.file, self.path, self.tokenizers = file, path, tokenizers
        self._lines = raw_lines(regular(Path(file)))
        self._taken = 0

    def links(self, read: list[PairRow], kept: "list[Aligned]") -> list[list[int]]:
        """The links of the ``kept`` among the pairs ``read`` next: source word, target word, source word, …

        Words are counted as ``Tokenizer.word_of`` does, which is how ``Translator.align`` counts them. The links of a
        pair that is dropped are not looked at.
        """
        lines = list(islice(self._lines, len(read)))
        if len(lines) < len(read):
            total = self._taken + len(lines)
            raise DataError(
                f"{self.file} has {total:,} lines and {self.path} more; give a line for each pair, empty where no "
                "words are linked"
            )
        first, self._taken = read[0].line, self._taken + len(lines)
        return [self._links(lines[pair[0].line - first], *pair) for pair in kept]

    def end(self) -> None:
        """Refuses lines beyond those of the text."""
        if further := sum(1 for _ in self._lines):
            raise DataError(
                f"{self.file} has {self._taken + further:,} lines and {self.path} {self._taken:,}; give a line for "
                "each pair, empty where no words are linked"
            )

    def _links(self, line: bytes, row: PairRow, source: list[int], target: list[int]) -> list[int]:
        try:
            sizes = [max(tokenizer.word_of(ids)) + 1 for tokenizer, ids in zip(self._sides, (source, target))]
            links = read_links(line.decode(errors="replace"), *sizes)
        except DataError as error:
            raise error.at(f"{self.file}, line {row.line}") from None
        return [word for link in sorted(links) for word in link]

    @property
    def _sides(self) -> tuple[Tokenizer, Tokenizer]:
        return self.tokenizers.source, self.tokenizers.target


Aligned = tuple[PairRow, list[int], list[int]]


@dataclass(frozen=True)
class TokenLinks(Tensors):
    """Word alignments of a batch between tokens: each link joins all pieces of two words.

    The ``shares`` of a target token sum to 1, so their total is the number of linked target tokens.
    """

    places: Int64[Tensor, "3 links"]  # row, column in ``Batch.labels``, column in ``Batch.source``; none is twice
    shares: Float32[Tensor, " links"]

    def select(self, rows: Sequence[int]) -> "TokenLinks":
        """The links of some rows, which then count from 0."""
        own = [self.places[0] == row for row in rows]
        places = [
            torch.cat([torch.full_like(self.places[:1, mask], number), self.places[1:, mask]])
            for number, mask in enumerate(own)
        ]
        return TokenLinks(torch.cat(places, 1), torch.cat([self.shares[mask] for mask in own]))


def token_links(
    source: tuple[Tensor, Tensor],
    target: tuple[Tensor, Tensor],
    links: Sequence[NDArray[np.integer]],
    tokenizers: TokenizerPair,
) -> TokenLinks:
    """Links between the tokens of a batch; ``links`` are (source word, target word) of every pair, in order.

    ``source`` and ``target`` are the ids, end tokens included, and the numbers of the sentences within their rows.
    Every piece of a target word is linked with every piece of each source word that its word is linked with, in equal
    shares, as Garg et al. 2019 (arXiv:1909.02074) normalize rows; the end of a sentence with nothing.
    """
    from_words, to_words = _Words(*source, tokenizers.source), _Words(*target, tokenizers.target)
    pairs = np.repeat(np.arange(len(links)), [len(one) for one in links])
    words = np.concatenate(links)
    from_source, n_source = from_words.tokens_of(pairs, words[:, 0])
    from_target, n_target = to_words.tokens_of(pairs, words[:, 1])
    sizes = n_source * n_target
    nth = np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)  # of its link, counted by source pieces
    wide = np.repeat(n_source, sizes)
    tokens, queries = np.repeat(from_source, sizes) + nth % wide, np.repeat(from_target, sizes) + nth // wide
    places = np.stack([to_words.rows[queries], to_words.columns[queries], from_words.columns[tokens]])
    shares = (1 / np.bincount(queries)[queries]).astype(np.float32)
    return TokenLinks(torch.from_numpy(places), torch.from_numpy(shares))


class _Words:
    """Positions of the tokens of one side of a batch, sentence after sentence, and the word of each.

    The words of all sentences are counted on, so that those of sentence n begin at ``first_words[n]``.
    """

    def __init__(self, ids: Tensor, sentences: Tensor, tokenizer: Tokenizer) -> None:
        self.rows, self.columns = np.nonzero(sentences.numpy())
        numbers = self.rows * sentences.size(1) + sentences.numpy()[self.rows, self.columns]
        ends = np.append(np.flatnonzero(np.diff(numbers)), len(numbers) - 1)  # the end token of each sentence
        tokens, first = ids.numpy()[self.rows, self.columns].tolist(), 0
        words, first_words = list[int](), list[int]()
        for end in ends.tolist():
            first_words.append(words[-1] + 1 if words else 0)
            words += [word + first_words[-1] for word in tokenizer.word_of(tokens[first:end])]
            first = end + 1
        self.words, self.first_words = np.array(words), np.array(first_words)
        self.rows, self.columns = np.delete(self.rows, ends), np.delete(self.columns, ends)

    def tokens_of(
        self, pairs: NDArray[np.int64], words: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first token of each of ``words``, each of the sentence of that number, and how many tokens it has."""
        counted_on = self.first_words[pairs] + words
        first = np.searchsorted(self.words, counted_on)
        return first, np.searchsorted(self.words, counted_on, side="right") - first
