"""Errors that a user can mend; the command line prints their text on one line and exits with code 2."""

import difflib


class GlassformerError(ValueError):
    """Base class of all of them."""


class ConfigError(GlassformerError):
    """A configuration that cannot be used."""


class DataError(GlassformerError):
    """Files or text that cannot be used."""


class CheckpointError(GlassformerError):
    """A checkpoint or run folder that cannot be used."""


def nearest(name: str, known: list[str], before: str = "") -> str:
    """A hint naming the known word that ``name`` most resembles, or all of them when none does.

    ``before`` is the section or folder in which they are known, written before the one that is meant.
    """
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {before}{close[0]}?" if close else f"known: {', '.join(sorted(known))}"
