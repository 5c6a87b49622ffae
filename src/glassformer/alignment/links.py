"""Word alignments as text, one line per pair: ``0-0 1-2`` links source word 0 with target word 0, and 1 with 2.

The format is that of the decoder Pharaoh (Koehn 2004), which aligners write. Manual links may be sure or possible
(Och and Ney 2003): ``1?2`` or ``1p2`` is a possible link. The format of the NAACL 2003 shared task (Mihalcea and
Pedersen 2003), one line per link, is read too.
"""

import math
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from glassformer.errors import ConfigError, DataError, nearest

SYMMETRIZATIONS = ("intersection", "union", "grow-diag", "grow-diag-final")
NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
Links = AbstractSet[tuple[int, int]]  # of one sentence: 0-based word indices, source then target

_LINK = re.compile(r"([0-9]+)-([0-9]+)")
_GOLD_LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")
_SHARED_TASK = re.compile(r"([0-9]+)\s+([0-9]+)\s+([0-9]+)(?:\s+([SP]))?(?:\s+[0-9.eE+-]+)?")
_SHARED_TASK_LINE = "sentence, source word and target word counted from 1, and optionally S or P, such as 1 2 3 S"


class GoldLinks(NamedTuple):
    """Manual links of one sentence; ``possible`` includes the sure links."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


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
    """Parse ``line`` as ``read_pharaoh`` does; ``DataError`` for a word out of range, as when counted from 1."""
    links = read_pharaoh(line)
    for link in sorted(links):
        _check_words(link, (source_words, target_words), 0)
    return links


def read_gold(lines: Sequence[str], sizes: Sequence[tuple[int, int]]) -> list[GoldLinks]:
    """The links of each sentence; ``sizes`` are the numbers of its words in source and target.

    ``lines`` has one of two formats: a line for each sentence (``0-0 1?2``), or the format of the NAACL 2003 shared
    task with a line for each link. Its fields are sentence, source word and target word, counted from 1, then S or P
    (default: sure) and a confidence, which is ignored. A link to word 0 marks a word without a partner; such null
    links are ignored, as in error rates without null links.

    Raises ``DataError``, beginning with the line number, for any other line.
    """
    first = next((line for line in lines if line.strip()), "")
    if _SHARED_TASK.fullmatch(first.strip()):
        return _read_shared_task(lines, sizes)
    if len(lines) != len(sizes):
        raise DataError(f"has {len(lines):,} lines, but the text has {len(sizes):,}; give one line for each sentence")
    return [_read_gold_line(number, line, size) for number, (line, size) in enumerate(zip(lines, sizes), start=1)]


def _read_gold_line(number: int, line: str, size: tuple[int, int]) -> GoldLinks:
    links: dict[bool, set[tuple[int, int]]] = {True: set(), False: set()}
    for word in line.split():
        match = _GOLD_LINK.fullmatch(word)
        if match is None:
            way_out = "write source-target word indices from 0, such as 0-0 1-2, or 1?2 for a possible link"
            raise DataError(f"{word!r} is not a link", where=f"line {number}", remedy=way_out)
        link = int(match[1]), int(match[3])
        try:
            _check_words(link, size, 0)
        except DataError as error:
            raise error.at(f"line {number}") from None
        links[match[2] == "-"].add(link)
    return GoldLinks(frozenset(links[True]), frozenset(links[True] | links[False]))


def _read_shared_task(lines: Sequence[str], sizes: Sequence[tuple[int, int]]) -> list[GoldLinks]:
    sure, possible = ([set[tuple[int, int]]() for _ in sizes] for _ in range(2))
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _SHARED_TASK.fullmatch(line.strip())
        if match is None:
            raise DataError(
                f"{line.strip()!r} is not a link", where=f"line {number}", remedy=f"write {_SHARED_TASK_LINE}"
            )
        sentence, source, target = (int(match[place]) for place in (1, 2, 3))
        if not 1 <= sentence <= len(sizes):
            raise DataError(
                f"sentence {sentence} is out of range",
                where=f"line {number}",
                remedy=f"choose from 1 to {len(sizes):,}",
            )
        if not source or not target:
            continue
        try:
            _check_words((source, target), sizes[sentence - 1], 1)
        except DataError as error:
            raise error.at(f"line {number}") from None
        link = source - 1, target - 1
        possible[sentence - 1].add(link)
        if match[4] != "P":
            sure[sentence - 1].add(link)
    return [GoldLinks(frozenset(one), frozenset(other)) for one, other in zip(sure, possible)]


def _check_words(link: tuple[int, int], size: tuple[int, int], first: int) -> None:
    """Raise ``DataError`` unless both words exist; ``first`` is the number of the first word."""
    if not (link[0] < size[0] + first and link[1] < size[1] + first):
        raise DataError(
            f"{link[0]}-{link[1]} is out of range: the sentence has {size[0]} source and {size[1]} target words, "
            f"counted from {first}"
        )


def write_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """{(0, 0), (1, 2)} → ``0-0 1-2``, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(set(links)))


def alignment_error_rate(sure: Sequence[Links], possible: Sequence[Links], proposed: Sequence[Links]) -> float:
    """Alignment error rate, 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over all sentences; 0 is perfect, 1 the worst.

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


class LinkScores(NamedTuple):
    """Error rate, precision and recall of proposed links (Och and Ney 2003); NaN where nothing is counted."""

    error_rate: float
    precision: float
    """Share of the proposed links that are possible, |A ∩ P| / |A|."""
    recall: float
    """Share of the sure links that are proposed, |A ∩ S| / |S|."""


def link_scores(sure: Sequence[Links], possible: Sequence[Links], proposed: Sequence[Links]) -> LinkScores:
    """Scores over all sentences, with the arguments of ``alignment_error_rate``."""
    rate = alignment_error_rate(sure, possible, proposed)
    pairs = list(zip(sure, possible, proposed, strict=True))
    allowed = sum(len(links & (possible_links | sure_links)) for sure_links, possible_links, links in pairs)
    agreed = sum(len(links & sure_links) for sure_links, _, links in pairs)
    n_proposed, n_sure = sum(map(len, proposed)), sum(map(len, sure))
    return LinkScores(rate, allowed / n_proposed if n_proposed else math.nan, agreed / n_sure if n_sure else math.nan)


def symmetrize(forward: Links, backward: Links, method: str = "grow-diag-final") -> frozenset[tuple[int, int]]:
    """One alignment of two: that of a model from source to target, and that of one back with its links turned round.

    ``intersection`` and ``union`` are what they say. ``grow-diag`` begins with the intersection and adds links of the
    union beside those it has, diagonally too, where one of the two words has no link yet (Koehn, Och & Marcu 2003).
    ``grow-diag-final`` then adds every other link of the union, those of ``forward`` first, where one of the two
    words has none (Koehn et al. 2005).
    """
    if method not in SYMMETRIZATIONS:
        raise ConfigError(f"{method!r} is no way to symmetrize; {nearest(method, list(SYMMETRIZATIONS))}")
    links = set(forward & backward)
    if method == "union":
        return frozenset(forward | backward)
    if method.startswith("grow"):
        _grow(links, forward | backward)
    if method.endswith("final"):
        for link in [*sorted(forward), *sorted(backward)]:
            _add_where_unlinked(links, link)
    return frozenset(links)


def _grow(links: set[tuple[int, int]], union: Links) -> None:
    """Add neighboring links until none is left, in a fixed order, since each link allows others."""
    size = -1
    while size != len(links):
        size = len(links)
        for source, target in sorted(links):
            for along_source, along_target in NEIGHBORS:
                beside = (source + along_source, target + along_target)
                if beside in union:
                    _add_where_unlinked(links, beside)


def _add_where_unlinked(links: set[tuple[int, int]], link: tuple[int, int]) -> None:
    source, target = link
    if all(source != other for other, _ in links) or all(target != other for _, other in links):
        links.add(link)
