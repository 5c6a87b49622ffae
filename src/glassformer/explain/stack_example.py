"""Examples of models of one stack: a text, an image, a series, in one pass."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer.explain.examined import Written
from glassformer.explain.figures import attention
from glassformer.explain.trace import Trace
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True, repr=False)
class StackExample(attention.Pictured):
    """One pass through a model of one stack; ``labels`` name the positions."""

    model: Any
    trace: Trace
    read: str
    relation: str
    said: str
    labels: list[str]

    def __repr__(self) -> str:
        name = f"{type(self).__name__}: {self.read!r} {self.relation} {self.said!r}"
        return f"<{name}, {len(self.labels)} positions, {len(self.trace)} tensors>"

    def tokens(self, stack: str) -> list[str]:
        """The same whatever the stack is called."""
        return self.labels

    def written(self, stack: str, kind: str) -> tuple[Written, Written]:
        """Positions ask positions."""
        side = Written("position", self.labels)
        return side, side

    @property
    def predicted_ids(self) -> list[int]:
        """None: nothing here is told in words."""
        return []


@dataclass(frozen=True, repr=False)
class TextExample(StackExample):
    """A text through GPT, which tells what comes next, or through BERT, which reads it in both directions."""

    task: str
    tokenizer: Tokenizer
    ids: list[int]
    segments: list[int]
    names: tuple[str, ...] = ()
    """Classes or tags, in the order of the logits."""
    asked: tuple[int, ...] = ()
    """The positions that are predicted: hidden tokens, the first piece of each word, or the last of all."""

    def written(self, stack: str, kind: str) -> tuple[Written, Written]:
        """The text asks itself."""
        side = Written("text", self.labels, self.tokenizer, self.ids, self.read)
        return side, side

    @property
    def predicted_ids(self) -> list[int]:
        """GPT: what follows each token, behind the last the likeliest; BERT: each token, the likeliest where hidden."""
        best = {}
        if self.task in ("language", "masked"):
            logits = self.trace["output_projection.logits"][0]
            best = {place: int(logits[place].argmax()) for place in self.asked}
        told = [*self.ids[1:], 0] if self.task == "language" else self.ids
        return [best.get(place, i) for place, i in enumerate(told)]


@dataclass(frozen=True, repr=False)
class ImageExample(StackExample):
    """An image through a Vision Transformer. ``pixels`` are from 0 to 1, ``[row, column, channel]``."""

    pixels: NDArray[np.float64]
    names: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class SeriesExample(StackExample):
    """The last steps of some series and their forecast, ``[time, variable]``, as the model reads them."""

    seen: NDArray[np.float64]
    forecast: NDArray[np.float64]
    columns: tuple[str, ...]
