"""What the readers of data advise to who trains, in the words of a verb that has no configuration to change."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

WITHOUT_SETTINGS = {
    # of tables
    ", or set data.missing=previous": "",
    ", or name the columns to use in data.columns": "",
    "; leave it out by naming data.columns": ", and the model was trained on it; fill it in",
    "which data.columns names": "which the model was trained on",
    "which data.date names": "which had the dates when the model was trained",
    "; or set data.date='' where there is none": "",
    "or set data.date='' and name data.columns": "or take the column out",
    "lower data.context or data.horizon, or give the part more of data.split": "name a table to measure the run on",
    r"data.split=\[.*\] asks for (\d+); lower it": r"the run divides \1; name a table to measure it on",
    # of texts and images
    "set data.text_column and data.label_column": "name the columns in it as they were named for training",
    "data.image_size and data.channels say": "the model sees",
    "arrays are taken as they are, so set these to their shape": "scale them to that, or give folders of pictures",
    "add images of it to data.train, or remove it here": "take its images out",
    # for text files
    "raise data.max_line_bytes": "raise --max-line-bytes",
    # of the token cache
    "; set data.cache to a folder of your own": "; try again",
    "set data.cache to a folder that is writable and has room": "make that folder writable, with room in it",
    "set data.cache to a folder": "name a folder in the environment variable XDG_CACHE_HOME",
}
"""From patterns of such advice to what can be done where settings are those of the run; earlier ones go first."""


@contextmanager
def in_words(words: Mapping[str, str]) -> Iterator[None]:
    """A ``DataError`` from within says what ``words`` make of it."""
    from glassformer.errors import DataError

    try:
        yield
    except DataError as error:
        told = str(error)
        for advice, ours in words.items():
            told = re.sub(advice, ours, told)
        raise DataError(told) from None
