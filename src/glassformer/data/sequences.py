"""Sequences for an encoder, ``[CLS] text [SEP]`` or ``[CLS] text [SEP] pair [SEP]`` (Devlin et al. 2019, figure 2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import NDArray

from glassformer.data.sampling import Indices, Mixture, Sampler, by_length
from glassformer.data.token_store import Ids
from glassformer.errors import ConfigError, DataError
from glassformer.text import Tokenizer

Parts = Sequence[Ids]  # of one sequence: a text, or a text and its pair


@dataclass(frozen=True)
class Frame:
    """The tokens around texts: one before the first, one after each."""

    cls_id: int
    sep_id: int
    pad_id: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        return cls(special_id(tokenizer, "[CLS]"), special_id(tokenizer, "[SEP]"), tokenizer.pad_id)

    def rows(
        self, sequences: Sequence[Parts]
    ) -> tuple[
        Int64[np.ndarray, "rows width"],
        Bool[np.ndarray, "rows width"],
        Int64[np.ndarray, "rows width"],
    ]:
        """Tokens; where they are no padding; segments: 0 for the first text, its ``[SEP]`` included, 1 for its pair."""
        width = max(framed_length(parts) for parts in sequences)
        tokens = np.full((len(sequences), width), self.pad_id, np.int64)
        mask = np.zeros(tokens.shape, np.bool_)
        segments = np.zeros(tokens.shape, np.int64)
        for row, parts in enumerate(sequences):
            tokens[row, 0], place = self.cls_id, 1
            for number, ids in enumerate(parts):
                stop = place + len(ids)
                tokens[row, place:stop] = ids
                tokens[row, stop] = self.sep_id
                segments[row, place : stop + 1] = number
                place = stop + 1
            mask[row, :place] = True
        return tokens, mask, segments


def special_id(tokenizer: Tokenizer, name: str) -> int:
    try:
        return tokenizer.special_tokens[name]
    except KeyError:
        raise ConfigError(
            f'the vocabulary has no {name}; set text.extra_special=["[CLS]", "[SEP]", "[MASK]"] and learn it anew'
        ) from None


def framed_length(parts: Parts) -> int:
    """Tokens of a sequence with those around its texts."""
    return 1 + sum(len(ids) + 1 for ids in parts)


def truncated(parts: Parts, max_length: int) -> Parts:
    """The same cut at the end to ``max_length`` tokens, framed; of two texts the longer one loses first."""
    room = max_length - 1 - len(parts)
    lengths = [len(ids) for ids in parts]
    if sum(lengths) <= room:
        return parts
    if len(parts) == 1:
        return [parts[0][:room]]
    shorter = min(*lengths, room // 2)
    kept = [min(length, room - shorter) for length in lengths]
    if sum(kept) > room:  # both are longer than half
        kept = [room - room // 2, room // 2]
    return [ids[:length] for ids, length in zip(parts, kept, strict=True)]


def sequence_sampler(
    lengths: NDArray[np.int32], batch_tokens: int, noise: float, mixture: Mixture | None = None
) -> Sampler[Indices]:
    """Sampler of sequences of similar length; ``lengths``: the tokens of every sequence, framed."""
    if not len(lengths):
        raise DataError("there is no sequence to make batches of; give data.train text")
    if (longest := int(lengths.max())) > batch_tokens:
        raise DataError(
            f"a sequence of {longest} tokens does not fit data.batch_tokens={batch_tokens}; "
            f"raise it to {longest} or lower data.max_length"
        )
    return partial(by_length, lengths, mixture or Mixture.of([len(lengths)]), batch_tokens, noise)
