"""Seeing inside: what a model computed for an example, number by number, each with its check."""

from glassformer.explain.example import Example, examine
from glassformer.explain.trace import Trace, trace

__all__ = ["Example", "Trace", "examine", "trace"]
