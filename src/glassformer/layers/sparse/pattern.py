"""Sparse attention patterns: sets of allowed pairs of query and key.

``Window(256, causal=True) | Column(64, causal=True)`` allows what either allows. Attention computes a pattern's blocks
only (Child et al. 2019, arXiv:1904.10509, section 4.3; Beltagy et al. 2020, arXiv:2004.05150, section 3.1).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glassformer.errors import ConfigError
from glassformer.layers.sparse import schedule
from glassformer.layers.sparse.blockwise import BlockPairs, Positions, blockwise_attention


class Pattern(ABC):
    """A union of components. Positions count from the first key; the last query stands at the last key."""

    @property
    @abstractmethod
    def components(self) -> tuple["Component", ...]: ...

    def mask_mod(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        """True for allowed pairs of positions."""
        not_after, all_pairs = key <= query, torch.ones_like(key == query)
        allowed = (c.allows(query, key) & (not_after if c.causal else all_pairs) for c in self.components)
        return reduce(torch.logical_or, allowed)

    def mask(self, n_queries: int, n_keys: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 query key"]:
        """The dense n × n mask. Compiled code attends under it: torch.compile rejects ``attend``'s writes to views."""
        i, j = torch.arange(n_keys - n_queries, n_keys, device=device), torch.arange(n_keys, device=device)
        return self.mask_mod(i[:, None], j[None, :])[None, None]

    def attend(
        self,
        q: Float[Tensor, "batch heads query d_k"],
        k: Float[Tensor, "batch heads key d_k"],
        v: Float[Tensor, "batch heads key d_v"],
        mask: Bool[Tensor, "#batch #heads #query #key"] | None = None,
    ) -> Float[Tensor, "batch heads query d_v"]:
        """Equation 1 under the pattern and ``mask``. A query without an allowed key yields zeros."""
        return blockwise_attention(tuple(self._block_pairs(q.size(2), k.size(2))), q, k, v, mask)

    def _block_pairs(self, n_queries: int, n_keys: int) -> Iterator[BlockPairs]:
        for n, component in enumerate(self.components):
            before = Union(self.components[:n]).mask_mod if n else None
            periods = tuple(each.period for each in self.components[: n + 1])
            for queries, keys in component.blocks(n_queries, n_keys):
                yield BlockPairs(queries, keys, n_keys - n_queries, component.mask_mod, before, periods)

    def __or__(self, other: "Pattern") -> "Union":
        return Union((*self.components, *other.components))


@dataclass(frozen=True)
class Union(Pattern):
    """A union of patterns; the component with the most pairs should come first."""

    members: tuple["Component", ...]

    @property
    def components(self) -> tuple["Component", ...]:
        return self.members


class Component(Pattern):
    """A pattern with a schedule of its own; ``causal`` removes pairs whose key comes after the query."""

    causal: bool

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise ConfigError(f"{name}={value} is too small for {type(self).__name__} attention; choose 1 or more")

    @property
    def components(self) -> tuple["Component", ...]:
        return (self,)

    @property
    def period(self) -> int:
        """The smallest shift of both query and key that keeps ``mask_mod`` unchanged; 0 if there is none."""
        return 1

    @abstractmethod
    def allows(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        """``mask_mod`` without causality."""

    @abstractmethod
    def blocks(self, n_queries: int, n_keys: int) -> schedule.Schedule:
        """Blocks that contain every allowed pair and few others."""


@dataclass(frozen=True)
class Window(Component):
    """Keys less than ``width`` positions away, on either side. In Beltagy et al. the width counts both sides."""

    width: int
    causal: bool = False

    def allows(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return (query - key).abs() < self.width

    def blocks(self, n_queries: int, n_keys: int) -> schedule.Schedule:
        return schedule.window(n_queries, n_keys, self.width, self.causal)


@dataclass(frozen=True)
class BlockComponent(Component):
    """Keys in the query's own block of ``size`` positions."""

    size: int
    causal: bool = False

    @property
    def period(self) -> int:
        return self.size

    def allows(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return query.div(self.size, rounding_mode="floor") == key.div(self.size, rounding_mode="floor")

    def blocks(self, n_queries: int, n_keys: int) -> schedule.Schedule:
        return schedule.block(n_queries, n_keys, self.size, self.causal)


@dataclass(frozen=True)
class ColumnComponent(Component):
    """Every ``stride``-th key, counted from the query."""

    stride: int
    causal: bool = False

    def allows(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return (query - key).remainder(self.stride) == 0

    def blocks(self, n_queries: int, n_keys: int) -> schedule.Schedule:
        return schedule.column(n_queries, n_keys, self.stride)


@dataclass(frozen=True)
class Summary(Component):
    """The last ``count`` keys of every block of ``size``."""

    size: int
    count: int
    causal: bool = False

    @property
    def period(self) -> int:
        return self.size

    def allows(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return key.remainder(self.size) >= self.size - self.count

    def blocks(self, n_queries: int, n_keys: int) -> schedule.Schedule:
        positions = tuple(j for j in range(n_keys) if j % self.size >= self.size - self.count)
        return schedule.selected_keys(positions, n_queries, n_keys, self.causal)


@dataclass(frozen=True)
class Global(Component):
    """Selected keys for all queries (``as_keys``), or all keys for selected queries."""

    positions: tuple[int, ...]
    as_keys: bool
    causal: bool = False
    period = 0

    def __post_init__(self) -> None:
        if not self.positions or min(self.positions) < 0:
            raise ConfigError(f"positions={self.positions} cannot be global tokens; choose one or more, from 0 on")

    def allows(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        return torch.isin(key if self.as_keys else query, torch.tensor(self.positions, device=key.device))

    def blocks(self, n_queries: int, n_keys: int) -> schedule.Schedule:
        if self.as_keys:
            return schedule.selected_keys(self.positions, n_queries, n_keys, self.causal)
        return schedule.selected_queries(self.positions, n_queries, n_keys)


def strided(stride: int, causal: bool = False) -> Pattern:
    """Child et al. 2019: the nearest ``stride`` keys and every ``stride``-th key; costs n √n at a stride of √n."""
    return Window(stride, causal) | ColumnComponent(stride, causal)


def fixed(size: int, count: int = 1, causal: bool = False) -> Pattern:
    """Child et al. 2019: the query's own block of ``size``, and the last ``count`` keys of every block."""
    return BlockComponent(size, causal) | Summary(size, count, causal)


def global_tokens(positions: tuple[int, ...], causal: bool = False) -> Pattern:
    """Beltagy et al. 2020: ``positions`` as keys for all queries and as queries for all keys, beside a window."""
    return Global(positions, True, causal) | Global(positions, False, causal)
