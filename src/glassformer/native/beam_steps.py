"""Arguments and results of several steps of a beam search in one call of the kernels."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.native import abi


class Beams(NamedTuple):
    """Hypotheses of each sentence, as many as its beam is wide."""

    tokens: Int[Tensor, "sentences beam length"]
    log_probs: Float[Tensor, "sentences beam length"]
    """Log-probability of each token."""
    total: Float[Tensor, "sentences beam"]


class BeamRules(NamedTuple):
    """Tokens of a search."""

    end: int
    forbidden: Int[Tensor, " tokens"]
    """Tokens that no hypothesis contains."""


class BeamResult(NamedTuple):
    """Hypotheses after the last step, and what a search decides by."""

    beams: Beams
    before: Beams
    """Hypotheses before the last step, which its candidates extend; their totals are those after it."""
    candidates: tuple[Tensor, Tensor, Tensor, Tensor]
    """Best extensions in the last step: totals, log-probabilities of the last token, parents and tokens."""
    some_end: bool
    """True if one of the candidates ends."""
    best: list[float]
    """Greatest total of each sentence."""
    normalizers: list[float]
    """Sum of the normalizers of each sentence in the last step; finite if the logits were."""


def beam_steps(
    beams: Beams, rules: BeamRules, logits: Float[Tensor, "rows vocab"], most: int
) -> tuple[abi.BeamSteps, Callable[[abi.BeamSteps], BeamResult]]:
    """The call for ``most`` steps, and a function that reads its results.

    Raises ``ValueError`` unless ``log_probs`` has the shape of ``tokens``.
    """
    if beams.log_probs.shape != beams.tokens.shape:
        raise ValueError(
            f"tokens {list(beams.tokens.shape)} and log_probs {list(beams.log_probs.shape)} differ in shape"
        )
    sentences, beam, length = beams.tokens.shape
    vocabulary, capacity = logits.size(1), length + most
    per_hypothesis = min(2 * beam, vocabulary)
    count = min(2 * beam, beam * per_hypothesis)
    tokens = torch.empty(2, sentences, beam, capacity, dtype=torch.long)
    log_probs = torch.empty(tokens.shape, dtype=torch.float32)
    tokens[0, ..., :length], log_probs[0, ..., :length] = beams.tokens, beams.log_probs
    extensions = torch.empty(2, sentences, count + beam, dtype=torch.float32)
    indices = torch.empty(extensions.shape, dtype=torch.long)
    total, small = beams.total.clone(), torch.empty(sentences * (beam + 2), dtype=torch.float32)
    call = abi.BeamSteps(most=most, length=length, capacity=capacity)
    call.extension = abi.Extension(sentences, beam, vocabulary, per_hypothesis, count, beam, rules.end)
    call.extension.new_totals, call.extension.log_probs = (one.data_ptr() for one in extensions)
    call.extension.parents, call.extension.tokens = (one.data_ptr() for one in indices)
    call.tokens, call.other_tokens = (one.data_ptr() for one in tokens)
    call.token_log_probs, call.other_log_probs = (one.data_ptr() for one in log_probs)
    call.forbidden, call.n_forbidden = rules.forbidden.data_ptr(), len(rules.forbidden)
    call.logits, call.totals = logits.data_ptr(), total.data_ptr()
    numbers = small.split([sentences * beam, sentences, sentences])
    call.normalizers, call.best, call.sums = (each.data_ptr() for each in numbers)

    def result(call: abi.BeamSteps) -> BeamResult:
        newest, end = call.done % 2, length + call.done
        after = Beams(tokens[newest, ..., :end], log_probs[newest, ..., :end], total)
        before = Beams(tokens[1 - newest, ..., : end - 1], log_probs[1 - newest, ..., : end - 1], total)
        candidates = (*extensions[..., :count], *indices[..., :count])
        return BeamResult(
            after, before, candidates, call.extension.n_ended > 0, numbers[1].tolist(), numbers[2].tolist()
        )

    return call, result
