"""Errors that a user can mend; the command line prints their text on one line and exits with code 2."""

import difflib
from collections.abc import Mapping


class GlassformerError(ValueError):
    """Base class of all of them."""


class ConfigError(GlassformerError):
    """A configuration that cannot be used."""


class DataError(GlassformerError):
    """Files or text that cannot be used.

    ``where`` is a file, with its line and column if known; ``remedy`` helps anywhere. ``advice`` helps where there is a
    configuration, since it changes ``setting``; a command without one has advice of its own.
    """

    def __init__(self, fault: str, *, where: str = "", remedy: str = "", setting: str = "", advice: str = "") -> None:
        self.where, self.fault, self.remedy = where, fault, remedy
        self.setting, self.advice = setting, advice
        super().__init__(self._message(advice))

    def message(self, advice: Mapping[str, str]) -> str:
        """The message with ``advice``, by setting, in place of that for a configuration."""
        return self._message(advice.get(self.setting, "")) if self.setting else str(self)

    def at(self, where: str) -> "DataError":
        """The same error inside ``where``, as a line is inside a file."""
        place = ", ".join(filter(None, (where, self.where)))
        parts = {"remedy": self.remedy, "setting": self.setting, "advice": self.advice}
        return DataError(self.fault, where=place, **parts)

    def _message(self, advice: str) -> str:
        ways_out = ", or ".join(filter(None, (self.remedy, advice)))
        return ": ".join(filter(None, (self.where, "; ".join(filter(None, (self.fault, ways_out))))))


class CheckpointError(GlassformerError):
    """A checkpoint or run folder that cannot be used."""


def nearest(name: str, known: list[str], before: str = "") -> str:
    """A hint naming the known word that ``name`` most resembles, or all of them when none does.

    ``before`` is the section or folder in which they are known, written before the one that is meant.
    """
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {before}{close[0]}?" if close else f"known: {', '.join(sorted(known))}"
