"""Label-smoothed cross-entropy (section 5.4; Szegedy et al. 2016) together with the output projection.

With ε of the probability spread evenly over the V entries of the vocabulary,

    loss = (1 − ε) · (−log p_target) + ε · mean_v(−log p_v)

whose gradient with respect to the logits is known in closed form: p − (1 − ε) · onehot(target) − ε/V.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from glassformer.layers.embedding import OutputProjection
from glassformer.native.embedding import NativeOutputProjection
from glassformer.taps import has_hooks

ROWS_AT_ONCE = 512
"""Rows of logits held at a time on a CPU: 512 × 8,000 in float32 are 16 MB, half of a server's last-level cache."""

LOGITS_AT_ONCE = 1 << 26
"""Logits held at a time on a GPU, 256 MB in float32, so that a product takes longer than its launch."""

ROWS_A_SHAPE = 64
"""The last rows are filled up to a multiple, since on a CPU a product of a new shape costs half a millisecond more."""


class Loss(NamedTuple):
    """Sums over tokens, in nats: ``loss`` is minimized, ``nll`` is the plain negative log-likelihood.

    ``guidance`` is the weighted loss of a guided head, which is minimized too (``train.guided_alignment``).
    """

    loss: Tensor
    nll: Tensor | None
    guidance: Tensor | None = None

    def scaled(self, factor: float) -> "Loss":
        nll, guidance = (None if value is None else factor * value for value in (self.nll, self.guidance))
        return Loss(factor * self.loss, nll, guidance)


def indices_of(mask: Bool[Tensor, "batch length"], count: int) -> Int[Tensor, " count"]:
    """Indices of the ``count`` True entries in the flat mask: a known number needs no synchronization with a GPU."""
    return mask.flatten().nonzero_static(size=count).squeeze(1)


def projection_loss(
    projection: OutputProjection,
    hidden: Float[Tensor, "tokens d_model"],
    target: Int[Tensor, " tokens"],
    smoothing: float,
) -> Loss:
    """The loss of ``projection(hidden)`` against ``target``, in one kernel where the projection has one."""
    if isinstance(projection, NativeOutputProjection) and projection.computes(hidden, target):
        return Loss(*projection.cross_entropy(hidden, target, smoothing))
    return projected_cross_entropy(hidden, projection.weight, projection.bias, target, smoothing)


def class_loss(
    projection: OutputProjection,
    hidden: Float[Tensor, "examples d_model"],
    target: Int[Tensor, " examples"] | Float[Tensor, "examples classes"],
    smoothing: float,
) -> Loss:
    """The same for few classes, of which ``target`` may give probabilities.

    Without a kernel the projection computes all logits, which take little memory.
    """
    by_kernel = isinstance(projection, NativeOutputProjection) and not has_hooks(projection)
    if not by_kernel or target.is_floating_point():
        return cross_entropy(projection(hidden), target, smoothing)
    try:
        return projection_loss(projection, hidden, target, smoothing)
    except IndexError:
        raise IndexError(f"a label is outside the {len(projection.weight)} classes of the model") from None


def projected_cross_entropy(
    hidden: Float[Tensor, "tokens d_model"],
    weight: Float[Tensor, "vocab d_model"],
    bias: Float[Tensor, " vocab"] | None,
    target: Int[Tensor, " tokens"],
    smoothing: float,
) -> Loss:
    """The loss of ``hidden · weightᵀ + bias`` against ``target``, without holding all logits.

    The gradient is computed with the loss, some rows at a time. The products have the type of ``hidden``; the sums and
    the gradient of ``weight`` have that of ``weight``. A target outside the vocabulary raises ``IndexError`` (on a GPU
    only one beyond its end: a check would need a synchronization).
    """
    if target.device.type == "cpu" and (target < 0).any():
        raise IndexError(f"target {int(target.min())} is negative; use token ids from 0 to {weight.size(0) - 1}")
    return Loss(*_Projected.apply(hidden, weight, bias, target, smoothing))


def cross_entropy(
    logits: Float[Tensor, "examples classes"],
    target: Int[Tensor, " examples"] | Float[Tensor, "examples classes"],
    smoothing: float,
) -> Loss:
    """Summed cross-entropy over few classes; ``target`` may be a probability for each class."""
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    nll = F.cross_entropy(logits, target, reduction="sum")
    if not smoothing:
        return Loss(nll, nll.detach())
    return Loss(F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing), nll.detach())


class _Projected(torch.autograd.Function):
    """Loss and gradients in blocks of rows; terms equal for all entries stay out of the V-wide passes.

    mean_v logit_v = hidden · mean_v weight_v, and the −ε/V of the gradient reaches ``hidden`` as −ε · mean_v weight_v
    and each row of ``weight`` as −ε/V · Σ hidden. The logarithm of the softmax's denominator is read off the likeliest
    entry, whose p is never too small for its type: logit − log p. (In bfloat16 that rounds the reported loss of a token
    by up to 0.004 nats, in either direction; the gradient is rounded to that type anyway.)
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        needed = any(ctx.needs_input_grad)
        dtype, high_hidden = hidden.dtype, hidden.to(weight.dtype)
        low_weight = weight.to(dtype)
        low_bias = None if bias is None else bias.to(dtype)
        mean_weight = weight.mean(0)
        mean_logits = high_hidden @ mean_weight if bias is None else high_hidden @ mean_weight + bias.mean()
        nll = torch.zeros((), dtype=torch.promote_types(weight.dtype, torch.float32), device=hidden.device)
        log_sums = torch.zeros_like(nll)
        d_hidden = torch.empty_like(hidden) if needed else None
        d_weight = torch.zeros_like(weight) if needed else None
        d_bias = torch.zeros_like(bias) if needed and bias is not None else None
        at_once = ROWS_AT_ONCE if hidden.is_cpu else max(ROWS_AT_ONCE, LOGITS_AT_ONCE // weight.size(0))
        for start in range(0, hidden.size(0), at_once):
            rows = slice(start, start + at_once)
            some_target, some_hidden = target[rows], _round_up(hidden[rows])
            n_rows = len(some_target)
            entries = torch.arange(n_rows, device=hidden.device), some_target
            logits = F.linear(some_hidden, low_weight, low_bias)
            p, some_nll, some_log_sums = _softmax(logits, entries, smoothing)
            nll += some_nll.to(nll.dtype).sum()
            log_sums += some_log_sums.to(nll.dtype).sum()
            if d_hidden is None or d_weight is None:
                continue
            if d_bias is not None:
                d_bias += p.sum(0)
            d_hidden[rows] = (p @ low_weight)[:n_rows]
            d_weight += p.t() @ some_hidden
        if d_hidden is not None and d_weight is not None:
            d_hidden -= smoothing * mean_weight
            d_weight -= (smoothing / weight.size(0)) * high_hidden.sum(0)
        if d_bias is not None:
            d_bias -= smoothing * hidden.size(0) / weight.size(0)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(nll)
        smooth = log_sums - mean_logits.sum()
        return (1 - smoothing) * nll + smoothing * smooth, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, d_nll: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        bias = None if d_bias is None else d_bias * d_loss
        return d_hidden * d_loss, d_weight * d_loss, bias, None, None


def _softmax(logits: Tensor, entries: tuple[Tensor, Tensor], smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax minus (1 − ε) at ``entries``, 0 in padded rows; then −log p and log Σ e^logit of each entry."""
    n_rows = len(entries[0])
    wide = torch.promote_types(logits.dtype, torch.float32)
    p = logits.softmax(-1)
    log_sums = (logits.amax(-1).to(wide) - p.amax(-1).to(wide).log())[:n_rows]
    p[n_rows:] = 0
    log_p = logits[entries].to(wide) - log_sums
    p[entries] -= 1 - smoothing
    return p, -log_p, log_sums


def _round_up(rows: Tensor) -> Tensor:
    """Zero rows appended up to a multiple of ``ROWS_A_SHAPE``."""
    missing = -len(rows) % ROWS_A_SHAPE
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows
