"""Advice in data errors, rephrased for commands that take no configuration."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

WITHOUT_SETTINGS = {
    # tables
    ", or set data.missing=previous": "",
    ", or name the columns to use in data.columns": "",
    "; leave it out by naming data.columns": ", and the model was trained on it; fill it in",
    "which data.columns names": "which the model was trained on",
    "which data.date names": "which had the dates when the model was trained",
    "; or set data.date='' where there is none": "",
    "or set data.date='' and name data.columns": "or take the column out",
    "lower data.context or data.horizon, or give the part more of data.split": "name a table to measure the run on",
    r"data.split=\[.*\] asks for (\d+); lower it": r"the run divides \1; name a table to measure it on",
    # texts and images
    "set data.text_column and data.label_column": "name the columns in it as they were named for training",
    "data.image_size and data.channels say": "the model sees",
    "arrays are taken as they are, so set these to their shape": "scale them to that, or give folders of pictures",
    "add images of it to data.train, or remove it here": "take its images out",
    # text files
    "raise data.max_line_bytes": "raise --max-line-bytes",
    # the token cache
    "; set data.cache to a folder of your own": "; try again",
    "set data.cache to a folder that is writable and has room": "make that folder writable, with room in it",
    "set data.cache to a folder": "name a folder in the environment variable XDG_CACHE_HOME",
}
"""From patterns of advice to what can be done with a trained run; earlier ones go first."""

OF_FORECAST = {
    "set data.missing=previous": "give --missing previous",
    "which data.date names": "which --date names",
    "set data.date='' and name data.columns": "give --date '' to leave it out",
    "set data.date=''": "give --date ''",
}
"""The options of ``glassformer forecast`` for these settings."""


@contextmanager
def rephrase(phrases: Mapping[str, str]) -> Iterator[None]:
    """Replace the patterns of ``phrases`` in the message of a ``DataError``."""
    from glassformer.errors import DataError

    try:
        yield
    except DataError as error:
        text = str(error)
        for pattern, replacement in phrases.items():
            text = re.sub(pattern, replacement, text)
        raise DataError(text) from None
