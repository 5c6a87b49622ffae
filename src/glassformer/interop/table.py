"""The two-way table between our names and another library's: of tensors, of settings, and of what has no counterpart.

A family of models is one small file in ``families``: a ``Family``, whose rows are read in both directions.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from glassformer.config import Config
from glassformer.errors import CheckpointError, ConfigError

Change = Callable[[list[Tensor]], list[Tensor]]


def unchanged(tensors: list[Tensor]) -> list[Tensor]:
    return tensors


@dataclass(frozen=True)
class TensorRow:
    """The tensors ``ours`` are the tensors ``theirs``, but for a change that has an inverse.

    Several on a side: fused or split matrices. None on theirs: what they compute is a parameter of ours.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    to_ours: Change = unchanged
    to_theirs: Change = unchanged
    aliases: tuple[str, ...] = ()
    """Further names that theirs may have the (first) tensor under, the same wherever it is there: tied matrices."""
    instead: tuple[str, ...] = ()
    """Where to look for it when it is missing: matrices that theirs has tied and ours has not."""
    copies: tuple[str, ...] = ()
    """Names under which theirs wants it a second time, and does not use it."""


@dataclass(frozen=True)
class Fixed:
    """A tensor of theirs that is no parameter of ours: absent or ``value`` within ``close``; ``why`` it must be so."""

    theirs: str
    value: Tensor
    why: str
    close: float = 0.0
    written: bool = True


@dataclass(frozen=True)
class Setting:
    """A setting of ours (``attention.rope_theta`` within another) and those of theirs (all with one value) that say the
    same, in other words where given."""

    ours: str
    theirs: tuple[str, ...]
    words: Mapping[Any, str] | None = None
    """Our word for each of theirs; the first of those with the same meaning is written."""


@dataclass(frozen=True)
class Family:
    """All that is particular to one ``model_type`` of Hugging Face's."""

    model_type: str
    architecture: str
    """Their class; a model type may have several, of different tasks."""
    settings: tuple[Setting, ...]
    our_values: Mapping[str, Any]
    """What our configuration must say for a model to be of this family; of a tuple, one, and a setting tells which."""
    their_values: Mapping[str, Any]
    """What theirs must say: a default of theirs that is absent counts as said."""
    rows: Callable[[Any], list[TensorRow]]
    fixed: Callable[[Any], list[Fixed]]
    further_to_ours: Callable[[dict[str, Any], Mapping[str, Tensor]], dict[str, Any]]
    further_to_theirs: Callable[[Any], dict[str, Any]]
    task: str = "translation"
    other_architectures: tuple[str, ...] = ()
    """Further classes of theirs that hold this one."""
    ignored_weights: Mapping[str, str] = field(default_factory=dict)
    """Patterns of tensors that may be there and that ours does without, and what they are where it should be told."""
    canonical_name: Callable[[str], str] = lambda name: name
    """The name that a tensor has now, of one that it may have had."""
    make_exact: Callable[[Any, Any], None] = lambda theirs, config: None
    """Compute tables of their model anew in float64, as far as theirs knows them in float32 only."""
    exported: bool = True
    notes: Callable[[Any], list[str]] = lambda config: []
    """Notes on our settings that an export expresses by constants."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Settings of theirs that change no output, written as given."""
    training_only: Mapping[str, Any] = field(default_factory=dict)
    """Settings of theirs that matter in training alone and have no counterpart: the value that says nothing, or the
    setting that they are one with here."""

    def holds(self, name: str, value: Any) -> bool:
        """Whether our setting ``name`` may have that value."""
        expected = self.our_values[name]
        return value in expected if isinstance(expected, tuple) else bool(value == expected)


def settings_to_ours(family: Family, theirs: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Our configuration; ``ConfigError`` names the first setting without a counterpart, and its value."""
    for name, value in family.their_values.items():
        if theirs.get(name, value) != value:
            raise ConfigError(
                f"{name}={theirs[name]!r}: a {family.model_type} is imported with {name}={value!r} only; choose another"
            )
    ours: dict[str, Any] = {}
    for setting in family.settings:
        values = [theirs[name] for name in setting.theirs]
        if any(value != values[0] for value in values):
            said = ", ".join(f"{name}={theirs[name]!r}" for name in setting.theirs)
            raise ConfigError(f"{said}: they are one {setting.ours} here; choose a model where they are the same")
        if setting.words is not None and values[0] not in setting.words:
            known = ", ".join(map(str, setting.words))
            raise ConfigError(
                f"{setting.theirs[0]}={values[0]!r}: is not among {known}; choose a model with one of them"
            )
        ours[setting.ours] = values[0] if setting.words is None else setting.words[values[0]]
    of_all = {name: value for name, value in family.our_values.items() if not isinstance(value, tuple)}
    return _nested({**ours, **of_all, **family.further_to_ours(theirs, weights)})


def settings_to_theirs(family: Family, config: Config) -> dict[str, Any]:
    """Their configuration, without the ids of symbols."""
    theirs: dict[str, Any] = {**family.constants, **family.their_values}
    for setting in family.settings:
        value = attrgetter(setting.ours)(config)
        if setting.words is not None:
            value = next(word for word, ours in setting.words.items() if ours == value)
        theirs |= dict.fromkeys(setting.theirs, value)
    return {**theirs, **family.further_to_theirs(config)}


def current(family: Family, weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors that count under the names of today, and a sentence for each kind that was left out."""
    found: dict[str, Tensor] = {}
    left: dict[str, None] = {}
    for name, tensor in weights.items():
        name = family.canonical_name(name)
        said = next((what for pattern, what in family.ignored_weights.items() if re.fullmatch(pattern, name)), None)
        if said is None:
            found[name] = tensor
        elif said:
            left[f"{said} is left out"] = None
    return found, list(left)


def to_theirs(family: Family, config: Config, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under their names, with the fixed ones."""
    theirs = {fixed.theirs: fixed.value.clone() for fixed in family.fixed(config) if fixed.written}
    for row in family.rows(config):
        if row.theirs:
            changed = row.to_theirs([weights[name] for name in row.ours])
            theirs |= zip(row.theirs, changed, strict=True)
            theirs |= {name: changed[0].clone() for name in row.copies}
    return {name: tensor.contiguous() for name, tensor in theirs.items()}


def to_ours(
    family: Family, config: Config, theirs: Mapping[str, Tensor], shapes: Mapping[str, Tensor], origin: str
) -> dict[str, Tensor]:
    """Their tensors under our names, in float32.

    ``shapes`` are our parameters, of which only the shapes are looked at. ``CheckpointError`` lists every tensor that
    is missing, of another shape, not known, or not what it must be.
    """
    rows, fixed = family.rows(config), family.fixed(config)
    taken = [_taken(row, theirs) for row in rows]
    faults = [fault for row in rows for fault in _row_faults(row, theirs, shapes)]
    faults += [fault for one in fixed for fault in _fixed_faults(one, theirs)]
    known = {name for names in taken for name in names} | {one.theirs for one in fixed}
    known |= {name for row in rows for name in (*row.aliases, *row.instead, *row.copies)}
    faults += [f"{name} is not known" for name in theirs if name not in known]
    if faults:
        raise CheckpointError(f"{origin}: the weights do not fit config.json: {'; '.join(faults)}")
    ours: dict[str, Tensor] = {}
    for row, names in zip(rows, taken, strict=True):
        ours |= zip(row.ours, row.to_ours([theirs[name].float() for name in names]), strict=True)
    return {name: tensor.contiguous() for name, tensor in ours.items()}


def expresses(family: Family, config: Config, theirs: Mapping[str, Tensor]) -> bool:
    """True if ``config`` can express the weights ``theirs``: constants match, and repeated tensors are equal.

    Missing tensors are ignored; ``to_ours`` lists them.
    """
    if any(_fixed_faults(one, theirs) for one in family.fixed(config)):
        return False
    for row in family.rows(config):
        names = _taken(row, theirs)
        if row.theirs and all(name in theirs for name in names):
            tensors = [theirs[name].float() for name in names]
            try:
                again = row.to_theirs(row.to_ours(tensors))
            except RuntimeError:  # shape mismatch, reported by to_ours
                return False
            if not all(torch.equal(*pair) for pair in zip(tensors, again, strict=True)):
                return False
    return True


def linear(
    ours: str, theirs: str, to_ours: Change = unchanged, to_theirs: Change = unchanged, bias: bool = True
) -> list[TensorRow]:
    """Weight and bias, which a norm has too."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return [TensorRow((f"{ours}.{kind}",), (f"{theirs}.{kind}",), to_ours, to_theirs) for kind in kinds]


def reordered(ours: str, theirs: str, axis: int | None = None, order: Tensor | None = None) -> TensorRow:
    """One tensor whose ``axis`` runs over dimensions that theirs has in another ``order`` (None: in ours)."""
    if axis is None or order is None:
        return TensorRow((ours,), (theirs,))
    back = order.argsort()
    return TensorRow(
        (ours,),
        (theirs,),
        lambda tensors: [tensors[0].index_select(axis, back)],
        lambda tensors: [tensors[0].index_select(axis, order.to(tensors[0].device))],
    )


def _taken(row: TensorRow, theirs: Mapping[str, Tensor]) -> list[str]:
    """The names under which theirs has the tensors of ``row``."""
    return [next((n for n in (name, *row.aliases, *row.instead) if n in theirs), name) for name in row.theirs]


def _row_faults(row: TensorRow, theirs: Mapping[str, Tensor], shapes: Mapping[str, Tensor]) -> list[str]:
    taken = _taken(row, theirs)
    expected = row.to_theirs([shapes[name] for name in row.ours]) if row.theirs else []
    faults = []
    for name, shape in zip(taken, expected, strict=True):
        if name not in theirs:
            faults.append(f"{name} is missing")
        elif theirs[name].shape != shape.shape:
            faults.append(f"{name} is {list(theirs[name].shape)}, not {list(shape.shape)}")
    for alias in row.aliases:
        if alias in theirs and taken[0] in theirs and not torch.equal(theirs[alias], theirs[taken[0]]):
            faults.append(f"{alias} is not {taken[0]}, though the two are tied")
    return faults


def _fixed_faults(fixed: Fixed, theirs: Mapping[str, Tensor]) -> Sequence[str]:
    if fixed.theirs not in theirs:
        return []
    found = theirs[fixed.theirs]
    if found.shape != fixed.value.shape:
        return [f"{fixed.theirs} is {list(found.shape)}, not {list(fixed.value.shape)}"]
    return [f"{fixed.theirs} {fixed.why}"] if (found.float() - fixed.value).abs().max() > fixed.close else []


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """``attention.dropout`` as ``dropout`` in ``attention``."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        outer, dot, inner = name.partition(".")
        if dot:
            found.setdefault(outer, {})[inner] = value
        else:
            found[name] = value
    return found
