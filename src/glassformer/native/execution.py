"""Properties of the engine of a model, which a search reads, and the kernels of the steps of a search."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from glassformer.native.abi import Extension
from glassformer.native.library import Kernels


class SearchKernels:
    """Steps of a search over float32 logits on a CPU."""

    def __init__(self, kernels: Kernels):
        self._kernels = kernels

    def log_sum(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, " rows"]:
        """log Σ e^logit of each row."""
        logits = logits.contiguous()
        sums = logits.new_empty(logits.size(0))
        self._kernels.log_sums(logits.data_ptr(), *logits.shape, sums.data_ptr())
        return sums

    def best(
        self, logits: Float[Tensor, "rows vocab"], k: int
    ) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
        """The ``k`` greatest logits of each row, best first, and their indices."""
        logits = logits.contiguous()
        values = logits.new_empty(logits.size(0), min(k, logits.size(1)))
        ids = torch.empty_like(values, dtype=torch.long)
        self._kernels.best_of(logits.data_ptr(), *logits.shape, values.size(1), values.data_ptr(), ids.data_ptr())
        return values, ids

    def extend(
        self,
        logits: Float[Tensor, "rows vocab"],
        normalizers: Float[Tensor, " rows"],
        totals: Float[Tensor, "sentences live"],
        end: int,
        beam_size: int,
    ) -> tuple[tuple[Tensor, ...], int, bool]:
        """Best extensions of each sentence's hypotheses: totals, log_probs, parents, tokens.

        Each is ``[sentences, candidates + beam_size]``: the candidates, then the ``beam_size`` best that do not end.
        Also returns the number of candidates, and True if one of them ends.
        """
        (sentences, live), logits, totals = totals.shape, logits.contiguous(), totals.contiguous()
        normalizers = normalizers.contiguous()
        if len(logits) != sentences * live or normalizers.shape != logits.shape[:1]:
            raise ValueError(f"{len(logits)} rows of logits for {sentences} sentences of {live} hypotheses")
        per_hypothesis = min(2 * beam_size, logits.size(1))
        count = min(2 * beam_size, live * per_hypothesis)
        beam_size = min(beam_size, count)
        new_totals, log_probs = totals.new_empty(2, sentences, count + beam_size).unbind()
        parents, tokens = torch.empty(2, *new_totals.shape, dtype=torch.long).unbind()
        call = Extension(sentences, live, logits.size(1), per_hypothesis, count, beam_size, end)
        call.logits, call.normalizers, call.totals = logits.data_ptr(), normalizers.data_ptr(), totals.data_ptr()
        call.new_totals, call.log_probs, call.parents, call.tokens = (
            x.data_ptr() for x in (new_totals, log_probs, parents, tokens)
        )
        self._kernels.extend_hypotheses(call)
        return (new_totals, log_probs, parents, tokens), count, call.n_ended > 0


@dataclass(frozen=True)
class Execution:
    """Properties of the engine of a decodable model, its attribute ``execution``; the defaults are PyTorch's."""

    search_kernels: SearchKernels | None = None
    """Kernels for the steps of a search; None: PyTorch."""
    in_threads: bool = False
    """True if batches may be searched in parallel, one core each. Traces and hooks run one batch after the other."""
    max_source_tokens: int | None = None
    """Source tokens beyond which a larger batch is no faster, with a cache; None: no limit."""
    copies_weights: bool = False
    """True if the model holds copies of weights, which writes to the weights do not reach."""

    @staticmethod
    def of(model: object) -> "Execution":
        return getattr(model, "execution", PLAIN)


PLAIN = Execution()
