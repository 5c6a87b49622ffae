"""Section 3.2: scaled dot-product attention and multi-head attention.

Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V   (equation 1)
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from glassformer.layers.cache import KeyValueCache
from glassformer.layers.dropout import Dropout
from glassformer.layers.linear import Linear, linear
from glassformer.layers.mask import Mask
from glassformer.layers.position import Rotary
from glassformer.layers.sparse import Pattern
from glassformer.native.ops import attention
from glassformer.taps import note, tap, tracing


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h attentions side by side, each on its own projection to d_k, d_k and d_v, then W_O.

    Self-attention when no ``memory`` is given, encoder–decoder attention when it is the encoder's output; a ``pattern``
    narrows what the former may see. ``n_heads`` may be a pair: fewer heads of keys and values, each asked by a group
    (Ainslie et al. 2023, arXiv:2305.13245; with one, multi-query attention, Shazeer 2019, arXiv:1911.02150).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int | tuple[int, int],
        d_k: int,
        d_v: int,
        dropout: nn.Module,
        bias: bool = True,
        rotary: Rotary | None = None,
        pattern: Pattern | None = None,
    ):
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads if isinstance(n_heads, tuple) else (n_heads, n_heads)
        self.query = Linear(d_model, self.n_heads * d_k, bias=bias)
        self.key = Linear(d_model, self.n_kv_heads * d_k, bias=bias)
        self.value = Linear(d_model, self.n_kv_heads * d_v, bias=bias)
        self.output = Linear(self.n_heads * d_v, d_model, bias=bias)
        self.dropout = dropout
        self.rotary = rotary
        self.pattern = pattern

    def forward(
        self,
        x: Float[Tensor, "rows query d_model"],
        memory: Float[Tensor, "batch key d_model"] | None = None,
        mask: Mask | None = None,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "rows query d_model"]:
        """Queries from ``x``, keys and values from ``memory``, or from ``x`` itself when it is None.

        With a ``cache``, self-attention adds its new keys and values to it; attention to a ``memory`` fills it once.
        ``x`` may hold several hypotheses for each sentence of ``memory`` (``rows`` = k · ``batch``): attention takes
        them as further queries of the same sentence, so that the memory is never copied.
        """
        if memory is None:
            offset = 0 if cache is None else cache.offset
            q, k, v = self._own(x, cache, room=mask is not None and mask.causal)
            if self.pattern is not None:
                if cache is None and not (tracing() or self._drops or torch.compiler.is_compiling()):
                    others = None if mask is None else mask.dense(q.size(2), k.size(2), q.device)
                    return self._merge(self.pattern.attend(q, *self._repeated(k, v), others), x)
                mask = replace(mask or Mask(), pattern=self.pattern, offset=offset)
            return self._merge(self.attend(q, k, v, mask), x)
        k, v = self._memory(memory, cache)
        q = self._heads(self.query(x.reshape(k.size(0), -1, x.size(-1))), "q")
        return self._merge(self.attend(q, k, v, mask), x)

    def attend(
        self,
        q: Float[Tensor, "batch heads query d_k"],
        k: Float[Tensor, "batch kv_heads key d_k"],
        v: Float[Tensor, "batch kv_heads key d_v"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch heads query d_v"]:
        """Equation 1. A query that may see nothing yields zeros. A group of heads may share keys and values."""
        if not (q.is_cpu or tracing()) and (p := self._dropout_p) is not None:
            return _fused(q, k, v, mask, p)
        dense = None if mask is None else mask.dense(q.size(2), k.size(2), q.device)
        if q.size(1) == k.size(1):
            return self._attend(q, k, v, dense)
        if q.size(2) > 1 or tracing() or (dense is not None and dense.size(1) > 1):
            return self._attend(q, *self._repeated(k, v), dense)
        # One query a head: the heads of a group are further queries of one head, and nothing is repeated.
        return self._attend(q.reshape(q.size(0), k.size(1), -1, q.size(3)), k, v, dense).flatten(1, 2)[:, :, None]

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Float[Tensor, "batch heads query d_v"]:
        """The same for as many heads of keys as of queries and a dense mask."""
        if not tracing() and self._fused_is_faster(q):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        if not tracing() and q.requires_grad and (context := self._whole(q, k, v, mask)) is not None:
            return context
        if not tracing() and not torch.is_grad_enabled() and not self._drops:
            return _without_gradient(q, k, v, mask)
        scores = tap(self, "scores", q @ k.transpose(-2, -1))
        scaled = tap(self, "scaled_scores", scores * (1 / math.sqrt(q.size(-1))))
        if mask is None:
            weights = scaled.softmax(-1)
        else:
            note(self, "mask", lambda: mask.expand_as(scaled))
            note(self, "masked_scores", lambda: scaled.masked_fill(~mask, -torch.inf))
            masked = scaled.masked_fill(~mask, torch.finfo(scaled.dtype).min)
            weights = masked.softmax(-1).masked_fill(~mask, 0.0)
        weights = self.dropout(tap(self, "weights", weights))
        return weights @ v

    def _repeated(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Each head once for every head of its group."""
        group = self.n_heads // self.n_kv_heads
        return (k, v) if group == 1 else (k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))

    def _whole(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor | None:
        """In the kernels, dropout included; they know no other kind of it, and heads of whole vectors only are fast."""
        if q.size(-1) % 32 or v.size(-1) % 32:
            return None
        return None if (p := self._dropout_p) is None else attention(q, k, v, mask, round(256 * p))

    @property
    def _dropout_p(self) -> float | None:
        """The probability that fused attention drops a weight with; None for a dropout of another kind."""
        if isinstance(self.dropout, Dropout):
            return self.dropout.threshold / 256 if self.training else 0.0
        return 0.0 if isinstance(self.dropout, nn.Identity) else None

    @property
    def _drops(self) -> bool:
        return self._dropout_p != 0.0

    def _fused_is_faster(self, q: Tensor) -> bool:
        """On a CPU the fused kernel knows no dropout (PyTorch then falls back to a slower definition than this one),
        and at the lengths of sentences its bfloat16 form makes a whole training step a quarter slower."""
        return not self.training and q.is_cpu and q.dtype != torch.bfloat16

    def _own(self, x: Tensor, cache: KeyValueCache | None, room: bool) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = map(self._heads, _together(x, self.query, self.key, self.value), ("q", "k", "v"))
        offset = 0 if cache is None else cache.offset
        if self.rotary is not None:
            q, k = tap(self, "rotated_q", self.rotary(q, offset)), tap(self, "rotated_k", self.rotary(k, offset))
        if cache is not None:
            k, v = cache.append(k, v, room)
        return q, k, v

    def _memory(self, memory: Tensor, cache: KeyValueCache | None) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.keys is not None and cache.values is not None:
            return cache.keys, cache.values
        k, v = map(self._heads, _together(memory, self.key, self.value), ("k", "v"))
        if cache is not None:
            k, v = k.contiguous(), v.contiguous()  # once, and not at every step
            cache.keys, cache.values, cache.length = k, v, k.size(2)
        return k, v

    def _heads(self, x: Tensor, name: str) -> Tensor:
        """``[batch, length, heads·d_head]`` to ``[batch, heads, length, d_head]``."""
        return tap(self, name, x.unflatten(-1, (self.n_heads if name == "q" else self.n_kv_heads, -1)).transpose(1, 2))

    def _merge(self, context: Tensor, x: Tensor) -> Tensor:
        """The heads side by side again, through W_O, in the rows of ``x``."""
        concatenated = tap(self, "concatenated", tap(self, "context", context).transpose(1, 2).flatten(2))
        return tap(self, "result", self.output(concatenated).reshape(x.size(0), x.size(1), -1))


def _together(x: Tensor, *projections: nn.Linear) -> tuple[Tensor, ...]:
    """Several projections of the same ``x`` as one product, which is faster wherever joining the matrices is cheap."""
    if x.size(0) * x.size(1) < x.size(2):
        return tuple(projection(x) for projection in projections)
    weights: list[Tensor] = [projection.weight for projection in projections]
    biases: list[Tensor] = [projection.bias for projection in projections if projection.bias is not None]
    result = linear(x, torch.cat(weights), torch.cat(biases) if biases else None)
    return result.split([projection.out_features for projection in projections], dim=-1)


def _without_gradient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """The definition without dropout, in place where it can be: decoding where nothing is compiled."""
    scores = (q @ k.transpose(-2, -1)).mul_(1 / math.sqrt(q.size(-1)))
    if mask is not None:
        scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None and not (sees := mask.any(-1, keepdim=True)).all():
        weights.masked_fill_(~sees, 0.0)
    return weights @ v


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, dropout: float) -> Tensor:
    """Equation 1 by PyTorch's fused attention, which holds no scores, with the flags that let it choose any backend."""
    causal = mask is not None and mask.only_causal(q.size(2), k.size(2))
    dense = None if mask is None or causal else mask.dense(q.size(2), k.size(2), q.device)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=dense, dropout_p=dropout, is_causal=causal, enable_gqa=q.size(1) != k.size(1)
    )
