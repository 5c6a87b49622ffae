"""Equation 1 in parts: some queries against some keys at a time, so that what nobody sees is never computed.

Each part is a batch of small attentions with the logarithms of their denominators. Parts that share a query are joined
by them, and the gradient of a part needs only the joined ones (Dao et al. 2022, arXiv:2205.14135, section 3.1).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.layers.cover import Listed, Runs


@dataclass(frozen=True)
class Part:
    """Run c of ``queries`` against run c of ``keys``."""

    queries: Runs | Listed
    keys: Runs | Listed
    sees: Callable[[Tensor, Tensor], Tensor]
    """Of rows of queries and rows of keys, True where the one may see the other in this part and in none before it."""
    uniform: bool
    """Whether ``sees`` is the same for every run."""
    joins: bool
    """Whether parts before it may have the same queries."""

    def seen(self, mask: Tensor | None, device: torch.device) -> Bool[Tensor, "#run #heads query key"]:
        i, j = self.queries.index(device), self.keys.index(device)
        runs = slice(1) if self.uniform else slice(None)
        seen = self.sees(i[runs, :, None], j[runs, None, :])[:, None]
        if mask is None:
            return seen
        rows = mask[:, :, :1, j].transpose(2, 3) if mask.size(2) == 1 else mask[:, :, i[:, :, None], j[:, None, :]]
        return (rows.transpose(1, 2) & seen).flatten(0, 1)


Side = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Queries, keys, values and mask."""


def attend(
    parts: tuple[Part, ...],
    q: Float[Tensor, "batch heads query d_k"],
    k: Float[Tensor, "batch heads key d_k"],
    v: Float[Tensor, "batch heads key d_v"],
    mask: Bool[Tensor, "#batch #heads #query #key"] | None,
) -> Float[Tensor, "batch heads query d_v"]:
    """Equation 1 over what ``parts`` see and ``mask`` lets be seen."""
    if mask is not None:
        mask = mask.expand(-1, -1, -1, k.size(2))
        hidden = ~mask.any(2)[..., None]  # 0 · NaN would reach who does not see it
        k, v = k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
    size, scale = v.size(-1), 1 / math.sqrt(q.size(-1))
    wide = max(q.size(-1), size)  # the fused kernel knows one size of head
    q, k, v = (x if x.size(-1) == wide else F.pad(x, (0, wide - x.size(-1))) for x in (q, k, v))
    return _InParts.apply(q, k, v, mask, parts, scale)[..., :size]


class _InParts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, parts: tuple[Part, ...], scale: float
    ) -> Tensor:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        context, log_sums = _like(q), q.new_full((*q.shape[:3], 1), -torch.inf, dtype=_exact(q))
        for part in parts:
            for row in _rows(part, len(q)):
                _attend_part(part, _side(row, q, k, v, mask), scale, context[row], log_sums[row])
        ctx.save_for_backward(q, k, v, mask, context, _finite(log_sums))
        ctx.parts, ctx.scale = parts, scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_context: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, context, log_sums = ctx.saved_tensors
        d_context = d_context if d_context.stride(-1) == 1 else d_context.contiguous()
        d_q, d_k, d_v = (_like(x) for x in (q, k, v))
        for part in ctx.parts:
            for row in _rows(part, len(q)):
                known = [part.queries.take(x[row]) for x in (d_context, context, log_sums)]
                d_queries, d_keys, d_values = _gradients(part, _side(row, q, k, v, mask), ctx.scale, *known)
                part.queries.add(d_q[row], d_queries)
                part.keys.add(d_k[row], d_keys)
                part.keys.add(d_v[row], d_values)
        return d_q, d_k, d_v, None, None, None


def _rows(part: Part, batch: int) -> Iterator[slice]:
    """All sequences at once where there is one run, else one after the other: a view has one step."""
    return iter([slice(0, batch)] if part.queries.count == 1 else [slice(b, b + 1) for b in range(batch)])


def _side(row: slice, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Side:
    return q[row], k[row], v[row], mask if mask is None or len(mask) == 1 else mask[row]


def _attend_part(part: Part, side: Side, scale: float, context: Tensor, log_sums: Tensor) -> None:
    """Joined with what ``context`` and ``log_sums`` hold of the parts before."""
    q, k, v = part.queries.take(side[0]), part.keys.take(side[1]), part.keys.take(side[2])
    seen = part.seen(side[3], q.device)
    if has_fused(q):
        new, sums = _fused(q, k, v, 0.0, False, attn_mask=_added(seen, q), scale=scale)
    else:
        scores = _scores(q, k, seen, scale)
        sums = scores.logsumexp(-1)
        new = (scores - _finite(sums)[..., None]).exp().to(v.dtype) @ v
    sums = sums[..., None].masked_fill(~seen.any(-1, keepdim=True), -torch.inf)
    if part.joins:
        old, before = part.queries.take(context), part.queries.take(log_sums)
        sums, after = torch.logaddexp(before, sums), sums
        shift = _finite(sums)
        new = (old * (before - shift).exp() + new * (after - shift).exp()).to(old.dtype)
    part.queries.put(context, new)
    part.queries.put(log_sums, sums)


def _gradients(
    part: Part, side: Side, scale: float, d_context: Tensor, context: Tensor, log_sums: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the part's queries, keys and values; ``context`` and ``log_sums`` are those of all parts."""
    q, k, v = part.queries.take(side[0]), part.keys.take(side[1]), part.keys.take(side[2])
    seen = part.seen(side[3], q.device)
    if has_fused(q):
        known = (d_context, q, k, v, context, log_sums[..., 0])
        return _fused_gradients(*known, 0.0, False, attn_mask=_added(seen, q), scale=scale)
    weights = (_scores(q, k, seen, scale) - log_sums).exp()
    d_weights = (d_context @ v.transpose(-2, -1)).to(weights.dtype)
    product = (d_context.to(weights.dtype) * context).sum(-1, keepdim=True)
    d_scores = (weights * (d_weights - product) * scale).to(q.dtype)
    return d_scores @ k, d_scores.transpose(-2, -1) @ q, weights.to(q.dtype).transpose(-2, -1) @ d_context


# The public scaled_dot_product_attention keeps the logarithms of the denominators to itself.
_fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_fused_gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def has_fused(q: Tensor) -> bool:
    """PyTorch's kernels for other devices want masks in memory as they like it; there the products are its own."""
    return q.device.type == "cpu"


def _scores(q: Tensor, k: Tensor, seen: Tensor, scale: float) -> Tensor:
    return (q @ k.transpose(-2, -1) * scale).to(_exact(q)).masked_fill(~seen, -torch.inf)


def _finite(log_sums: Tensor) -> Tensor:
    """0 for who sees nothing: e^−∞ is 0, e^(∞ − ∞) is not."""
    return log_sums.masked_fill(log_sums == -torch.inf, 0.0)


def _added(seen: Tensor, q: Tensor) -> Tensor:
    return torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill_(~seen, -torch.inf)


def _exact(q: Tensor) -> torch.dtype:
    return torch.promote_types(q.dtype, torch.float32)


def _like(x: Tensor) -> Tensor:
    """Zeros with the heads side by side in memory, as the projections give them and W_O takes them."""
    return x.new_zeros(x.size(0), x.size(2), x.size(1), x.size(3)).transpose(1, 2)
