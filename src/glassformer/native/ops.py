"""Single operations of training in the kernels, and the modules that use them in place of PyTorch's.

The modules have the parameters, names and hooks of those that they replace.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glassformer.layers import feed_forward
from glassformer.layers.attention import MultiHeadAttention
from glassformer.layers.dropout import Dropout
from glassformer.layers.mask import Mask
from glassformer.layers.position import Offset, Rotary
from glassformer.native import abi
from glassformer.native.abi import Attention, MatrixProduct, Operand, Rotation, Sequences
from glassformer.native.library import loaded
from glassformer.taps import tracing

PANEL_WIDTH = 64
"""Widths that are multiples of it fill full panels of every product, on any processor."""

MIN_ROWS = 192
"""Minimum rows of a product; PyTorch computes smaller ones, which would leave cores idle."""


ACTIVATIONS: dict[Callable[[Tensor], Tensor], int] = {
    function: abi.ACTIVATIONS[name] for name, function in feed_forward.ACTIVATIONS.items() if name in abi.ACTIVATIONS
}
"""Numbers of the activations in the kernels."""


def computes_gradient(*tensors: Tensor) -> bool:
    """True if the training kernels can compute: gradients enabled, no trace, supported device and dtype.

    (A model may have been moved or converted since it was accelerated.)
    """
    return torch.is_grad_enabled() and readable(*tensors) and not tracing()


def readable(*tensors: Tensor) -> bool:
    """True if the kernels can read ``tensors``."""
    return all(tensor.is_cpu and tensor.dtype in (torch.float32, torch.bfloat16) for tensor in tensors)


def computable(dtype: torch.dtype) -> bool:
    """True if stacks and the output loss compute in ``dtype``: float32, or bfloat16 if the processor has it."""
    return dtype == torch.float32 or (dtype == torch.bfloat16 and loaded().has_bfloat16)


def single_on_cpu(*tensors: Tensor) -> bool:
    """True if ``tensors`` are float32 on a CPU, as the kernels read weights of embeddings, logits and updates."""
    return all(tensor.is_cpu and tensor.dtype == torch.float32 for tensor in tensors)


def in_rows(weights: Iterable[Tensor | None], dtype: torch.dtype) -> bool:
    """True if ``weights`` are contiguous and of ``dtype`` on a CPU; None is a missing one.

    They may have been converted, moved or parametrized since the model was accelerated.
    """
    return all(w is None or (w.dtype == dtype and w.is_cpu and w.is_contiguous()) for w in weights)


def check_boolean(mask: Tensor) -> None:
    """Raise ``ValueError`` for a mask of another type."""
    if mask.dtype != torch.bool:
        raise ValueError(f"the mask is {mask.dtype}; give booleans, True for what may be seen")


def address(tensor: Tensor | None) -> int | None:
    """Address of the values of ``tensor``, which must outlive it; null for None."""
    return None if tensor is None else tensor.data_ptr()


def random_seed() -> int:
    """One number of PyTorch's global generator."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_())


class NativeLinear(nn.Linear):
    """Linear transformation in float32, its product and those of its gradients in the kernels."""

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        few = x.numel() < MIN_ROWS * max(1, x.size(-1)) or not self.out_features
        alike = x.size(-1) == self.in_features and x.dtype == self.weight.dtype == torch.float32
        if few or not alike or not computes_gradient(x, self.weight):
            return super().forward(x)
        return _Linear.apply(x, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        rows = x.reshape(-1, x.size(-1))
        return product(rows, weight.t(), bias).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        multiply = torch.matmul if torch.is_grad_enabled() else product  # a second derivative needs PyTorch's
        d_rows = d_y.reshape(-1, d_y.size(-1))
        d_x = multiply(d_rows, weight).view(x.shape) if needs_x else None
        d_weight = multiply(d_rows.t(), x.reshape(-1, x.size(-1))) if needs_weight else None
        return d_x, d_weight, d_rows.sum(0) if needs_bias else None


def product(
    a: Float[Tensor, "rows depth"], b: Float[Tensor, "depth columns"], bias: Float[Tensor, " columns"] | None = None
) -> Float[Tensor, "rows columns"]:
    """``a @ b + bias`` in float32; either matrix may be transposed.

    On two Zen 4 cores 170 to 206 GFLOP/s at the sizes of a small model; PyTorch reaches 148 to 192.
    Other types are PyTorch's, and so is the error where the sizes do not fit.
    """
    (rows, depth), (steps, columns) = a.shape, b.shape
    fits = depth == steps and single_on_cpu(a, b) and (bias is None or _fits_columns(bias, b))
    few = min(rows, depth) < MIN_ROWS and rows < 4 * MIN_ROWS
    if few or not fits:
        return a @ b if bias is None else torch.addmm(bias, a, b)
    result, bias = a.new_empty(rows, columns), None if bias is None else bias.contiguous()
    loaded().multiply_matrices(
        MatrixProduct(
            rows,
            columns,
            depth,
            Operand(a.data_ptr(), *a.stride()),
            Operand(b.data_ptr(), b.stride(1), b.stride(0)),
            address(bias),
            result.data_ptr(),
            torch.get_num_threads(),
        )
    )
    return result


def _fits_columns(bias: Tensor, b: Tensor) -> bool:
    return single_on_cpu(bias) and bias.shape == b.shape[1:]


class NativeDropout(Dropout):
    """Dropout with a mask derived from a seed and the index of each element; no mask is stored."""

    def forward(self, x: Tensor) -> Tensor:
        if self.rate == 0.0 or not computes_gradient(x):
            return super().forward(x)
        return _Dropped.apply(x, self.threshold, random_seed())


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int, seed: int) -> Tensor:
        ctx.threshold, ctx.seed = threshold, seed
        x, low = x.contiguous(), x.dtype == torch.bfloat16
        y = torch.empty_like(x)
        loaded().drop_elements(x.data_ptr(), x.numel(), low, seed, threshold, y.data_ptr(), torch.get_num_threads())
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _Dropped.apply(gradient, ctx.threshold, ctx.seed), None, None


class NativeAttention(MultiHeadAttention):
    """Attention in one kernel, forward and backward, without n × n scores."""

    def attend(
        self,
        q: Float[Tensor, "batch heads query d_k"],
        k: Float[Tensor, "batch kv_heads key d_k"],
        v: Float[Tensor, "batch kv_heads key d_v"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch heads query d_v"]:
        threshold = cast(Dropout, self.dropout).active_threshold
        sparse = mask is not None and mask.pattern is not None and threshold == 0  # blockwise attention computes less
        if sparse or not computes_gradient(q, k, v):
            return super().attend(q, k, v, mask)
        dense = None if mask is None else mask.dense(q.size(2), k.size(2), q.device)
        return attention(q, k, v, dense, threshold)


def attention(
    q: Float[Tensor, "batch heads query d_k"],
    k: Float[Tensor, "batch kv_heads key d_k"],
    v: Float[Tensor, "batch kv_heads key d_v"],
    mask: Bool[Tensor, "#batch #heads #query #key"] | None,
    threshold: int = 0,
) -> Float[Tensor, "batch heads query d_v"]:
    """Equation 1 with ``threshold`` / 256 of the weights dropped, in float32 or bfloat16.

    A group of heads may share keys and values. Raises ``ValueError`` if q, k, v and the mask do not fit each other.
    """
    if not (readable(q, k, v) and q.dtype == k.dtype == v.dtype):
        raise ValueError(
            f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype} on {q.device}; give float32 or bfloat16 on a CPU"
        )
    shared = k.size(1) and q.size(1) % k.size(1) == 0
    if k.shape[:3] != v.shape[:3] or len(q) != len(k) or q.size(3) != k.size(3) or not (shared or not q.size(1)):
        raise ValueError(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit each other")
    if mask is not None:
        check_boolean(mask)
    scores = (*q.shape[:3], k.size(2))
    if mask is not None and not _broadcasts(mask.shape, scores):
        raise ValueError(f"the mask {list(mask.shape)} does not fit the scores {list(scores)}")
    result: Tensor = _AttentionFunction.apply(q, k, v, mask, threshold)
    return result


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """True if a tensor of this shape can be expanded."""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(have in (1, want) for have, want in pairs)


class _AttentionFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, threshold: int) -> Tensor:
        ctx.seed, ctx.threshold = random_seed() if threshold else 0, threshold
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        context = _like_heads(q, v.size(-1), filled=k.size(2) > 0)
        log_sums = q.new_empty(q.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, mask, log_sums)
        if k.size(2):
            _attend(ctx, (q, k, v, mask, log_sums), context=context)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_context: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        filled = min(saved[0].size(2), saved[1].size(2)) > 0
        gradients = [_like_heads(x, x.size(-1), filled) for x in saved[:3]]
        d_context = d_context if d_context.stride(-1) == 1 else d_context.contiguous()
        if filled:
            _attend(ctx, saved, **dict(zip(Attention.GRADIENTS, (*gradients, d_context), strict=True)))
        return *gradients, None, None


def _attend(ctx: Any, saved: tuple[Any, ...], **tensors: Tensor) -> None:
    """The forward pass if the context is to be filled, else the backward pass."""
    q, k, v, mask, log_sums = saved
    batch, heads, queries, _ = q.shape
    call = Attention(batch, queries, k.size(2), abi.Heads(heads, k.size(1), k.size(3), v.size(3)))
    for name, x in {"q": q, "k": k, "v": v, **tensors}.items():
        setattr(call, name, Sequences(x.data_ptr(), *x.stride()[:3]))
    if mask is not None:
        visible = mask.expand(*q.shape[:3], k.size(2))
        call.mask = abi.DenseMask(visible.data_ptr(), *visible.stride())
    call.log_sums, call.seed, call.threshold = log_sums.data_ptr(), ctx.seed, ctx.threshold
    call.bfloat16, call.threads = q.dtype == torch.bfloat16, torch.get_num_threads()
    loaded().full_attention(call, "context" not in tensors)


class NativeRotary(Rotary):
    """Rotary positions in one kernel, where all rows begin at the same position."""

    def forward(
        self,
        q: Float[Tensor, "rows heads length d_head"],
        k: Float[Tensor, "rows kv_heads length d_head"],
        offset: Offset,
    ) -> tuple[Float[Tensor, "rows heads length d_head"], Float[Tensor, "rows kv_heads length d_head"]]:
        sizes = {(x.size(-2), x.size(-1)) for x in (q, k)}
        fits = sizes == {(q.size(-2), self.d_head)} and self.d_head % 2 == 0
        if not isinstance(offset, int) or not fits or not computes_gradient(q, k):
            return super().forward(q, k, offset)
        tables = rotary_tables(self.angles(q.size(-2), q.device, offset))
        return _Rotated.apply(q, *tables), _Rotated.apply(k, *tables)


def rotary_tables(
    angles: Float[Tensor, "length pairs"],
) -> tuple[Float[Tensor, "length d_head"], Float[Tensor, "length d_head"]]:
    """The cosine of each pair twice; its sine twice, the first time negative."""
    cosines, sines = angles.cos(), angles.sin()
    pairs = torch.stack([cosines, cosines], -1), torch.stack([-sines, sines], -1)
    return pairs[0].flatten(-2).float(), pairs[1].flatten(-2).float()


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        x = x if x.stride(-1) == 1 else x.contiguous()
        result = _like_heads(x, x.size(-1))
        ends = (Sequences(rows.data_ptr(), *rows.stride()[:3]) for rows in (x, result))
        tables = abi.RotaryTables(cosines.data_ptr(), sines.data_ptr())
        loaded().rotate_pairs(Rotation(*x.shape, *ends, tables, x.dtype == torch.bfloat16, torch.get_num_threads()))
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        cosines, sines = ctx.saved_tensors
        return _Rotated.apply(gradient, cosines, -sines), None, None


def _like_heads(x: Tensor, size: int, filled: bool = True) -> Tensor:
    """``[batch, heads, length, size]`` that lies in memory as ``[batch, length, heads, size]``.

    Zeros if a kernel will not fill it.
    """
    batch, heads, length, _ = x.shape
    make = x.new_empty if filled else x.new_zeros
    return make(batch, length, heads, size).transpose(1, 2)
