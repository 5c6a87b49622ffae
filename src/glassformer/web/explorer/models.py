"""A loaded checkpoint, and the example that it makes of an input: one class for each kind of input."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from glassformer.errors import DataError
from glassformer.explain.analysis.patching import continuation
from glassformer.explain.example import Example
from glassformer.explain.examples.text import (
    examine,
    examine_class,
    examine_continuation,
    examine_masked,
    examine_tags,
)
from glassformer.predict.filler import encode_with_masks
from glassformer.predict.loading import LoadedRun, load_run, task_at
from glassformer.predict.translator import Translator
from glassformer.taps import Edit, record
from glassformer.web.explorer.arrays import ExploredImages, ExploredSeries, NumberField
from glassformer.web.explorer.selection import Selection

BEAM_SIZE = 4
"""Hypotheses of a beam search where the run's own setting is greedy."""
CONTINUED = 12
"""Tokens that a language model adds to a text in the lab."""
SEED = 1
"""Random seed of a sampled translation, so that an address always shows the same one."""


class ExploredModel(Protocol):
    """A loaded checkpoint of one kind of input. ``choose`` gives a selection an input that there is."""

    translates: bool

    @property
    def model(self) -> Any: ...
    @property
    def field(self) -> NumberField | None:
        """Field of numbered inputs; None if the input is a text."""

    def choose(self, selection: Selection, notes: list[str]) -> Selection: ...
    def output(self, selection: Selection) -> str: ...
    def lengths(self, selection: Selection) -> list[tuple[int, int]]: ...
    def example(
        self, selection: Selection, output: str, edits: Mapping[str, Edit] | None, keep: str = "*"
    ) -> Example: ...
    def knows(self, text: str) -> bool: ...


class Texts:
    """A model of texts: a selection has the text itself as its source."""

    field = None

    def choose(self, selection: Selection, notes: list[str]) -> Selection:
        return selection


@dataclass(frozen=True)
class ExploredTranslator(Texts):
    """A translator; ``output`` is the target text."""

    translator: Translator
    translates = True

    @property
    def model(self) -> Any:
        return self.translator.models[0]

    def output(self, selection: Selection) -> str:
        """The target that is explained: the given one, or the model's own by the mode."""
        if selection.mode == "forced" and selection.target.strip():
            return selection.target
        return self.translator.translate([selection.source], **self.settings(selection))[0]

    def settings(self, selection: Selection) -> dict[str, Any]:
        """Decoding settings of a mode."""
        own = self.translator.decoding.beam_size
        if selection.mode == "greedy":
            return {"beam_size": 1, "n_best": 1, "sample": False}
        if selection.mode == "sample":
            return {"beam_size": 1, "n_best": 1, "sample": True, "seed": SEED}
        return {"beam_size": own if own > 1 else BEAM_SIZE, "n_best": 1, "sample": False}

    def lengths(self, selection: Selection) -> list[tuple[int, int]]:
        """(tokens, most) of the source and of the target; a longer source is translated in pieces.

        One trace shows one computation, so a source in pieces has none.
        """
        pair, one = self.translator.tokenizers, self.translator
        target = selection.target if selection.mode == "forced" else ""
        built: int = self.model.config.max_length
        readable = one.configure().max_source or min(built, one.longest_source or built)
        return [
            (len(pair.source.encode(selection.source)), readable - 1),  # the end symbol counts too
            (len(pair.target.encode(target)), built - 1),
        ]

    def example(self, selection: Selection, output: str, edits: Mapping[str, Edit] | None, keep: str = "*") -> Example:
        return examine(self.translator, selection.source, output, keep, edits)

    def knows(self, text: str) -> bool:
        """True if every word of ``text`` is in the vocabulary."""
        return not self.translator.tokenizers.source.unknown(text)

    def rewritten(self, original: Example, edits: Mapping[str, Edit], stepwise: bool) -> str:
        """The model's own translation under edits, by its usual search.

        ``stepwise``: by greedy search without a cache, which edits of single positions need: each step reads the whole
        beginning of the target.
        """
        options: dict[str, Any] = {"beam_size": 1, "n_best": 1, "sample": False} if stepwise else {}
        if not edits:
            return self.translator.translate([original.source], **options)[0]
        if stepwise:
            options |= {"use_cache": False, "precision": "float32"}
        with record(self.model, keep="memory", edits=edits):
            return self.translator.translate([original.source], **options)[0]


@dataclass(frozen=True)
class ExploredText(Texts):
    """A model of one text: a language model, or BERT with one of its heads."""

    run: LoadedRun
    translates = False

    @property
    def model(self) -> Any:
        return self.run.model

    def output(self, selection: Selection) -> str:
        return ""

    def lengths(self, selection: Selection) -> list[tuple[int, int]]:
        """(tokens, most) of the text, or of a pair, with those that are added: [CLS], [SEP], or the next word."""
        tokenizer, model = self.run.tokenizer, self.run.model
        masks = self.run.task == "masked"
        tokens = len(encode_with_masks(tokenizer, selection.source) if masks else tokenizer.encode(selection.source))
        tokens += 1 if self.run.task == "language" else 2
        if self.run.task == "classification" and selection.target:
            tokens += len(tokenizer.encode(selection.target)) + 1
        return [(tokens, getattr(model.config, "max_length", tokens))]

    def example(self, selection: Selection, output: str, edits: Mapping[str, Edit] | None, keep: str = "*") -> Example:
        model, tokenizer, text = self.run.model, self.run.tokenizer, selection.source
        match self.run.task:
            case "language":
                if not tokenizer.encode(text):
                    raise DataError("the text has no tokens; give one with at least one word")
                return examine_continuation(model, tokenizer, text, keep, edits)
            case "masked":
                return examine_masked(model, tokenizer, text, keep, edits)
            case "classification":
                texts = [text] if not selection.target else [text, selection.target]
                return examine_class(model, tokenizer, texts, self.run.setting("labels"), keep, edits)
            case _:
                return examine_tags(model, tokenizer, text, self.run.setting("tags"), keep, edits)

    def knows(self, text: str) -> bool:
        """True if every word of ``text`` is in the vocabulary."""
        return not self.run.tokenizer.unknown(text)

    def rewritten(self, original: Example, edits: Mapping[str, Edit], stepwise: bool) -> str:
        """The text that a language model adds under edits, by greedy search; the output of another model."""
        tokenizer = self.run.tokenizer
        if self.run.task != "language":
            selection = Selection(source=original.source)
            return self.example(selection, "", edits).output if edits else original.output
        written = continuation(self.model, original.source_ids, CONTINUED, edits, tokenizer.end_id)
        text: str = tokenizer.decode(written)
        return text.strip()


def load_explored(path: Path, files: tuple[Path, ...] = (), others: Iterable[ExploredModel] = ()) -> ExploredModel:
    """Load a checkpoint. ``files`` are images or tables to look at; ``others`` may have read the same data already.

    ``CheckpointError`` for an unknown task, ``DataError`` for files of a run that reads texts.
    """
    task = task_at(path)
    if task in ("images", "forecasting"):
        kind = ExploredImages if task == "images" else ExploredSeries
        found = kind(load_run(path), path, files)
        found.share_data(others)
        return found
    if files:
        raise DataError(f"{files[0]}: a run of {task} reads texts, not files; type the text into the page")
    return ExploredTranslator(Translator.load(path)) if task == "translation" else ExploredText(load_run(path))


def bytes_of(example: Example) -> int:
    """Memory of the recorded tensors."""
    trace = example.trace
    return sum(tensor.numel() * tensor.element_size() for name in trace for tensor in trace.all(name))


def with_mask(text: str) -> str:
    """``text`` with its middle word hidden, for a model of masked words."""
    words = text.split()
    words[len(words) // 2] = "[MASK]"
    return " ".join(words)
