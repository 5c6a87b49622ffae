"""Seeing inside: what a model computed for an example, number by number, each with its check."""

from glassformer.explain.example import Example, ExampleInput, examine_run
from glassformer.explain.examples.text import examine
from glassformer.explain.figures.attention import view
from glassformer.explain.trace import Trace, trace

__all__ = ["Example", "ExampleInput", "Trace", "examine", "examine_run", "trace", "view"]
