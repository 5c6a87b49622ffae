"""A corpus of token ids on disk, mapped into memory: what is used is read, so it may be larger than memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassformer.data.account import Account


@dataclass(frozen=True)
class Side:
    """The sentences of one language end to end; sentence ``i`` lies from ``offsets[i]`` to ``offsets[i + 1]``."""

    ids: NDArray[np.integer]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each sentence, without special tokens."""
        return np.diff(self.offsets).astype(np.int32)

    def __getitem__(self, index: int) -> NDArray[np.integer]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @classmethod
    def open(cls, folder: Path, name: str, dtype: str) -> "Side":
        """``asarray``: slicing a plain view of the mapping costs a fifth of slicing the ``memmap`` itself."""
        return cls(
            np.asarray(np.memmap(folder / f"{name}.ids", dtype, "r")),
            np.asarray(np.memmap(folder / f"{name}.offsets", "<i8", "r")),
        )


class Corpus:
    """Pairs of token ids without special tokens, with the account of how they came to be.

    ``fingerprint`` (SHA-256) covers the content of the files, the vocabularies and the filters: equal fingerprints
    mean equal examples in equal order. ``links``, where the words are aligned, holds of each pair the source and the
    target word of every link, one after the other. ``content_digest`` (SHA-256) covers the token ids themselves.
    """

    def __init__(
        self,
        source: Side,
        target: Side,
        account: Account,
        fingerprint: str,
        links: Side | None = None,
        content_digest: str = "",
    ) -> None:
        self.source, self.target = source, target
        self.links = links
        self.account = account
        self.fingerprint = fingerprint
        self.content_digest = content_digest

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        return self.source.lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        return self.target.lengths

    def pair(self, index: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of a corpus of {len(self)}")
        return self.source[index], self.target[index]
