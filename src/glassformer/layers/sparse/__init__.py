"""Sparse attention: patterns, and attention that computes only the blocks a pattern allows."""

from glassformer.layers.sparse.pattern import (
    BlockComponent,
    ColumnComponent,
    Global,
    Pattern,
    Summary,
    Window,
    fixed,
    global_tokens,
    strided,
)

__all__ = [
    "BlockComponent",
    "ColumnComponent",
    "Global",
    "Pattern",
    "Summary",
    "Window",
    "fixed",
    "global_tokens",
    "strided",
]
