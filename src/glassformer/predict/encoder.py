"""An encoder with its tokenizer: texts to framed sequences, those of similar length together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glassformer.data.sequences import Frame, Parts, framed_length, truncated
from glassformer.data.text_classification import encode_parts
from glassformer.errors import CheckpointError, DataError
from glassformer.generate.search import by_length, map_in_threads, runs_in_threads
from glassformer.models.bert import BERT, Pooling
from glassformer.models.registry import summary
from glassformer.predict.loading import LoadedRun
from glassformer.predict.memory import fitting_memory
from glassformer.predict.predictor import Predictor
from glassformer.tasks import tasks_with
from glassformer.text import Tokenizer
from glassformer.text.arguments import list_of_texts_or_pairs
from glassformer.text.errors import warn_of_unknown

BATCH_TOKENS = 4096
"""Maximum tokens of a batch, where all cores compute one batch after the other."""
PARALLEL_BATCH_TOKENS = 1024
"""Maximum tokens of a batch, where each core computes its own: fewer, so that all end at nearly the same time."""
ENOUGH_BATCHES = 4
"""Batches for each core from which on it computes its own. Beside other processes cores divide few unevenly."""

R = TypeVar("R")
Text = str | tuple[str, str]
"""A text, or a text and its pair."""


@dataclass(frozen=True, repr=False)
class Encoder(Predictor):
    """BERT with its vocabulary. Texts of more than ``max_length`` tokens are truncated, as in training.

    ``pooling`` and ``normalize`` are the defaults of ``embed``.
    """

    tasks: ClassVar = tasks_with("embed")
    model: BERT
    tokenizer: Tokenizer
    max_length: int
    pooling: Pooling = field(default="mean", kw_only=True)
    normalize: bool = field(default=False, kw_only=True)

    def __repr__(self) -> str:
        names = getattr(self, "labels", getattr(self, "tags", ()))
        classes = f"{len(names)} {'labels' if hasattr(self, 'labels') else 'tags'}" if names else ""
        vocabulary = f"vocabulary of {self.tokenizer.vocab_size:,}"
        return summary(type(self).__name__, self.model, vocabulary, classes, self.path)

    def embed(
        self, texts: Sequence[Text], pooling: Pooling | None = None, normalize: bool | None = None
    ) -> Float[Tensor, "texts d_model"]:
        """One vector per text: mean or maximum of its token vectors (Reimers & Gurevych 2019), or the ``[CLS]`` vector.

        ``normalize`` scales each vector to length 1. If None, both options are those of the checkpoint.
        """
        pooling = self.pooling if pooling is None else pooling
        if pooling not in get_args(Pooling):
            raise DataError(f"pooling={pooling!r} is not known; choose from {', '.join(get_args(Pooling))}")
        encoded = self._encoded(texts)
        if not encoded:
            return torch.empty(0, self.model.config.d_model)

        def vectors(tokens: Tensor, mask: Tensor, segments: Tensor) -> list[Tensor]:
            return list(self._form.embed(tokens, mask, segments, pooling).cpu())

        found = torch.stack(self._rows(encoded, vectors))
        return F.normalize(found, dim=-1) if (self.normalize if normalize is None else normalize) else found

    def too_long(self, texts: Sequence[Text]) -> list[tuple[int, int]]:
        """(index, tokens) of each text that is truncated."""
        lengths = map(framed_length, encode_parts(self.tokenizer, list_of_texts_or_pairs(texts, "texts")))
        return [(index, length) for index, length in enumerate(lengths) if length > self.max_length]

    @classmethod
    def _parts(cls, run: LoadedRun) -> dict[str, Any]:
        limit, pooling = run.model.config.max_length, run.settings.get("pooling", "mean")
        if pooling not in get_args(Pooling):
            raise CheckpointError(f"{run.path}: config.json has pooling={pooling!r}; restore the original")
        return {
            "model": run.model,
            "tokenizer": run.tokenizer,
            "max_length": min(run.settings.get("max_length", limit), limit),
            "path": run.path,
            "pooling": pooling,
            "normalize": bool(run.settings.get("normalize", False)),
        }

    def _encoded(self, texts: Sequence[Text]) -> list[Parts]:
        """Encode ``texts``; warnings of unknown text point at the caller of the public method."""
        read = list_of_texts_or_pairs(texts, "texts")
        encoded = encode_parts(self.tokenizer, read)
        parts = (
            (number, text, ids)
            for number, pair in enumerate(zip(read, encoded, strict=True), start=1)
            for text, ids in zip(*pair, strict=True)
        )
        warn_of_unknown(self.tokenizer, "text", parts, stacklevel=3)
        return [truncated(one, self.max_length) for one in encoded]

    def _rows(self, sequences: Sequence[Parts], compute: Callable[..., list[R]]) -> list[R]:
        """``compute(tokens, mask, segments)`` of each sequence, in batches of similar length, in their order."""
        results: dict[int, R] = {}
        lengths = [framed_length(parts) for parts in sequences]
        frame, batches = Frame.of(self.tokenizer), list(by_length(lengths, PARALLEL_BATCH_TOKENS))
        enough = len(batches) >= ENOUGH_BATCHES * torch.get_num_threads()
        if not (threads := enough and runs_in_threads(self._form, self.device)):
            batches = list(by_length(lengths, BATCH_TOKENS))

        @torch.inference_mode()
        def rows_of(batch: list[int]) -> list[R]:
            arrays: Any = frame.rows([sequences[index] for index in batch])
            return compute(*(torch.from_numpy(array).to(self.device) for array in arrays))

        with fitting_memory(max(lengths, default=0)):
            for batch, rows in zip(batches, map_in_threads(rows_of, batches, threads), strict=True):
                results |= zip(batch, rows, strict=True)
        return [results[index] for index in range(len(sequences))]
