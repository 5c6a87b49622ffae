"""Word alignments as text, a line a pair: ``0-0 1-2`` links source word 0 with target word 0, and 1 with 2.

The form is that of the decoder Pharaoh (Koehn 2004), and is what aligners write.
"""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from glassformer.config import DataError

Links = AbstractSet[tuple[int, int]]  # of one sentence: 0-based word indices, source then target

_LINK = re.compile(r"([0-9]+)-([0-9]+)")


def read_pharaoh(line: str) -> frozenset[tuple[int, int]]:
    """``0-0 1-2`` → {(0, 0), (1, 2)}; an empty line is a sentence without links."""
    links = set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise DataError(f"{word!r} is not a link; write source-target word indices from 0, such as 0-0 1-2")
        links.add((int(match[1]), int(match[2])))
    return frozenset(links)


def read_links(line: str, source_words: int, target_words: int) -> frozenset[tuple[int, int]]:
    """``read_pharaoh`` for a pair of so many words; a link of words that it does not have is refused, such as one that
    counts from 1."""
    links = read_pharaoh(line)
    for source, target in sorted(links):
        if not (source < source_words and target < target_words):
            raise DataError(
                f"{source}-{target} links words that are not there: the line has {source_words} and {target_words}, "
                "counted from 0"
            )
    return links


def write_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """{(0, 0), (1, 2)} → ``0-0 1-2``, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(set(links)))
