"""Two-way tables between our names and those of Hugging Face: tensors, settings, and constants without a counterpart.

The rows of a ``Family`` are read in both directions.
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

SINUSOID_TOLERANCE = 1e-3
"""Maximum difference from exact sinusoids for a table to count as sinusoidal; a 16-bit table needs this much."""


def unchanged(tensors: list[Tensor]) -> list[Tensor]:
    return tensors


@dataclass(frozen=True)
class TensorRow:
    """Names of the same tensors here and there, and the change from one to the other with its inverse.

    Several names on a side stand for fused or split matrices. An empty ``their_names`` stands for a parameter of ours
    that they compute.
    """

    our_names: tuple[str, ...]
    their_names: tuple[str, ...]
    on_import: Change = unchanged
    on_export: Change = unchanged
    aliases: tuple[str, ...] = ()
    """Other names of the first tensor there, with the same values: tied matrices."""
    fallbacks: tuple[str, ...] = ()
    """Names to read when the tensor is missing: matrices that are tied there and not here."""
    copies: tuple[str, ...] = ()
    """Names under which their class expects a second copy, which it does not use."""


@dataclass(frozen=True)
class Fixed:
    """A tensor of theirs that is no parameter here: absent, or ``value`` within ``tolerance``; else ``error``."""

    their_name: str
    value: Tensor
    error: str
    tolerance: float = 0.0
    exported: bool = True


@dataclass(frozen=True)
class Setting:
    """A setting of ours (``attention.rope_theta`` if nested) and the equivalent ones of theirs, all with one value."""

    our_name: str
    their_names: tuple[str, ...]
    translation: Mapping[Any, str] | None = None
    """Our value for each of theirs; an export writes the first of several with the same meaning."""


ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Our name for each activation of theirs; of several, the first is written."""

STACK = (
    Setting("d_model", ("hidden_size",)),
    Setting("n_heads", ("num_attention_heads",)),
    Setting("d_ff", ("intermediate_size",)),
    Setting("n_layers", ("num_hidden_layers",)),
)
"""Sizes of one stack, as most families name them."""
ENCODER = (
    *STACK,
    Setting("dropout", ("hidden_dropout_prob",)),
    Setting("activation", ("hidden_act",), {"gelu": "gelu", **ACTIVATIONS}),
    Setting("norm_eps", ("layer_norm_eps",)),
)
"""Settings of BERT and its descendants."""


@dataclass(frozen=True)
class Family:
    """Everything specific to one ``model_type`` of Hugging Face."""

    model_type: str
    architecture: str
    """Name of the class there; a model type may have one for each task."""
    settings: tuple[Setting, ...]
    our_values: Mapping[str, Any]
    """Values of our settings in this family; a tuple lists alternatives, and one of ``settings`` decides."""
    their_values: Mapping[str, Any]
    """Required values of their settings; an absent setting has the required value."""
    rows: Callable[[Any], list[TensorRow]]
    import_settings: Callable[[dict[str, Any], Mapping[str, Tensor]], dict[str, Any]]
    """Our settings that depend on several of theirs or on the weights."""
    export_settings: Callable[[Any], dict[str, Any]]
    """Settings of theirs that depend on several of ours."""
    fixed: Callable[[Any], list[Fixed]] = lambda config: []
    task: str = "translation"
    other_architectures: tuple[str, ...] = ()
    """Other classes there whose weights include those of ``architecture``."""
    ignored_weights: Mapping[str, str] = field(default_factory=dict)
    """Patterns of tensor names without a counterpart, each with a description to report, or an empty one."""
    canonical_name: Callable[[str], str] = lambda name: name
    """The current name of a tensor, for its name in an older folder."""
    make_exact: Callable[[Any, Any], None] = lambda their_model, config: None
    """Compute tables of their model again in float64, where they have them in float32 only."""
    exported: bool = True
    notes: Callable[[Any], list[str]] = lambda config: []
    """Notes on our settings that an export expresses by constants."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Settings of theirs that change no output, written unchanged."""
    training_only: Mapping[str, Any] = field(default_factory=dict)
    """Settings of theirs for training that have no counterpart: the neutral value, or the name of the setting that
    covers both here."""

    def accepts(self, name: str, value: Any) -> bool:
        """Check that our setting ``name`` may have ``value`` in this family."""
        expected = self.our_values[name]
        return value in expected if isinstance(expected, tuple) else bool(value == expected)


def import_config(family: Family, their_config: dict[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Our configuration for theirs; ``ConfigError`` names the first setting without a counterpart, and its value."""
    for name, value in family.their_values.items():
        if their_config.get(name, value) != value:
            raise ConfigError(
                f"{name}={their_config[name]!r}: a {family.model_type} is imported with {name}={value!r} only; "
                "choose another"
            )
    config: dict[str, Any] = {}
    for setting in family.settings:
        values = [their_config[name] for name in setting.their_names]
        if any(value != values[0] for value in values):
            listed = ", ".join(f"{name}={their_config[name]!r}" for name in setting.their_names)
            raise ConfigError(f"{listed}: they are one {setting.our_name} here; choose a model where they are the same")
        if setting.translation is not None and values[0] not in setting.translation:
            known = ", ".join(map(str, setting.translation))
            raise ConfigError(
                f"{setting.their_names[0]}={values[0]!r}: is not among {known}; choose a model with one of them"
            )
        config[setting.our_name] = values[0] if setting.translation is None else setting.translation[values[0]]
    constants = {name: value for name, value in family.our_values.items() if not isinstance(value, tuple)}
    return _nested({**config, **constants, **family.import_settings(their_config, weights)})


def export_config(family: Family, config: Config) -> dict[str, Any]:
    """Configuration there for ours, without the ids of special tokens."""
    their_config: dict[str, Any] = {**family.constants, **family.their_values}
    for setting in family.settings:
        value = attrgetter(setting.our_name)(config)
        if setting.translation is not None:
            value = next(their_value for their_value, our_value in setting.translation.items() if our_value == value)
        their_config |= dict.fromkeys(setting.their_names, value)
    return {**their_config, **family.export_settings(config)}


def refuse_other_problems(their_config: dict[str, Any]) -> None:
    """Raise ``ConfigError`` for a classifier that gives an input several labels, or numbers."""
    if their_config.get("problem_type") not in (None, "single_label_classification"):
        problem = their_config["problem_type"]
        raise ConfigError(f"problem_type={problem!r}: only single_label_classification is imported")


def canonical_weights(family: Family, weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors with a counterpart, under their current names, and a note for each ignored kind."""
    canonical: dict[str, Tensor] = {}
    notes: dict[str, None] = {}
    for name, tensor in weights.items():
        name = family.canonical_name(name)
        ignored = next((text for pattern, text in family.ignored_weights.items() if re.fullmatch(pattern, name)), None)
        if ignored is None:
            canonical[name] = tensor
        elif ignored:
            notes[f"{ignored} is left out"] = None
    return canonical, list(notes)


def export_weights(family: Family, config: Config, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under their names, and the fixed ones."""
    exported = {fixed.their_name: fixed.value.clone() for fixed in family.fixed(config) if fixed.exported}
    for row in family.rows(config):
        if row.their_names:
            changed = row.on_export([weights[name] for name in row.our_names])
            exported |= zip(row.their_names, changed, strict=True)
            exported |= {name: changed[0].clone() for name in row.copies}
    return {name: tensor.contiguous() for name, tensor in exported.items()}


def import_weights(
    family: Family, config: Config, their_weights: Mapping[str, Tensor], shapes: Mapping[str, Tensor], origin: str
) -> dict[str, Tensor]:
    """Tensors under our names, in float32.

    Only the shapes of ``shapes``, our parameters, are read. ``CheckpointError`` lists every tensor that is missing, of
    another shape, unknown, or not the constant it must be.
    """
    rows, fixed = family.rows(config), family.fixed(config)
    present = [_present_names(row, their_weights) for row in rows]
    errors = [error for row in rows for error in _row_errors(row, their_weights, shapes)]
    errors += [error for one in fixed for error in _fixed_errors(one, their_weights)]
    known = {name for names in present for name in names} | {one.their_name for one in fixed}
    known |= {name for row in rows for name in (*row.aliases, *row.fallbacks, *row.copies)}
    errors += [f"{name} is not known" for name in their_weights if name not in known]
    if errors:
        raise CheckpointError(f"{origin}: the weights do not fit config.json: {'; '.join(errors)}")
    imported: dict[str, Tensor] = {}
    for row, names in zip(rows, present, strict=True):
        imported |= zip(row.our_names, row.on_import([their_weights[name].float() for name in names]), strict=True)
    return {name: tensor.contiguous() for name, tensor in imported.items()}


def expresses(family: Family, config: Config, their_weights: Mapping[str, Tensor]) -> bool:
    """True if ``config`` can express ``their_weights``: constants match, and repeated tensors are equal.

    Missing tensors are ignored; ``import_weights`` lists them.
    """
    if any(_fixed_errors(one, their_weights) for one in family.fixed(config)):
        return False
    for row in family.rows(config):
        names = _present_names(row, their_weights)
        if row.their_names and all(name in their_weights for name in names):
            tensors = [their_weights[name].float() for name in names]
            try:
                again = row.on_export(row.on_import(tensors))
            except RuntimeError:  # shape mismatch, reported by import_weights
                return False
            if not all(torch.equal(*pair) for pair in zip(tensors, again, strict=True)):
                return False
    return True


def linear(
    our_name: str, their_name: str, on_import: Change = unchanged, on_export: Change = unchanged, bias: bool = True
) -> list[TensorRow]:
    """Rows for the weight and bias of a projection or a norm."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return [TensorRow((f"{our_name}.{kind}",), (f"{their_name}.{kind}",), on_import, on_export) for kind in kinds]


def reordered(our_name: str, their_name: str, axis: int | None = None, order: Tensor | None = None) -> TensorRow:
    """Row for one tensor whose dimensions along ``axis`` have another ``order`` there (None: the same)."""
    if axis is None or order is None:
        return TensorRow((our_name,), (their_name,))
    back = order.argsort()
    return TensorRow(
        (our_name,),
        (their_name,),
        lambda tensors: [tensors[0].index_select(axis, back)],
        lambda tensors: [tensors[0].index_select(axis, order.to(tensors[0].device))],
    )


def _present_names(row: TensorRow, weights: Mapping[str, Tensor]) -> list[str]:
    """Names in ``weights`` of the tensors of ``row``."""
    return [next((n for n in (name, *row.aliases, *row.fallbacks) if n in weights), name) for name in row.their_names]


def _row_errors(row: TensorRow, weights: Mapping[str, Tensor], shapes: Mapping[str, Tensor]) -> list[str]:
    names = _present_names(row, weights)
    expected = row.on_export([shapes[name] for name in row.our_names]) if row.their_names else []
    errors = []
    for name, shape in zip(names, expected, strict=True):
        if name not in weights:
            errors.append(f"{name} is missing")
        elif weights[name].shape != shape.shape:
            errors.append(f"{name} is {list(weights[name].shape)}, not {list(shape.shape)}")
    for alias in row.aliases:
        if alias in weights and names[0] in weights and not torch.equal(weights[alias], weights[names[0]]):
            errors.append(f"{alias} is not {names[0]}, though the two are tied")
    return errors


def _fixed_errors(fixed: Fixed, weights: Mapping[str, Tensor]) -> Sequence[str]:
    if fixed.their_name not in weights:
        return []
    tensor = weights[fixed.their_name]
    if tensor.shape != fixed.value.shape:
        return [f"{fixed.their_name} is {list(tensor.shape)}, not {list(fixed.value.shape)}"]
    differs = (tensor.float() - fixed.value).abs().max() > fixed.tolerance
    return [f"{fixed.their_name} {fixed.error}"] if differs else []


@torch.no_grad()
def restore_sinusoids(table: Tensor, exact: Tensor) -> None:
    """Replace a table that equals ``exact`` but for rounding to float32."""
    if table.shape == exact.shape and (table - exact).abs().max() <= SINUSOID_TOLERANCE:
        table.copy_(exact)


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """Nested tables: ``attention.d_head`` becomes ``d_head`` in ``attention``."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        outer, separator, inner = name.partition(".")
        if separator:
            nested.setdefault(outer, {})[inner] = value
        else:
            nested[name] = value
    return nested
