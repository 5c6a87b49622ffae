"""Sparse attention: which positions a position may see, where it need not see all of them.

``Window(256, causal=True) | Column(64, causal=True)`` sees what either sees. Only what is seen is computed: with a
window of fixed width, time and memory grow with the length and not with its square.

The patterns of Child et al. 2019 (arXiv:1904.10509, section 4.3) and Beltagy et al. 2020 (arXiv:2004.05150, section
3.1). Differs from the papers: one head sees all that a pattern consists of, and global positions have no projections of
their own.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from glassformer.config import ConfigError
from glassformer.layers.cover import Cover, blocks, columns, from_few, to_few, windows
from glassformer.layers.sparse import Element, Pattern, Positions


@dataclass(frozen=True)
class Window(Element):
    """Sees what is less than ``width`` positions away, itself included.

    Differs from Beltagy et al.: their width counts both sides together.
    """

    width: int
    causal: bool = False

    def sees(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return (query - key).abs() < self.width

    def cover(self, query: int, key: int) -> Cover:
        return windows(query, key, self.width, self.causal)


@dataclass(frozen=True)
class Block(Element):
    """Sees its own block of ``size`` positions."""

    size: int
    causal: bool = False

    @property
    def period(self) -> int:
        return self.size

    def sees(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return query.div(self.size, rounding_mode="floor") == key.div(self.size, rounding_mode="floor")

    def cover(self, query: int, key: int) -> Cover:
        return blocks(query, key, self.size, self.causal)


@dataclass(frozen=True)
class Column(Element):
    """Sees every ``stride``-th position, counted from itself."""

    stride: int
    causal: bool = False

    def sees(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return (query - key).remainder(self.stride) == 0

    def cover(self, query: int, key: int) -> Cover:
        return columns(query, key, self.stride)


@dataclass(frozen=True)
class Summary(Element):
    """Sees the last ``count`` positions of every block of ``size``."""

    size: int
    count: int
    causal: bool = False

    @property
    def period(self) -> int:
        return self.size

    def sees(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return key.remainder(self.size) >= self.size - self.count

    def cover(self, query: int, key: int) -> Cover:
        few = [j for j in range(key) if j % self.size >= self.size - self.count]
        return to_few(few, query, key, self.causal)


@dataclass(frozen=True)
class Global(Element):
    """Few positions that all others see (``seen``), or that see all others."""

    positions: tuple[int, ...]
    seen: bool
    causal: bool = False

    def __post_init__(self) -> None:
        if not self.positions or min(self.positions) < 0:
            raise ConfigError(f"positions={self.positions} of global tokens; choose at least one, from 0 on")

    @property
    def period(self) -> int:
        return 0

    def sees(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return torch.isin(key if self.seen else query, torch.tensor(self.positions, device=key.device))

    def cover(self, query: int, key: int) -> Cover:
        few = sorted({position for position in self.positions if position < key})
        return to_few(few, query, key, self.causal) if self.seen else from_few(few, query, key)


def strided(stride: int, causal: bool = False) -> Pattern:
    """Child et al. 2019: the nearest ``stride`` positions and every ``stride``-th; costs n √n if that is √n."""
    return Window(stride, causal) | Column(stride, causal)


def fixed(size: int, count: int = 1, causal: bool = False) -> Pattern:
    """Child et al. 2019: a position's own block of ``size``, and the last ``count`` positions of every block."""
    return Block(size, causal) | Summary(size, count, causal)


def global_tokens(positions: tuple[int, ...], causal: bool = False) -> Pattern:
    """Beltagy et al. 2020: ``positions`` see all and are seen by all; to be added to a window."""
    return Global(positions, True, causal) | Global(positions, False, causal)
