"""Section 3.2: scaled dot-product attention and multi-head attention.

Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V   (equation 1)
"""

import math
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from glassformer.layers.cache import KeyValueCache
from glassformer.layers.dropout import Dropout
from glassformer.layers.mask import Mask
from glassformer.layers.position import Rotary
from glassformer.layers.sparse import Pattern
from glassformer.taps import note, tap, tracing

_CUDNN = threading.Lock()
"""Held while cuDNN's attention is off, since the switch applies to the whole process."""


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h attentions in parallel, each on its own projections to d_k, d_k and d_v, then W_O.

    Self-attention without ``memory``, encoder–decoder attention with the encoder's output as ``memory``. A ``pattern``
    makes self-attention sparse. ``n_heads`` may be a pair: fewer heads of keys and values, each shared by a group of
    queries (Ainslie et al. 2023, arXiv:2305.13245; a single one: Shazeer 2019, arXiv:1911.02150).
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
        self.query = nn.Linear(d_model, self.n_heads * d_k, bias=bias)
        self.key = nn.Linear(d_model, self.n_kv_heads * d_k, bias=bias)
        self.value = nn.Linear(d_model, self.n_kv_heads * d_v, bias=bias)
        self.output = nn.Linear(self.n_heads * d_v, d_model, bias=bias)
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
        """Queries from ``x``, keys and values from ``memory``, or from ``x`` if it is None.

        With a ``cache``, self-attention appends its new keys and values; attention to a ``memory`` fills it once.
        ``x`` may hold several hypotheses for each sentence of ``memory`` (``rows`` = k · ``batch``): attention takes
        them as further queries of the same sentence, so the memory is never copied.
        """
        if memory is not None:
            k, v = self._project_memory(memory, cache)
            q = self._heads(self.query(x.reshape(k.size(0), -1, x.size(-1))), "q")
            return self._merge(self.attend(q, k, v, mask), x)
        q, k, v = self._heads(self.query(x), "q"), self._heads(self.key(x), "k"), self._heads(self.value(x), "v")
        offset = 0 if cache is None else cache.offset
        if self.rotary is not None:
            q, k = self.rotary(q, k, offset)
            q, k = tap(self, "rotated_q", q), tap(self, "rotated_k", k)
        if cache is not None:
            k, v = cache.append(k, v, with_capacity=self.fused and mask is not None and mask.causal)
        if self.pattern is not None:
            mask = (mask or Mask(offset=offset)).with_pattern(self.pattern)
        return self._merge(self.attend(q, k, v, mask), x)

    def attend(
        self,
        q: Float[Tensor, "batch heads query d_k"],
        k: Float[Tensor, "batch kv_heads key d_k"],
        v: Float[Tensor, "batch kv_heads key d_v"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch heads query d_v"]:
        """Equation 1; zeros for a query without an allowed key. A group of heads may share keys and values."""
        p = self.dropout.rate if isinstance(self.dropout, Dropout) else 0.0
        if self.fused and not (p > 0 and q.is_cpu):  # on a CPU PyTorch's fused attention has no dropout
            return self._attend_fused(q, k, v, mask or Mask(), p)
        k, v = self._repeat(k, v)
        dense = None if mask is None else mask.dense(q.size(2), k.size(2), q.device)
        scores = tap(self, "scores", q @ k.transpose(-2, -1))
        scaled = tap(self, "scaled_scores", scores * (1 / math.sqrt(q.size(-1))))
        if dense is None:
            weights = scaled.softmax(-1)
        else:
            note(self, "mask", lambda: dense.expand_as(scaled))
            note(self, "masked_scores", lambda: scaled.masked_fill(~dense, -torch.inf))
            weights = scaled.masked_fill(~dense, torch.finfo(scaled.dtype).min).softmax(-1).masked_fill(~dense, 0.0)
        return self.dropout(tap(self, "weights", weights)) @ v

    @property
    def fused(self) -> bool:
        """True unless a trace records the scores or dropout is of another class. ``attend`` also checks for a CPU."""
        return isinstance(self.dropout, Dropout) and not tracing()

    def _attend_fused(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, p: float
    ) -> Float[Tensor, "batch heads query d_v"]:
        """Equation 1 without stored scores; sparse patterns run blockwise without dropout, cache and torch.compile."""
        size = q.size(2), k.size(2), q.device
        blockwise = mask.pattern is not None and p == 0 and mask.at_start and not torch.compiler.is_compiling()
        if mask.pattern is not None and blockwise and q.size(2) == k.size(2):
            return mask.pattern.attend(q, *self._repeat(k, v), mask.with_pattern(None).dense(*size))
        causal = mask.only_causal(*size[:2])
        dense = None if causal else mask.dense(*size)
        with nullcontext() if dense is None or q.is_cpu else _without_cudnn():
            return F.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=dense,
                dropout_p=p,
                is_causal=causal,
                enable_gqa=self.n_heads != self.n_kv_heads,
            )

    def _project_memory(self, memory: Tensor, cache: KeyValueCache | None) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.keys is not None and cache.values is not None:
            return cache.keys, cache.values
        k, v = self._heads(self.key(memory), "k"), self._heads(self.value(memory), "v")
        if cache is not None:
            k, v = k.contiguous(), v.contiguous()  # once, not at every step
            cache.keys, cache.values, cache.length = k, v, k.size(2)
        return k, v

    def _repeat(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Each head of keys and values once for every query head of its group."""
        group = self.n_heads // self.n_kv_heads
        return (k, v) if group == 1 else (k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1))

    def _heads(self, x: Tensor, name: str) -> Tensor:
        """``[batch, length, heads·d_head]`` to ``[batch, heads, length, d_head]``."""
        return tap(self, name, x.unflatten(-1, (self.n_heads if name == "q" else self.n_kv_heads, -1)).transpose(1, 2))

    def _merge(self, context: Tensor, x: Tensor) -> Tensor:
        """Concatenate the heads and apply W_O, in the rows of ``x``."""
        concatenated = tap(self, "concatenated", tap(self, "context", context).transpose(1, 2).flatten(2))
        return tap(self, "result", self.output(concatenated).reshape(x.size(0), x.size(1), -1))


def _without_cudnn() -> AbstractContextManager[None]:
    """Within it PyTorch does not choose cuDNN's attention, as it does in bfloat16 on an H100.

    For a query without an allowed key cuDNN's outputs are not zeros, and gradients become NaN (PyTorch 2.11). It also
    prepares each new shape anew, which takes longer than the step.
    """
    if torch.compiler.is_compiling():  # which supports only this switch
        return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return _cudnn_off()


@contextmanager
def _cudnn_off() -> Iterator[None]:
    with _CUDNN:
        before = torch.backends.cuda.cudnn_sdp_enabled()
        torch.backends.cuda.enable_cudnn_sdp(False)
        try:
            yield
        finally:
            torch.backends.cuda.enable_cudnn_sdp(before)


def head_size(d_model: int, n_heads: int) -> int:
    """d_k = d_v = d_model / h (section 3.2.2); a ``ValueError`` lists the numbers of heads that divide d_model."""
    if d_model % n_heads:
        divisors = ", ".join(str(n) for n in range(1, min(d_model, 64) + 1) if d_model % n == 0)
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}; choose n_heads from {divisors}")
    return d_model // n_heads
