"""The alignment error rate of word alignments.

Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models", section 5.
"""

from collections.abc import Sequence

from glassformer.errors import DataError
from glassformer.text.pharaoh import Links


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
