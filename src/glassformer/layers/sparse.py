"""What a sparse pattern of attention is: elements, each with what it sees and how it is computed, and their union."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glassformer.config import ConfigError
from glassformer.layers.cover import Cover, Listed, Runs
from glassformer.layers.parts import Part, attend

Positions = Int[Tensor, "..."]


class Pattern(ABC):
    """Positions count from the first key; the last query is at the last key, as in ``causal_mask``."""

    @property
    @abstractmethod
    def elements(self) -> tuple["Element", ...]:
        """What it is the union of."""

    def mask(self, query: int, key: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 query key"]:
        """The n × n mask that ``attend`` does without."""
        i, j = torch.arange(key - query, key, device=device), torch.arange(key, device=device)
        return _seen(self.elements, i[:, None], j[None, :])[None, None]

    def attend(
        self,
        q: Float[Tensor, "batch heads query d_k"],
        k: Float[Tensor, "batch heads key d_k"],
        v: Float[Tensor, "batch heads key d_v"],
        mask: Bool[Tensor, "#batch #heads #query #key"] | None = None,
    ) -> Float[Tensor, "batch heads query d_v"]:
        """Equation 1 over what the pattern and ``mask`` both let be seen. A query that may see nothing yields zeros.

        While PyTorch compiles it is computed in full: its compiler refuses to write through the views used here.
        """
        if torch.compiler.is_compiling():
            seen = self.mask(q.size(2), k.size(2), q.device)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen if mask is None else seen & mask)
        return attend(_parts(self.elements, q.size(2), k.size(2)), q, k, v, mask)

    def __or__(self, other: "Pattern") -> "Union":
        return Union((*self.elements, *other.elements))


@dataclass(frozen=True)
class Union(Pattern):
    """Sees what any of its elements sees; the one that sees the most should come first."""

    union: tuple["Element", ...]

    @property
    def elements(self) -> tuple["Element", ...]:
        return self.union


class Element(Pattern):
    """What is computed as one; ``causal``: of it, nothing that is ahead."""

    causal: bool

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise ConfigError(f"{name}={value} of attention's {type(self).__name__}; choose 1 or more")

    @property
    def elements(self) -> tuple["Element", ...]:
        return (self,)

    @property
    def period(self) -> int:
        """What is seen stays the same when query and key both move on by so much; 0: never."""
        return 1

    @abstractmethod
    def sees(self, query: Positions, key: Positions) -> Bool[Tensor, "..."]:
        """Whether the one position sees the other, if that is not ahead or nothing is causal."""

    @abstractmethod
    def cover(self, query: int, key: int) -> Cover:
        """All that it sees, and as little else as can be."""


def _seen(elements: tuple[Element, ...], query: Tensor, key: Tensor) -> Tensor:
    seen = torch.zeros_like(query == key)
    for element in elements:
        own = element.sees(query, key)
        seen = seen | (own & (key <= query) if element.causal else own)
    return seen


def _parts(elements: tuple[Element, ...], query: int, key: int) -> tuple[Part, ...]:
    found = []
    for n, element in enumerate(elements):
        sees = partial(_newly, elements[:n], element, key - query)
        for queries, keys in element.cover(query, key):
            found.append(Part(queries, keys, sees, _uniform(elements[: n + 1], queries), n > 0))
    return tuple(found)


def _newly(before: tuple[Element, ...], element: Element, offset: int, query: Tensor, key: Tensor) -> Tensor:
    """What ``element`` sees and none ``before`` it."""
    seen = _seen((element,), query + offset, key)
    return seen & ~_seen(before, query + offset, key) if before else seen


def _uniform(elements: tuple[Element, ...], queries: Runs | Listed) -> bool:
    """Whether every run of ``queries`` sees alike."""
    if isinstance(queries, Listed) or queries.count == 1:
        return True
    return all(element.period and queries.step % element.period == 0 for element in elements)
