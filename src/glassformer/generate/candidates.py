"""Candidates of a search step: log-probabilities and the best entries of the logits."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.errors import GlassformerError
from glassformer.native.execution import Execution, SearchKernels
from glassformer.native.ops import single_on_cpu
from glassformer.taps import note

GROUP = 32
"""Entries of the vocabulary that ``best`` compares together; a power of two."""


class LogitsError(GlassformerError):
    """Logits that allow no token. ``text`` counts from 0, ``step`` from 1."""

    def __init__(self, text: int, step: int, finite: bool) -> None:
        self.text, self.step, self.finite = text, step, finite
        self.fault = f"has logits that are not finite at step {step}: {OVERFLOW}"
        if finite:
            self.fault = f"has no allowed token at step {step}; forbid fewer tokens in logit_bias"
        super().__init__(f"text {text + 1} {self.fault}")


OVERFLOW = (
    "the weights or activations of the model are NaN or overflow; "
    "use another checkpoint, or set precision=float32 if it is lower"
)


@contextmanager
def counting_texts(numbers: Sequence[int]) -> Iterator[None]:
    """Re-raise a ``LogitsError`` of row r with the text number ``numbers[r]``."""
    try:
        yield
    except LogitsError as error:
        raise LogitsError(numbers[error.text], error.step, error.finite) from None


class Extensions(NamedTuple):
    """Continuations of each sentence's hypotheses, best first, each ``[sentences, candidates]``."""

    totals: Tensor
    log_probs: Tensor
    """Log-probability of the last token."""
    parents: Tensor
    """Index of the continued hypothesis among those of the sentence."""
    tokens: Tensor


class BeamStep(NamedTuple):
    """Result of one step of a beam search."""

    candidates: Extensions
    continuing: Extensions
    """Candidates that do not end; filled up with others of total −∞."""
    some_end: bool


class Search(Protocol):
    """The steps of a search over logits."""

    def log_sum(self, logits: Tensor) -> Tensor: ...

    def best(self, logits: Tensor, k: int) -> tuple[Tensor, Tensor]: ...

    def extensions(self, allowed: Tensor, normalizer: Tensor, totals: Tensor, end: int, beam_size: int) -> BeamStep: ...


class TorchSearch:
    """The steps of a search in PyTorch."""

    def log_sum(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, " rows"]:
        """log Σ e^logit of each row, in float32 or wider; a logit minus it is a log-probability."""
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).logsumexp(-1)

    def best(
        self, logits: Float[Tensor, "rows vocab"], k: int
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """The ``k`` greatest logits of each row, best first, and their indices.

        Entry i belongs to group i mod ``groups``, and only the groups with the k greatest maxima are searched: on a CPU
        a few passes of vector instructions instead of a partial sort.
        """
        groups = logits.size(1) // GROUP
        if groups <= k:
            return logits.topk(min(k, logits.size(1)), dim=-1)
        maxima = logits[:, : groups * GROUP]
        while maxima.size(1) > groups:
            maxima = torch.maximum(*maxima.chunk(2, dim=1))
        group_indices = maxima.topk(k, dim=-1).indices
        members = (group_indices[:, :, None] + torch.arange(0, groups * GROUP, groups, device=logits.device)).flatten(1)
        tail = torch.arange(groups * GROUP, logits.size(1), device=logits.device).expand(len(logits), -1)
        candidates = torch.cat([members, tail], dim=1)
        values, positions = logits.gather(1, candidates).topk(k, dim=-1)
        return values, candidates.gather(1, positions)

    def extensions(
        self,
        allowed: Float[Tensor, "rows vocab"],
        normalizer: Float[Tensor, " rows"],
        totals: Float[Tensor, "sentences live"],
        end: int,
        beam_size: int,
    ) -> BeamStep:
        """The best ``2 · beam_size`` extensions of each sentence; its hypotheses have the log-probabilities ``totals``.

        At most ``beam_size`` of them can end, so as many continue. A token's log-probability is its logit minus the
        ``normalizer`` of its row, clamped to at most 0.
        """
        sentences, live = totals.shape
        per_hypothesis = min(2 * beam_size, allowed.size(1))
        count = min(2 * beam_size, live * per_hypothesis)
        beam_size = min(beam_size, count)
        values, ids = self.best(allowed, per_hypothesis)
        log_probs = (values - normalizer[:, None]).clamp_(max=0).view(sentences, -1)
        new_totals, index = (totals.repeat_interleave(per_hypothesis, 1) + log_probs).topk(count, dim=-1)
        tokens = ids.view(sentences, -1).gather(1, index)
        candidates = Extensions(new_totals, log_probs.gather(1, index), index // per_hypothesis, tokens)
        ends = tokens == end
        onward, order = new_totals.masked_fill(ends, -torch.inf).topk(beam_size, dim=-1)
        continuing = Extensions(onward, *(each.gather(1, order) for each in candidates[1:]))
        return BeamStep(candidates, continuing, bool((ends & (new_totals > -torch.inf)).any()))


class NativeSearch(TorchSearch):
    """The steps of a search in the kernels, for logits in float32 on a CPU; in PyTorch for others."""

    def __init__(self, kernels: SearchKernels):
        self._kernels = kernels

    def log_sum(self, logits: Tensor) -> Tensor:
        return self._kernels.log_sum(logits) if single_on_cpu(logits) else super().log_sum(logits)

    def best(self, logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return self._kernels.best(logits, k) if single_on_cpu(logits) else super().best(logits, k)

    def extensions(self, allowed: Tensor, normalizer: Tensor, totals: Tensor, end: int, beam_size: int) -> BeamStep:
        if not single_on_cpu(allowed, normalizer, totals):
            return super().extensions(allowed, normalizer, totals, end, beam_size)
        extensions, count, some_end = self._kernels.extend(allowed, normalizer, totals, end, beam_size)
        candidates, continuing = (
            Extensions(*(x[:, part] for x in extensions)) for part in (slice(count), slice(count, None))
        )
        return BeamStep(candidates, continuing, some_end)


def search_of(model: object) -> Search:
    """The search that belongs to the engine of ``model``."""
    kernels = Execution.of(model).search_kernels
    return TorchSearch() if kernels is None else NativeSearch(kernels)


def record_candidates(
    model: object,
    tokens: Callable[[], Tensor],
    scores: Callable[[], Tensor],
    parents: Callable[[], Tensor] | None = None,
) -> None:
    """Record the best candidates of a step in a trace of ``model``, as ``candidate_tokens`` …, best first."""
    if isinstance(model, nn.Module):
        note(model, "candidate_tokens", tokens)
        note(model, "candidate_scores", scores)
        if parents is not None:
            note(model, "candidate_parents", parents)


def log_softmax(logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
    """Log-softmax in float32 or wider, so that bfloat16 logits give usable scores."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
