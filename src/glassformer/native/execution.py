"""Properties of the engine that a search asks for, and the kernels of its steps."""

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
        """Best extensions of each sentence's hypotheses: totals, added, parents, tokens ``[sentences, candidates]``.

        Behind the candidates, whose number is returned too, follow the ``beam_size`` best that do not end. True if any
        of the candidates ends.
        """
        (sentences, live), logits, totals = totals.shape, logits.contiguous(), totals.contiguous()
        normalizers = normalizers.contiguous()
        if len(logits) != sentences * live or normalizers.shape != logits.shape[:1]:
            raise ValueError(f"{len(logits)} rows of logits for {sentences} sentences of {live} hypotheses")
        each = min(2 * beam_size, logits.size(1))
        count = min(2 * beam_size, live * each)
        beam_size = min(beam_size, count)
        reached, added = totals.new_empty(2, sentences, count + beam_size).unbind()
        parents, tokens = torch.empty(2, *reached.shape, dtype=torch.long).unbind()
        call = Extension(sentences, live, logits.size(1), each, count, beam_size, end)
        call.logits, call.normalizers, call.totals = logits.data_ptr(), normalizers.data_ptr(), totals.data_ptr()
        call.reached, call.added, call.parents, call.tokens = (x.data_ptr() for x in (reached, added, parents, tokens))
        self._kernels.extend(call)
        return (reached, added, parents, tokens), count, call.ended > 0


@dataclass(frozen=True)
class Execution:
    """Properties of the engine of a decodable model, its attribute ``execution``; the defaults are PyTorch's."""

    search_kernels: SearchKernels | None = None
    """Kernels for the steps of a search; None: PyTorch."""
    in_threads: bool = False
    """True if batches may be searched in parallel, one core each. A trace and hooks see one batch after the other."""
    max_source_tokens: int | None = None
    """Source tokens beyond which a larger batch is no faster, with a cache; None: no limit."""
    copies_weights: bool = False
    """True if the model holds copies of weights, which writes to the weights do not reach."""

    @staticmethod
    def of(model: object) -> "Execution":
        return getattr(model, "execution", PLAIN)


PLAIN = Execution()
