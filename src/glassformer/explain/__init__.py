"""Seeing inside: what a model computed for an example, number by number, each with its check."""

from glassformer.explain.examined import Examined
from glassformer.explain.example import Example, examine
from glassformer.explain.opened import ExampleInput, examine_run
from glassformer.explain.trace import Trace, trace

__all__ = ["Examined", "Example", "ExampleInput", "Trace", "examine", "examine_run", "trace"]
