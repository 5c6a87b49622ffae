"""The selection: everything that decides what the page shows. It is the address of the page, by one table."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import parse_qsl, quote_plus

Mode = Literal["beam", "greedy", "sample", "forced"]
"""Origin of the target: the model's own by beam search, greedy search or sampling; or text that is read (forced)."""
Level = Literal["model", "layer", "head", "matrix", "cell"]

MODES: tuple[str, ...] = get_args(Mode)
LARGEST_INDEX = 10**7
"""Numbers of an address are below it."""
EMPTY_SOURCE = "The sentence was empty; this is an example."


@dataclass(frozen=True)
class Selection:
    """One view of a run. A field that is empty or None is not chosen.

    ``part``, ``layer`` and ``sublayer`` name a module: ``decoder``, 1, ``cross_attention``. ``stage`` is the name of a
    tensor of that module, ``row`` and ``column`` a number in it, ``step`` the position of the target that is explained.
    ``panel`` is another view, a row of ``VIEWS``. ``donor`` is the second sentence, from which activations are patched,
    and ``grid`` the group of activations that the lab compares. ``effect`` is ``word`` where the lab measures heads by
    the selected word alone. ``other_run``, ``other_checkpoint`` and
    ``other_source`` are where the side that a comparison puts beside this one differs.
    """

    run: str = ""
    checkpoint: str = ""
    source: str = ""
    target: str = ""
    mode: Mode = "beam"
    part: str = ""
    layer: int | None = None
    sublayer: str = ""
    head: int | None = None
    stage: str = ""
    row: int | None = None
    column: int | None = None
    step: int | None = None
    interventions: tuple[str, ...] = ()
    panel: str = ""
    donor: str = ""
    grid: str = ""
    effect: str = ""
    other_run: str = ""
    other_checkpoint: str = ""
    other_source: str = ""
    reading: str = ""
    """Attention that links words: ``1.0.shifted`` is layer 1, head 0; ``1.mean.naive`` the mean of its heads."""
    gold: str = ""
    """Gold links of this sentence pair, ``0-0 1?2``."""
    sentences: int | None = None
    """Number of sentences that the atlas reads."""
    texts: str = ""
    """Sentences for the atlas, one a line; empty: those of the run's validation text."""
    order: str = ""
    """Column by which the heads of the atlas are sorted, with ``-`` before it from high to low."""
    side: str = ""
    """Input whose text is followed: ``source`` or ``target``."""
    position: int | None = None
    """Token of that input."""
    dimension: int | None = None
    """Dimension of its vector."""
    merge: int | None = None
    """Number of merges that have been applied to its word."""
    beam: int | None = None
    """Beam size of the beam tree."""
    table: str = ""
    """``heads`` shows the weights of the chosen query in every head, below the drawn attention."""
    tour: int | None = None
    """Step of the tour whose text stands above the view."""
    units: str = ""
    """``words`` shows attention between words instead of tokens."""
    special: str = ""
    """``hidden`` leaves the tokens of start and end out of the drawn attention."""

    @property
    def level(self) -> Level:
        """Level of zoom; a panel is at the level of the model, whatever module it is of."""
        if self.panel:
            return "model"
        if self.stage:
            return "matrix" if self.row is None else "cell"
        if self.head is not None or self.sublayer:
            return "head"
        return "layer" if self.part else "model"

    @property
    def path(self) -> str:
        """Path of the chosen module; empty for the whole model."""
        layer = [] if self.layer is None else ["layers", str(self.layer)]
        return ".".join(filter(None, [self.part, *layer, self.sublayer]))

    @property
    def above(self) -> "Selection | None":
        """The selection one level up; None at the top. A panel of a module is above nothing but the module."""
        if self.panel:
            return replace(self, panel="")
        if self.level == "cell":
            return replace(self, row=None, column=None)
        if self.level == "matrix":
            return replace(self, stage="")
        if self.level == "head" and self.head is not None:
            return replace(self, head=None)
        if self.level == "head":
            return replace(self, sublayer="")
        return self.at_model() if self.part else None

    def at_model(self) -> "Selection":
        """The whole model, with the same input."""
        place = replace(self, part="", layer=None, sublayer="", head=None, stage="", row=None, column=None, panel="")
        place = replace(place, other_run="", other_checkpoint="", other_source="", effect="")
        return replace(place, reading="", order="", side="", position=None, dimension=None, merge=None, beam=None)

    def at_module(self, part: str, layer: int | None = None, sublayer: str = "") -> "Selection":
        """A module of the model, with the same input."""
        return replace(self.at_model(), part=part, layer=layer, sublayer=sublayer)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names and texts of the address; defaults are left out."""
        pairs: list[tuple[str, str]] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                pairs += [(KEYS[field.name].name, text) for text in KEYS[field.name].write(value)]
        return pairs

    @property
    def address(self) -> str:
        """Query of the page: ``?source=a+dog&part=decoder&layer=1``; defaults are left out."""
        return f"?{'&'.join(f'{name}={_quoted(text)}' for name, text in self.pairs)}"

    @property
    def input_key(self) -> tuple[object, ...]:
        """The fields that decide the trace."""
        donor = self.donor if any("@" in text for text in self.interventions) else ""
        return self.run, self.checkpoint, self.source, self.target, self.mode, self.interventions, donor


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    """``text`` in an address. A page of a thousand numbers has a thousand addresses with the same two sentences."""
    return quote_plus(text)


class Key(NamedTuple):
    """Name of a field in the address, and its conversions; ``read`` raises ``ValueError``."""

    name: str
    write: Callable[[Any], Iterable[str]]
    read: Callable[[list[str]], Any]


def _number(texts: list[str]) -> int:
    if not re.fullmatch("[0-9]{1,7}", texts[-1]):
        raise ValueError
    return int(texts[-1])


def _mode(texts: list[str]) -> str:
    if texts[-1] not in MODES:
        raise ValueError
    return texts[-1]


def _word_key(name: str, word: str) -> Key:
    """A field that is ``word`` or not chosen."""

    def read(texts: list[str]) -> str:
        if texts[-1] not in ("", word):
            raise ValueError
        return texts[-1]

    return Key(name, lambda value: (value,), read)


def _text_key(name: str) -> Key:
    return Key(name, lambda value: (value,), lambda texts: texts[-1])


def _number_key(name: str) -> Key:
    return Key(name, lambda value: (str(value),), _number)


KEYS: dict[str, Key] = {
    "run": _text_key("run"),
    "checkpoint": _text_key("checkpoint"),
    "source": _text_key("source"),
    "target": _text_key("target"),
    "mode": Key("mode", lambda value: (value,), _mode),
    "part": _text_key("part"),
    "layer": _number_key("layer"),
    "sublayer": _text_key("sublayer"),
    "head": _number_key("head"),
    "stage": _text_key("stage"),
    "row": _number_key("row"),
    "column": _number_key("column"),
    "step": _number_key("step"),
    "interventions": Key("edit", lambda value: value, tuple),
    "panel": _text_key("panel"),
    "donor": _text_key("donor"),
    "grid": _text_key("grid"),
    "effect": _text_key("effect"),
    "other_run": _text_key("other_run"),
    "other_checkpoint": _text_key("other_checkpoint"),
    "other_source": _text_key("other_source"),
    "reading": _text_key("reading"),
    "gold": _text_key("gold"),
    "sentences": _number_key("n"),
    "texts": _text_key("texts"),
    "order": _text_key("order"),
    "side": _text_key("side"),
    "position": _number_key("position"),
    "dimension": _number_key("dimension"),
    "merge": _number_key("merge"),
    "beam": _number_key("beam"),
    "table": _word_key("table", "heads"),
    "tour": _number_key("tour"),
    "units": _word_key("units", "words"),
    "special": _word_key("special", "hidden"),
}
"""The table of the address: one row for each field of ``Selection``."""
FORMER = {"off": "edit"}
"""Names that addresses had before."""


def parse_address(query: str) -> tuple[Selection, list[str]]:
    """The selection of a query, and a note for each value that cannot be read; unknown names are ignored."""
    texts: dict[str, list[str]] = {}
    for name, text in parse_qsl(query.removeprefix("?"), keep_blank_values=True):
        texts.setdefault(FORMER.get(name, name), []).append(text)
    values: dict[str, Any] = {}
    notes = [EMPTY_SOURCE] if texts.get("source", ["a"])[-1] == "" else []
    for field, key in KEYS.items():
        if key.name not in texts:
            continue
        try:
            values[field] = key.read(texts[key.name])
        except ValueError:
            notes.append(f"{key.name}={texts[key.name][-1][:40]!r} cannot be read and is ignored.")
    return Selection(**values), notes
