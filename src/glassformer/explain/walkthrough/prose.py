"""The prose of the steps: ``walkthrough.toml``, filled in from one example."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from glassformer.explain.example import Example
from glassformer.explain.matrix import Axis, Kind
from glassformer.explain.trace import Trace
from glassformer.explain.walkthrough.checks import CHECKS
from glassformer.explain.walkthrough.step import MAX_DIMENSIONS, Step, StepCheck, TracedMatrix, checked

MAX_HEADS = 16
"""Heads whose weights a step shows."""
UNSHADED = ("logits", "probabilities")
MORE = "more_"


class Prose:
    """One step of ``walkthrough.toml``. A text may name ``values`` and other texts of the step in braces."""

    def __init__(self, name: str, variants: Sequence[str], values: Mapping[str, object]):
        step = _steps()[name]
        self._fields: dict[str, Any] = {key: text for key, text in step.items() if not isinstance(text, dict)}
        self._values = values
        for variant in variants:
            for key, text in step[variant].items():
                added = key.removeprefix(MORE)
                self._fields[added] = self._fields[added] + text if added != key else text

    def __getitem__(self, key: str) -> str:
        return str(self._values[key]) if key in self._values else self.fill(self._fields[key])

    def fill(self, text: str) -> str:
        """Replace names in braces."""
        return text.format_map(self)

    @property
    def texts(self) -> dict[str, Any]:
        """The texts of a step, by field."""
        return {field: self[field] for field in ("title", "what", "why", "formula", "reference")}

    @property
    def checks(self) -> list[str]:
        """Names of checks of whole tensors."""
        return list(self._fields.get("checks", []))

    def tables(self, trace: Trace, path: str, axes: Mapping[str, Axis]) -> tuple[TracedMatrix, ...]:
        """The taps of the step at ``path``, with these labels of axes."""
        found: list[TracedMatrix] = []
        for tap, title in self._fields.get("taps", []):
            name = self.fill(tap.removesuffix("?"))
            name = f"{path}.{name}" if f"{path}.{name}" in trace else name
            if tap.endswith("?") and name not in trace:
                continue
            each = "{head}" in title
            for head in range(min(trace[name].size(1), MAX_HEADS) if each else 1):
                text = title.replace("{head}", str(head))
                found.append(build_table(trace, name, self.fill(text), axes, head))
        return tuple(found)


def build(
    example: Example,
    prose: Prose,
    path: str,
    axes: Mapping[str, Axis],
    checks: tuple[StepCheck, ...] = (),
    **fields: Any,
) -> Step:
    """A step at the module ``path``: its prose, its tables with the labels of ``axes``, its checks and further ones.

    ``fields`` holds further fields of the step. Its ``evaluation`` is by default that of the last table's first number.
    """
    tables = prose.tables(example.trace, path, axes)
    known = (CHECKS[name](example, path) for name in prose.checks)
    if "evaluation" not in fields:
        fields["evaluation"] = tables[-1].formula(0)
    return Step(
        number=0,
        path=path,
        tables=tables,
        checks=(checked(*tables), *known, *checks),
        **prose.texts,
        **fields,
    )


def build_table(trace: Trace, name: str, title: str, axes: Mapping[str, Axis], head: int = 0) -> TracedMatrix:
    """A table of the first of a batch. An axis without labels shows its first ``MAX_DIMENSIONS``."""
    names = trace.axes(name)
    labels = [axes.get(axis) or _dimensions(trace, name, axis) for axis in names if axis not in ("batch", "head")]
    rows, columns = (*labels, None)[:2]
    assert rows is not None
    tap, fixed = name.rpartition(".")[2], {"head": head} if "head" in names else {}
    kind: Kind = "weights" if tap == "weights" else "plain" if columns is None or tap in UNSHADED else "signed"
    return TracedMatrix.of(trace, name, title, rows, columns, fixed, kind)


def _dimensions(trace: Trace, name: str, axis: str) -> Axis:
    size = trace[name].size(trace.axes(name).index(axis))
    count = min(MAX_DIMENSIONS, size)
    return Axis.of(axis if count == size else f"{axis}, {count} of {size}", map(str, range(count)), axis)


@cache
def _steps() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files(__package__).joinpath("walkthrough.toml").read_text(encoding="utf-8"))
