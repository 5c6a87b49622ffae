"""The command ``glassformer``: a file a verb, and the only place that prints."""

from glassformer.cli.app import main

__all__ = ["main"]
