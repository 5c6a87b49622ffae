"""Which kernels compute on given tensors, and those of training as functions: None where PyTorch has to do it."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.native.abi import Attention, Operand, Product, ProjectedLoss, Rotation, Sequences
from glassformer.native.library import Kernels, kernels

WHOLE_PANELS = 64
"""Widths that are a multiple of it are whole panels of every product, on any processor."""

_PLAIN = (Tensor, torch.nn.Parameter)

MIN_ROWS = 192
"""Fewer rows leave some cores without work."""


def kernels_for(*tensors: Tensor, low: bool = False) -> Kernels | None:
    """What computes on ``tensors``: nothing unless all are float32 (or bfloat16, if ``low``) on a CPU, and never while
    PyTorch compiles."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return None
    for t in tensors:  # asked several times in every step of a search
        known = t.dtype == torch.float32 or (low and t.dtype == torch.bfloat16)
        if not known or not t.is_cpu or type(t) not in _PLAIN:
            return None
    return kernels()


def product(
    a: Float[Tensor, "rows depth"], b: Float[Tensor, "depth columns"], bias: Float[Tensor, " columns"] | None = None
) -> Float[Tensor, "rows columns"]:
    """``a @ b + bias``, of which either may be transposed.

    In float32 on two Zen 4 cores 170 to 206 GFLOP/s at the sizes of a small model, where PyTorch reaches 148 to 192.
    """
    enough = min(len(a), a.size(1)) >= MIN_ROWS or len(a) >= 4 * MIN_ROWS
    whole = a.size(1) == b.size(0) and (bias is None or bias.shape == b.shape[1:])  # else PyTorch says what is wrong
    made = kernels_for(a, b, *([] if bias is None else [bias])) if enough and whole else None
    if made is None:
        return a @ b if bias is None else torch.addmm(bias, a, b)
    result, bias = a.new_empty(len(a), b.size(1)), None if bias is None else bias.contiguous()
    made.multiply(
        Product(
            len(a),
            b.size(1),
            a.size(1),
            Operand(a.data_ptr(), *a.stride()),
            Operand(b.data_ptr(), b.stride(1), b.stride(0)),
            None if bias is None else bias.data_ptr(),
            result.data_ptr(),
            torch.get_num_threads(),
        )
    )
    return result


def dropped(x: Tensor, seed: int, threshold: int) -> Tensor | None:
    """``x`` with a share of ``threshold`` / 256 zero and the rest scaled to the same mean; which, ``seed`` decides."""
    if (made := kernels_for(x, low=True)) is None:
        return None
    x = x.contiguous()
    y = torch.empty_like(x)
    low = x.dtype == torch.bfloat16
    made.drop(x.data_ptr(), x.numel(), low, seed, threshold, y.data_ptr(), torch.get_num_threads())
    return y


def random_seed() -> int:
    """One number of PyTorch's generator."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_())


def softmax_(
    logits: Float[Tensor, "rows vocab"], target: Int[Tensor, " rows"], taken: float
) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]] | None:
    """``logits`` become their softmax, ``taken`` less at ``target``; −log p of the target, and log Σ e^logit."""
    if not logits.is_contiguous() or (made := kernels_for(logits, low=True)) is None:
        return None
    nll, log_sums = torch.empty(2, len(logits), dtype=torch.float32, device="cpu").unbind()
    low, threads, target = logits.dtype == torch.bfloat16, torch.get_num_threads(), target.long().contiguous()
    where = (target.data_ptr(), taken, nll.data_ptr(), log_sums.data_ptr())
    made.softmax(logits.data_ptr(), *logits.shape, low, *where, threads)
    return nll, log_sums


class LossAndGradients(NamedTuple):
    """Sums over tokens, and their gradients, None where none was wanted: of nll · (1 − ε) + smooth · ε."""

    nll: float
    smooth: float
    d_hidden: Tensor | None
    d_weight: Tensor | None
    d_bias: Tensor | None


def projected_loss(
    hidden: Float[Tensor, "tokens d_model"],
    weight: Float[Tensor, "vocab d_model"],
    bias: Float[Tensor, " vocab"] | None,
    target: Int[Tensor, " tokens"],
    smoothing: float,
    wanted: bool,
) -> LossAndGradients | None:
    """−log p of ``target`` after ``hidden · weightᵀ + bias``, and its mean over the vocabulary."""
    masters = [weight] if bias is None else [weight, bias]
    made = kernels_for(hidden, low=True) and kernels_for(*masters)
    whole = hidden.size(1) % WHOLE_PANELS == 0 and weight.is_contiguous()
    if made is None or not whole or not (hidden.dtype == torch.float32 or made.bfloat16):
        return None
    hidden, target = hidden.contiguous(), target.long().contiguous()
    empty = torch.empty_like if len(hidden) else torch.zeros_like  # without tokens nothing is written
    d_hidden, d_weight = (empty(hidden), empty(weight)) if wanted else (None, None)
    d_bias = empty(bias) if wanted and bias is not None else None
    call = ProjectedLoss(len(hidden), *weight.shape, hidden.data_ptr(), weight.data_ptr())
    call.bias, call.target = None if bias is None else bias.data_ptr(), target.data_ptr()
    call.smoothing, call.bfloat16 = smoothing, hidden.dtype == torch.bfloat16
    for name, gradient in {"d_hidden": d_hidden, "d_weight": d_weight, "d_bias": d_bias}.items():
        setattr(call, name, None if gradient is None else gradient.data_ptr())
    call.threads = torch.get_num_threads()
    made.projected_loss(call)
    return LossAndGradients(call.nll, call.smooth, d_hidden, d_weight, d_bias)


def attention(
    q: Float[Tensor, "batch heads query d_k"],
    k: Float[Tensor, "batch heads key d_k"],
    v: Float[Tensor, "batch heads key d_v"],
    mask: Bool[Tensor, "#batch #heads #query #key"] | None,
    threshold: int = 0,
) -> Float[Tensor, "batch heads query d_v"] | None:
    """Equation 1 with ``threshold`` / 256 of the weights dropped, holding no n × n scores, forwards or backwards."""
    alike = len({x.dtype for x in (q, k, v)}) == 1 and len({x.shape[:2] for x in (q, k, v)}) == 1
    fits = alike and q.size(3) == k.size(3) and k.size(2) == v.size(2) and (mask is None or mask.dtype == torch.bool)
    if not fits or kernels_for(q, k, v, low=True) is None:
        return None
    return _Attention.apply(q, k, v, mask, threshold)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, threshold: int) -> Tensor:
        ctx.seed, ctx.threshold = random_seed() if threshold else 0, threshold
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        context = _like_heads(q, v.size(-1))
        log_sums = q.new_empty(q.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, mask, log_sums)
        _attend(ctx, (q, k, v, mask, log_sums), context=context)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_context: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        gradients = [_like_heads(x, x.size(-1)) for x in saved[:3]]
        d_context = d_context if d_context.stride(-1) == 1 else d_context.contiguous()
        _attend(ctx, saved, d_q=gradients[0], d_k_=gradients[1], d_v_=gradients[2], d_context=d_context)
        return *gradients, None, None


def _attend(ctx: Any, saved: tuple[Any, ...], **tensors: Tensor) -> None:
    """Forwards when the context is to be filled, backwards when gradients are."""
    q, k, v, mask, log_sums = saved
    call = Attention(*q.shape[:3], k.size(2), k.size(3), v.size(3))
    for name, x in {"q": q, "k": k, "v": v, **tensors}.items():
        setattr(call, name, Sequences(x.data_ptr(), *x.stride()[:3]))
    if mask is not None:
        seen = mask.expand(*q.shape[:3], k.size(2))
        call.mask = seen.data_ptr()
        call.mask_batch, call.mask_head, call.mask_query, call.mask_key = seen.stride()
    call.log_sums, call.seed, call.threshold = log_sums.data_ptr(), ctx.seed, ctx.threshold
    call.bfloat16, call.threads = q.dtype == torch.bfloat16, torch.get_num_threads()
    if (made := kernels()) is not None:
        made.attend(call, "context" not in tensors)


def rotated(
    x: Float[Tensor, "batch heads length d_head"], angles: Float[Tensor, "length pairs"]
) -> Float[Tensor, "batch heads length d_head"] | None:
    """Each pair of neighbours in the last axis turned by its angle."""
    if angles.shape != (x.size(2), x.size(3) // 2) or kernels_for(x, low=True) is None:
        return None
    return _Rotated.apply(x, *turning_tables(angles))


def turning_tables(
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
        tables = cosines.data_ptr(), sines.data_ptr()
        if (made := kernels()) is not None:
            made.rotate(Rotation(*x.shape, *ends, *tables, x.dtype == torch.bfloat16, torch.get_num_threads()))
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        cosines, sines = ctx.saved_tensors
        return _Rotated.apply(gradient, cosines, -sines), None, None


def _like_heads(x: Tensor, size: int) -> Tensor:
    """``[batch, heads, length, size]`` that lies in memory as ``[batch, length, heads, size]``."""
    batch, heads, length, _ = x.shape
    return x.new_empty(batch, length, heads, size).transpose(1, 2)
