"""Word alignment: links and their formats, and what attention says about words (``attention``)."""

from glassformer.alignment.links import (
    GoldLinks,
    Links,
    alignment_error_rate,
    read_gold,
    read_pharaoh,
    symmetrize,
    write_pharaoh,
)

__all__ = [
    "GoldLinks",
    "Links",
    "alignment_error_rate",
    "read_gold",
    "read_pharaoh",
    "symmetrize",
    "write_pharaoh",
]
