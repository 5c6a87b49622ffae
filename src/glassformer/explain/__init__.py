"""Seeing inside: what a model computed for an example, number by number, each with its check.

The package is also the function ``explain``: ``glassformer.explain(trace, name, position=0)`` explains one number.
"""

import sys
from types import ModuleType

from glassformer.explain.example import Example, ExampleInput, examine_run
from glassformer.explain.examples.text import examine
from glassformer.explain.figures.attention import view
from glassformer.explain.figures.view import View, save_view, view_tensor
from glassformer.explain.formula.formula import Formula, explain
from glassformer.explain.matrix import Axis, Label, Matrix, Scale
from glassformer.explain.trace import Trace, trace

__all__ = [
    "Axis",
    "Example",
    "ExampleInput",
    "Label",
    "Matrix",
    "Scale",
    "Trace",
    "View",
    "examine",
    "examine_run",
    "explain",
    "save_view",
    "trace",
    "view",
    "view_tensor",
]


class ExplainModule(ModuleType):
    """Class of this package, which importing any of its modules makes the attribute ``explain`` of ``glassformer``."""

    def __call__(self, trace: Trace, name: str, **index: int) -> Formula:
        return explain(trace, name, **index)

    __call__.__doc__ = explain.__doc__


sys.modules[__name__].__class__ = ExplainModule
