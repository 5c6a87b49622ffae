"""Word alignment: links and their formats, and what attention says about words (``attention``)."""

from glassformer.alignment.links import (
    GoldLinks,
    Links,
    LinkScores,
    alignment_error_rate,
    link_scores,
    read_gold,
    read_pharaoh,
    symmetrize,
    write_pharaoh,
)

__all__ = [
    "GoldLinks",
    "LinkScores",
    "Links",
    "alignment_error_rate",
    "link_scores",
    "read_gold",
    "read_pharaoh",
    "symmetrize",
    "write_pharaoh",
]
