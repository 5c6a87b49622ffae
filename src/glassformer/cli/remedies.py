"""Advice of each command in place of a setting that its run's configuration would need."""

import functools
from collections.abc import Callable
from typing import Any

WITH_CONFIGURATION = ("train", "demo")
"""Commands that read a configuration: they advise its settings."""

WITHOUT = {"data.max_line_bytes": "raise --max-line-bytes"}
"""Advice of every other command, by setting."""

REMEDIES = {
    "evaluate": {
        "data.date": "name a table to measure the run on",
        "data.date=''": "take the column out",
        "data.split": "name a table to measure the run on",
        "data.text_column": "name the columns in it as they were named for training",
    },
    "forecast": {
        "data.date": "correct --date, or give --date '' where there is none",
        "data.date=''": "give --date '' to leave it out",
        "data.missing": "give --missing previous",
    },
}
"""Advice of one command, by setting. A setting that is not here has no counterpart there."""


def advise(verb: str, command: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``command``, so that a data error advises what can be done with ``verb``."""
    if verb in WITH_CONFIGURATION:
        return command
    advice = WITHOUT | REMEDIES.get(verb, {})

    @functools.wraps(command)
    def advised(*arguments: Any, **named: Any) -> None:
        from glassformer.errors import DataError

        try:
            command(*arguments, **named)
        except DataError as error:
            raise DataError(error.message(advice)) from None

    return advised
