"""Blockwise attention: equation 1 computed on the blocks of a schedule, without the n × n scores.

Each block yields a context and the log-sum-exp (lse) of its scores. The lse merges blocks that share queries, and the
backward pass needs only the merged values (Dao et al. 2022, arXiv:2205.14135, section 3.1).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.layers.sparse.schedule import Rows

Positions = Int[Tensor, "..."]
MaskMod = Callable[[Positions, Positions], Bool[Tensor, "..."]]
"""Map positions of queries and keys to True for allowed pairs."""
Inputs = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""q, k, v and the dense mask."""


@dataclass(frozen=True)
class BlockPairs:
    """Blocks of queries, each with its block of keys: small attentions computed as one."""

    queries: Rows
    keys: Rows
    offset: int
    """Position of the first query among the keys."""
    mask_mod: MaskMod
    before: MaskMod | None
    """Mask of earlier block pairs, which may have the same queries; None if there are none."""
    periods: tuple[int, ...]
    """Shifts that keep these masks unchanged."""

    def mask(self, dense: Tensor | None, device: torch.device) -> Bool[Tensor, "#block #heads query key"]:
        """The mask of each block, combined with ``dense``."""
        i, j = self.queries.indices(device), self.keys.indices(device)
        blocks = slice(1) if self.queries.in_phase(self.periods) else slice(None)  # one mask serves all blocks
        positions = i[blocks, :, None] + self.offset, j[blocks, None, :]
        own = self.mask_mod(*positions)[:, None]
        if self.before is not None:
            own = own & ~self.before(*positions)[:, None]
        if dense is None:
            return own
        rows = dense[:, :, :1, j].transpose(2, 3) if dense.size(2) == 1 else dense[:, :, i[:, :, None], j[:, None, :]]
        return (rows.transpose(1, 2) & own).flatten(0, 1)

    def gather(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v and mask of the blocks."""
        return self.queries.gather(q), self.keys.gather(k), self.keys.gather(v), self.mask(mask, q.device)


def blockwise_attention(
    block_pairs: tuple[BlockPairs, ...],
    q: Float[Tensor, "batch heads query d_k"],
    k: Float[Tensor, "batch heads key d_k"],
    v: Float[Tensor, "batch heads key d_v"],
    mask: Bool[Tensor, "#batch #heads #query #key"] | None,
) -> Float[Tensor, "batch heads query d_v"]:
    """Equation 1 under the masks of ``block_pairs`` and ``mask``. A query without an allowed key yields zeros."""
    if mask is not None:
        mask = mask.expand(-1, -1, -1, k.size(2))
        unused = ~mask.any(2)[..., None]  # a NaN there would pass through the product with a weight of 0
        k, v = k.masked_fill(unused, 0.0), v.masked_fill(unused, 0.0)
    d_v, scale = v.size(-1), 1 / math.sqrt(q.size(-1))
    d_head = max(q.size(-1), d_v)  # the flash kernel requires d_k = d_v
    q, k, v = (x if x.size(-1) == d_head else F.pad(x, (0, d_head - x.size(-1))) for x in (q, k, v))
    return _BlockwiseAttention.apply(q, k, v, mask, block_pairs, scale)[..., :d_v]


class _BlockwiseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        block_pairs: tuple[BlockPairs, ...],
        scale: float,
    ) -> Tensor:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        context, lse = _zeros_like(q), q.new_full((*q.shape[:3], 1), -torch.inf, dtype=_float32_or_wider(q))
        for pairs in block_pairs:
            for rows in _sequences(pairs, len(q)):
                _forward(pairs, _select(rows, q, k, v, mask), scale, context[rows], lse[rows])
        ctx.save_for_backward(q, k, v, mask, context, _finite(lse))
        ctx.block_pairs, ctx.scale = block_pairs, scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_context: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask, context, lse = ctx.saved_tensors
        d_context = d_context if d_context.stride(-1) == 1 else d_context.contiguous()
        d_q, d_k, d_v = (_zeros_like(x) for x in (q, k, v))
        for pairs in ctx.block_pairs:
            for rows in _sequences(pairs, len(q)):
                outputs = [pairs.queries.gather(x[rows]) for x in (d_context, context, lse)]
                d_queries, d_keys, d_values = _backward(pairs, _select(rows, q, k, v, mask), ctx.scale, *outputs)
                pairs.queries.scatter_add(d_q[rows], d_queries)
                pairs.keys.scatter_add(d_k[rows], d_keys)
                pairs.keys.scatter_add(d_v[rows], d_values)
        return d_q, d_k, d_v, None, None, None


def _sequences(pairs: BlockPairs, batch: int) -> Iterator[slice]:
    """All sequences at once if each has one block, else one by one: a view has a single stride along its batch axis."""
    return iter([slice(0, batch)] if pairs.queries.count == 1 else [slice(b, b + 1) for b in range(batch)])


def _select(rows: slice, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Inputs:
    return q[rows], k[rows], v[rows], mask if mask is None or len(mask) == 1 else mask[rows]


def _forward(pairs: BlockPairs, inputs: Inputs, scale: float, context: Tensor, lse: Tensor) -> None:
    """Compute ``pairs`` and merge the result into ``context`` and ``lse``."""
    q, k, v, mask = pairs.gather(*inputs)
    block, block_lse = _block_forward(q, k, v, mask, scale)
    block_lse = block_lse[..., None].masked_fill(~mask.any(-1, keepdim=True), -torch.inf)
    merged_lse = block_lse
    if pairs.before is not None:
        before, before_lse = pairs.queries.gather(context), pairs.queries.gather(lse)
        merged_lse = torch.logaddexp(before_lse, block_lse)
        shift = _finite(merged_lse)
        block = (before * (before_lse - shift).exp() + block * (block_lse - shift).exp()).to(before.dtype)
    pairs.queries.scatter(context, block)
    pairs.queries.scatter(lse, merged_lse)


def _backward(
    pairs: BlockPairs, inputs: Inputs, scale: float, d_context: Tensor, context: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v of ``pairs``; ``context`` and ``lse`` are those of all blocks."""
    q, k, v, mask = pairs.gather(*inputs)
    if has_flash_kernel(q):
        outputs = (context, lse[..., 0], 0.0, False)
        return _flash_backward(d_context, q, k, v, *outputs, attn_mask=_additive(mask, q), scale=scale)
    weights = (_masked_scores(q, k, mask, scale) - lse).exp()
    d_weights = (d_context @ v.transpose(-2, -1)).to(weights.dtype)
    product = (d_context.to(weights.dtype) * context).sum(-1, keepdim=True)
    d_scores = (weights * (d_weights - product) * scale).to(q.dtype)
    return d_scores @ k, d_scores.transpose(-2, -1) @ q, weights.to(q.dtype).transpose(-2, -1) @ d_context


# A block has two kernels: PyTorch's flash attention for CPUs, and plain products elsewhere. Forward and backward of a
# causal window of 256 (4,096 positions, 4 heads of 64, float32, one Zen 4 core) take 91 ms with the former, 258 ms with
# the latter. The public scaled_dot_product_attention does not return the lse.
_flash_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def has_flash_kernel(q: Tensor) -> bool:
    """True on CPUs; the kernels for other devices require aligned masks."""
    return q.device.type == "cpu"


def _block_forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Context and lse of each block."""
    if has_flash_kernel(q):
        context, lse = _flash_forward(q, k, v, 0.0, False, attn_mask=_additive(mask, q), scale=scale)
        return context, lse
    scores = _masked_scores(q, k, mask, scale)
    lse = scores.logsumexp(-1)
    return (scores - _finite(lse)[..., None]).exp().to(v.dtype) @ v, lse


def _masked_scores(q: Tensor, k: Tensor, mask: Tensor, scale: float) -> Tensor:
    return (q @ k.transpose(-2, -1) * scale).to(_float32_or_wider(q)).masked_fill(~mask, -torch.inf)


def _finite(lse: Tensor) -> Tensor:
    """Replace −∞, the lse of a query without an allowed key, by 0: e^−∞ is 0, but e^(−∞ + ∞) is NaN."""
    return lse.masked_fill(lse == -torch.inf, 0.0)


def _additive(mask: Tensor, q: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill_(~mask, -torch.inf)


def _float32_or_wider(q: Tensor) -> torch.dtype:
    return torch.promote_types(q.dtype, torch.float32)


def _zeros_like(x: Tensor) -> Tensor:
    """Zeros with heads side by side in memory, the layout that the projections produce and W_O reads."""
    return x.new_zeros(x.size(0), x.size(2), x.size(1), x.size(3)).transpose(1, 2)
