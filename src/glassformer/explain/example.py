"""One example of any task: its input and output in words, the words along each axis, and the recorded forward pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import CheckpointError, ConfigError
from glassformer.explain.matrix import Label
from glassformer.explain.trace import Trace
from glassformer.predict.loading import task_at
from glassformer.taps import Edit
from glassformer.tasks import TASKS, resolve_name
from glassformer.text.notebook import facts_as_html, weights_as_html
from glassformer.text.tokenizer import Tokenizer

LONGEST_UNKNOWN = 16
"""Maximum number of characters of an unknown word in a label."""


class Side(NamedTuple):
    """The positions of one input: source, target, text, image or series. Text has a ``tokenizer``, ids and itself."""

    name: str
    tokens: list[str]
    text: str
    tokenizer: Tokenizer | None = None
    ids: Sequence[int] = ()
    input: str = ""
    """Name of the input that the tokens are part of, if it is not ``name``."""
    start: int = 0
    """Position of the first token in that input."""

    @classmethod
    def of(
        cls, name: str, tokenizer: Tokenizer, ids: Sequence[int], text: str, unknown: Sequence[str] | None = None
    ) -> Self:
        """A text with the label of each token; ``unknown`` are its unknown words, those of ``text`` if None."""
        labels = token_labels(tokenizer, ids, tokenizer.unknown(text) if unknown is None else unknown)
        return cls(name, labels, text, tokenizer, ids)

    @property
    def labels(self) -> tuple[Label, ...]:
        """A label for each token."""
        side = self.input or self.name
        return tuple(Label(text, side, self.start + place) for place, text in enumerate(self.tokens))

    @property
    def words(self) -> tuple[Label, ...]:
        """A label for each word, which is named as in the text, where an unknown sign is still itself."""
        split, groups = self.text.split(), dict[int, list[Label]]()
        for word, label in zip(self.vocabulary.word_of(self.ids), self.labels, strict=True):
            if word >= 0:
                groups.setdefault(word, []).append(label)
        if len(split) != len(groups):
            split = ["".join(label.text for label in labels) for labels in groups.values()]
        pairs = zip(split, groups.values(), strict=True)
        return tuple(replace(labels[0], text=text, span=len(labels)) for text, labels in pairs)

    @property
    def vocabulary(self) -> Tokenizer:
        """Tokenizer of a text."""
        assert self.tokenizer is not None
        return self.tokenizer


def token_labels(tokenizer: Tokenizer, ids: Sequence[int], unknown: Sequence[str]) -> list[str]:
    """Labels of the tokens ``ids``; each ``<unk>`` is followed by its text from ``unknown``: ``<unk> 🚀``."""
    labels = tokenizer.tokens(ids)
    places = [place for place, i in enumerate(ids) if i == tokenizer.unknown_id]
    if len(places) == len(unknown):
        for place, text in zip(places, unknown, strict=True):
            labels[place] += f" {text[:LONGEST_UNKNOWN]}"
    return labels


@dataclass(frozen=True, repr=False)
class Example:
    """One input that went through a model once, with every tensor that was recorded.

    A translation has two sides (teacher forcing; section 3.1: the target shifted right). ``source_tokens`` ends with
    the end token. ``target_tokens[i]`` is the decoder's input at position i, the start token first;
    ``predicted_tokens[i]`` is the token that follows it, the end token last. Any other example has one side.
    """

    model: Any
    trace: Trace
    task: str
    """Name of the task in ``tasks.TASKS``."""
    relation: str
    """Relation of the output to the input, in words: ``is translated as``."""
    output: str
    sides: tuple[Side, ...]
    predicted_ids: list[int]
    """Token that the logits of each position are for, where they are logits of tokens."""
    positions: tuple[int, ...] = ()
    """Positions that are predicted: hidden tokens, the first piece of each word, or the last of all."""
    segments: tuple[int, ...] = ()
    """Number of the text that each token belongs to."""
    labels: tuple[str, ...] = ()
    """Classes, tags or variables, in the order of the outputs."""
    values: NDArray[np.float64] | None = None
    """Pixels of an image, ``[row, column, channel]`` from 0 to 1; steps of a series, ``[time, variable]``."""
    forecast: NDArray[np.float64] | None = None
    """Steps that follow a series, ``[time, variable]``."""
    translator: Any = None
    """``Translator`` of a translation."""

    def __repr__(self) -> str:
        if self.translated:
            sides = f"{len(self.source_ids)} source and {len(self.target_ids)} target tokens"
            return f"<Example: {self.source!r} → {self.target!r}, {sides}, {len(self.trace)} tensors>"
        relation = f"{self.input!r} {self.relation} {self.output!r}"
        return f"<Example: {relation}, {len(self.sides[0].tokens)} positions, {len(self.trace)} tensors>"

    def _repr_html_(self) -> str:
        """Input and output; of a translation the last layer's cross-attention, mean over heads, if it was recorded."""
        facts = {side.name: side.text for side in self.sides} | (
            {} if self.translated else {self.relation: self.output}
        )
        facts["model"] = repr(self.translator) if self.translated else type(self.model).__name__
        facts["tensors"] = f"{len(self.trace)}; trace[name], view(example, name), walkthrough(example), report(example)"
        html = facts_as_html("Example", facts)
        names = [name for name in self.trace if name.endswith("cross_attention.weights")]
        if not names:
            return html
        weights = self.trace[names[-1]][0].mean(0).tolist()
        return html + weights_as_html(
            f"{names[-1]}, mean over heads", self.predicted_tokens, self.source_tokens, weights
        )

    @property
    def translated(self) -> bool:
        """True if it has a source and a target."""
        return len(self.sides) == 2

    @property
    def input(self) -> str:
        """Text, or name of the image or series."""
        return self.source

    @property
    def source(self) -> str:
        return self.sides[0].text

    @property
    def target(self) -> str:
        return self.sides[-1].text

    @property
    def source_ids(self) -> list[int]:
        return list(self.sides[0].ids)

    @property
    def target_ids(self) -> list[int]:
        return list(self.sides[-1].ids)

    @property
    def source_tokens(self) -> list[str]:
        return self.sides[0].tokens

    @property
    def target_tokens(self) -> list[str]:
        return self.sides[-1].tokens

    @property
    def predicted_tokens(self) -> list[str]:
        return self._predicted.tokens

    def tokens(self, stack: str) -> list[str]:
        """Tokens that the encoder or the decoder reads."""
        return self.side(stack).tokens

    def side(self, stack: str) -> Side:
        """Side that the encoder or the decoder reads."""
        return self.sides[0 if stack == "encoder" else -1]

    def attention_sides(self, stack: str, kind: str) -> tuple[Side, Side]:
        """Query and key side of an attention; queries of cross-attention are named by the token that each predicts."""
        source, target = self.sides[0], self.sides[-1]
        if not self.translated and source.tokenizer is None:
            source = source._replace(name="position", input=source.name)
        if stack == "encoder" or not self.translated:
            return source, source
        if kind == "cross_attention":
            return self._predicted, source
        target = target._replace(name="target, as read", input=target.name)
        return target, target

    @property
    def _predicted(self) -> Side:
        target = self.sides[-1]
        side = Side.of("target, as predicted", target.vocabulary, self.predicted_ids, target.text)
        return side._replace(input=target.name, start=1)


@dataclass(frozen=True)
class ExampleInput:
    """An example to trace: ``text`` is a text, or the path of an image or a table; ``second`` is a translation, or the
    second text of a pair. ``keep`` is a glob of the tensors to record, ``device`` where the model computes. ``edits``
    change tensors by name, as in ``trace``."""

    text: str
    second: str | None = None
    keep: str = "*"
    device: str = "cpu"
    edits: Mapping[str, Edit] | None = None


def examine_run(run: str | Path, example: ExampleInput) -> Example:
    """Trace the model of ``run`` over the example, as its task does."""
    task = task_at(run)
    if task not in TASKS or not TASKS[task].example:
        known = ", ".join(name for name, record in TASKS.items() if record.example)
        raise CheckpointError(f"{run}: task={task!r} cannot be followed; known: {known}")
    if example.second is not None and not TASKS[task].pairs:
        raise ConfigError(f"{run}: this is a run of {task}, which has no second text; leave --target out")
    traced: Example = resolve_name(TASKS[task].example)(run, example)
    return traced
