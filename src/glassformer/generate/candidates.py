"""From logits to what may come next: log-probabilities and the best entries, in few passes over the vocabulary."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from glassformer.config import GlassformerError
from glassformer.native.abi import Extension
from glassformer.native.ops import kernels_for
from glassformer.taps import note, tracing

GROUP = 32
"""Entries of the vocabulary that ``best`` looks at together; a power of two."""

SUMMED, ROWS_AT_ONCE = 64, 32
"""Exponentials that ``log_sum`` adds up first, and rows it has them of at a time: half a megabyte for 8,000 entries."""


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


def log_sum(logits: Float[Tensor, "rows vocab"], compiled: bool = False) -> Float[Tensor, " rows"]:
    """What a logit loses to become a log-probability; in float32 at least.

    In bfloat16 exponentials are taken of some rows at a time, so that they never leave the cache, and groups of them
    are summed before their sums are; the result is off by 0.003 at most.
    """
    if compiled and logits.is_contiguous() and (made := kernels_for(logits)) is not None:
        sums = logits.new_empty(logits.size(0))
        made.log_sums(logits.data_ptr(), *logits.shape, sums.data_ptr())
        return sums
    if logits.dtype != torch.bfloat16:
        return logits.logsumexp(-1)
    if logits.size(1) % SUMMED or not logits.is_cpu:  # a GPU would be waited for, and has no such cache
        return logits.float().logsumexp(-1)
    sums = logits.new_empty(logits.size(0), dtype=torch.float32)
    terms = torch.empty_like(logits[:ROWS_AT_ONCE])
    for start in range(0, logits.size(0), ROWS_AT_ONCE):
        some = logits[start : start + ROWS_AT_ONCE]
        grouped = torch.exp(some, out=terms[: len(some)]).unflatten(1, (-1, SUMMED))
        torch.sum(grouped.sum(-1).float(), -1, out=sums[start : start + ROWS_AT_ONCE])
    result = sums.log_()
    within = result.isfinite()  # row by row: what a row becomes must not depend on the others
    return result if within.all() else torch.where(within, result, logits.float().logsumexp(-1))


def show(model: object, tokens: Tensor, scores: Tensor, parents: Tensor | None = None) -> None:
    """To a trace of ``model``, as ``candidate_tokens`` … of each step: what might come next, best first."""
    if isinstance(model, nn.Module):
        note(model, "candidate_tokens", lambda: tokens)
        note(model, "candidate_scores", lambda: scores)
        if parents is not None:
            note(model, "candidate_parents", lambda: parents)


def own(logits: Tensor) -> Tensor:
    """``logits`` that filters may overwrite: a copy when a trace has recorded them."""
    return logits.clone() if tracing() else logits


def best(
    logits: Float[Tensor, "rows vocab"], k: int, compiled: bool = False
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """The ``k`` greatest of each row and where they are.

    Entry i belongs to group i mod ``groups``, and only the groups with the k greatest maxima are looked at: on a CPU a
    few passes of vector instructions instead of a partial sort.
    """
    if compiled and logits.is_contiguous() and (made := kernels_for(logits)) is not None:
        values = logits.new_empty(logits.size(0), min(k, logits.size(1)))
        ids = torch.empty_like(values, dtype=torch.long)
        made.best_of(logits.data_ptr(), *logits.shape, values.size(1), values.data_ptr(), ids.data_ptr())
        return values, ids
    groups = logits.size(1) // GROUP
    if groups <= k:
        return logits.topk(min(k, logits.size(1)), dim=-1)
    maxima = logits[:, : groups * GROUP]
    while maxima.size(1) > groups:
        maxima = torch.maximum(*maxima.chunk(2, dim=1))
    chosen = maxima.topk(k, dim=-1).indices
    members = (chosen[:, :, None] + torch.arange(0, groups * GROUP, groups, device=logits.device)).flatten(1)
    tail = torch.arange(groups * GROUP, logits.size(1), device=logits.device).expand(len(logits), -1)
    candidates = torch.cat([members, tail], dim=1)
    values, place = logits.gather(1, candidates).topk(k, dim=-1)
    return values, candidates.gather(1, place)


class Extensions(NamedTuple):
    """Continuations of each sentence's hypotheses, best first, each ``[sentences, candidates]``."""

    totals: Tensor
    added: Tensor
    """By how much the last token changed the total."""
    parents: Tensor
    """Which of the sentence's hypotheses is continued."""
    tokens: Tensor


class Step(NamedTuple):
    """Of a beam search."""

    candidates: Extensions
    going: Extensions
    """Those of the candidates that do not end; where they are too few, others with a total of −∞."""
    some_end: bool


def extensions(
    allowed: Float[Tensor, "rows vocab"],
    normaliser: Float[Tensor, " rows"],
    totals: Float[Tensor, "sentences live"],
    end: int,
    beam_size: int,
    compiled: bool = False,
) -> Step:
    """The best ``2 · beam_size`` extensions of each sentence, whose hypotheses have reached ``totals``.

    At most ``beam_size`` of them can end, so as many go on. A token's log-probability is its logit less the
    ``normaliser`` of its row, and never above 0.
    """
    sentences, live = totals.shape
    each = min(2 * beam_size, allowed.size(1))
    count = min(2 * beam_size, live * each)
    beam_size = min(beam_size, count)
    made = kernels_for(allowed, normaliser, totals) if compiled and allowed.is_contiguous() else None
    if made is not None:
        given = allowed, normaliser, totals.contiguous()
        found = totals.new_empty(2, sentences, count + beam_size)
        places = torch.empty_like(found, dtype=torch.long)
        both = Extensions(*found.unbind(), *places.unbind())
        call = Extension(sentences, live, allowed.size(1), each, count, beam_size, end)
        call.logits, call.normalisers, call.totals = (x.data_ptr() for x in given)
        call.reached, call.added, call.parents, call.tokens = (x.data_ptr() for x in both)
        made.extend(call)
        candidates, going = (Extensions(*(x[:, some] for x in both)) for some in (slice(count), slice(count, None)))
        return Step(candidates, going, call.ended > 0)
    values, ids = best(allowed, each, compiled)
    added = (values - normaliser[:, None]).clamp_(max=0).view(sentences, -1)
    reached, index = (totals.repeat_interleave(each, 1) + added).topk(count, dim=-1)
    tokens = ids.view(sentences, -1).gather(1, index)
    candidates = Extensions(reached, added.gather(1, index), index // each, tokens)
    ends = tokens == end
    onward, order = reached.masked_fill(ends, -torch.inf).topk(beam_size, dim=-1)
    going = Extensions(onward, *(each.gather(1, order) for each in candidates[1:]))
    return Step(candidates, going, bool((ends & (reached > -torch.inf)).any()))


def log_softmax(logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
    """In float32 at least, so that bfloat16 logits give usable scores."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
