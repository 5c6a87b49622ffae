"""Word alignments: the Pharaoh format, and the alignment error rate.

Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models", section 5.
"""

import re
from collections.abc import Iterable, Sequence
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


def write_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """{(0, 0), (1, 2)} → ``0-0 1-2``, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(set(links)))


def alignment_error_rate(sure: Sequence[Links], possible: Sequence[Links], proposed: Sequence[Links]) -> float:
    """AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), counted over all sentences; 0 is perfect, 1 the worst.

    A sure link is possible as well, whether or not ``possible`` repeats it. With P = S it is 1 - F1.
    """
    if not len(sure) == len(possible) == len(proposed):
        raise DataError(
            f"{len(sure)} sentences with sure, {len(possible)} with possible and {len(proposed)} with proposed links; "
            "give all three for the same sentences"
        )
    agreed = size = 0
    for sure_links, possible_links, links in zip(sure, possible, proposed):
        agreed += len(links & sure_links) + len(links & (possible_links | sure_links))
        size += len(links) + len(sure_links)
    if not size:
        raise DataError("0 sure and 0 proposed links leave the alignment error rate undefined; give at least one link")
    return 1 - agreed / size
