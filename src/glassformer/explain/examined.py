"""What was read, what was predicted, the recording, and the words of each axis: what every picture starts from."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from glassformer.explain.trace import Trace
from glassformer.text.tokenizer import Tokenizer

LONGEST_UNKNOWN = 16
"""Maximum number of characters of an unknown word in a label."""


class Written(NamedTuple):
    """What stands along an axis of attention. Text has a ``tokenizer``, its ids, and itself as it was written."""

    name: str
    tokens: list[str]
    tokenizer: Tokenizer | None = None
    ids: Sequence[int] = ()
    text: str = ""


def token_labels(tokenizer: Tokenizer, ids: Sequence[int], unknown: Sequence[str]) -> list[str]:
    """Labels of the tokens ``ids``; each ``<unk>`` is followed by its text from ``unknown``: ``<unk> 🚀``."""
    labels = tokenizer.tokens(ids)
    places = [place for place, i in enumerate(ids) if i == tokenizer.unknown_id]
    if len(places) == len(unknown):
        for place, text in zip(places, unknown, strict=True):
            labels[place] += f" {text[:LONGEST_UNKNOWN]}"
    return labels


class Examined(Protocol):
    """An example of any kind of model, as steps, figures and the report read it."""

    @property
    def trace(self) -> Trace:
        """Of one forward pass."""

    @property
    def model(self) -> Any:
        """The one that was traced."""

    @property
    def read(self) -> str:
        """What the model was given, in words."""

    @property
    def relation(self) -> str:
        """``is translated as``: how what was predicted follows from what was read."""

    @property
    def said(self) -> str:
        """What the model makes of it, in words."""

    @property
    def predicted_ids(self) -> list[int]:
        """What the logits of each position are asked about, where they are of words."""

    def tokens(self, stack: str) -> list[str]:
        """The text at each position of the encoder or of the decoder."""

    def written(self, stack: str, kind: str) -> tuple[Written, Written]:
        """Query and key sides of the attention of that kind."""
