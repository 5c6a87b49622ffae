"""Sizes, layouts and tensors of random calls; see ``random_calls.py``."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Results = Callable[[], Sequence[Tensor]]


@dataclass
class Call:
    """One call of a kernel, and the same in PyTorch."""

    native: Results
    torch: Results
    tolerance: float
    what: str
    """Sizes and kinds of the arguments."""
    invalid: bool = False
    """True if an error is a valid outcome, even where PyTorch broadcasts."""
    hides: bool = False
    """True if NaN or infinity may be elsewhere: keys are hidden, which the kernels do not read, or products are
    bfloat16, in which PyTorch's spread NaN to the row before (oneDNN with AMX)."""
    precise: Results | None = None
    """The same in a higher precision, with which a result beyond the tolerance and PyTorch's are compared."""
    nearby: Sequence[Results] = ()
    """PyTorch's for arguments that differ by rounding. Their errors count as its own: gradients of ReLU jump."""
    longest_sum: int = 0
    """Most terms of a sum that the kernel adds one by one. Its error grows with them, by 10⁻⁷ a term at most."""


class Draw(random.Random):
    """Random numbers of one call, its class of sizes, and whether it was made invalid.

    Most calls are small, since PyTorch takes most of the time of a large one: of 64 calls 4 are large, and one has one
    huge size.
    """

    spoiled = False

    def __init__(self, seed: str):
        super().__init__(seed)
        kind = self.randrange(64)
        self.large, self.huge = kind < 4, kind == 4

    def threads(self) -> int:
        """Threads of the call. Few small calls have several, which wait for each other longer than they compute."""
        return self.choice((1, 2, 3)) if self.random() < (0.5 if self.large or self.huge else 0.03) else 1


@dataclass(frozen=True)
class Kernel:
    draw: Callable[[Draw], Call]
    tolerance: float


SMALL = 9
BORDERS = (15, 16, 17, 31, 32, 33, 63, 64, 65)
"""Sizes at the widths of vectors and panels."""


def size(rng: Draw, most: int = 80) -> int:
    """A size up to ``most`` in large calls; else a small one, a border, or once in a huge call up to 20 · ``most``."""
    if rng.huge and rng.random() < 0.5:
        rng.huge = False
        return rng.randint(most, 20 * most)
    if not rng.large:
        borders = [border for border in BORDERS if border <= most]
        if borders and rng.random() < 0.15:
            return rng.choice(borders)
        most = min(most, SMALL)
    return rng.choice((0, 1, 2, rng.randint(3, most), rng.randint(3, most), 2 * rng.randint(1, most // 2) + 1, most))


def tensor(rng: Draw, *shape: int, dtype: torch.dtype = torch.float32, wild: float = 0.04) -> Tensor:
    """Normal numbers of some scale, sometimes with NaN or infinities, in some layout in memory."""
    x = torch.randn(shape) * rng.choice((1.0, 1.0, 1.0, 0.0, 1e-20, 7.0))
    if rng.random() < wild and x.numel():
        for _ in range(rng.randint(1, 3)):
            x.view(-1)[rng.randrange(x.numel())] = rng.choice((float("nan"), float("inf"), -float("inf")))
    return laid_out(rng, x.to(dtype))


def laid_out(rng: Draw, x: Tensor) -> Tensor:
    """The same tensor with other strides, or another alignment."""
    kind = rng.randrange(6)
    if kind == 0 and x.dim() > 1:
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if kind == 1 and x.dim():
        return F.pad(x, (0, x.size(-1)))[..., ::2].copy_(x) if x.size(-1) else x
    if kind == 2:
        return torch.empty(x.numel() + 6, dtype=x.dtype)[6:].view(x.shape).copy_(x)
    return x


def invalid(rng: Draw) -> bool:
    rng.spoiled = rng.random() < 0.12
    return rng.spoiled


def near(rng: Draw, count: int) -> int:
    """Another size than ``count``."""
    return rng.choice([other for other in (0, 1, count - 1, count + 1, 2 * count, 5) if other not in (count, -1)])


def with_gradients(function: Callable[..., Tensor], *leaves: Tensor | None) -> Results:
    """Result of ``function`` and gradients of a random sum of it."""

    def compute() -> list[Tensor]:
        needed = [None if leaf is None else leaf.detach().requires_grad_() for leaf in leaves]
        result = function(*needed)
        given = torch.randn(result.shape, generator=torch.Generator().manual_seed(5)).to(result.dtype)
        gradients = torch.autograd.grad(result, [x for x in needed if x is not None], given, allow_unused=True)
        return [result.detach(), *(x for x in gradients if x is not None)]

    return compute


def mask_of(rng: Draw, batch: int, heads: int, queries: int, keys: int) -> Tensor | None:
    """None, random, empty, causal or padding; with broadcast axes and strides."""
    kind = rng.randrange(6)
    if kind < 2:
        return None
    if kind == 2:
        return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)[None, None]
    shape = [rng.choice((1, full)) for full in (batch, heads, queries, keys)]
    if kind == 3:
        return torch.zeros(shape, dtype=torch.bool)
    return laid_out(rng, torch.rand(shape) < rng.choice((0.05, 0.5, 0.9)))
