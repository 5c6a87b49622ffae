"""Settings of the web application."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from glassformer.config import Config
from glassformer.errors import CheckpointError, DataError

READ_TEXTS = ("translation", "language", "masked", "classification", "tagging")
READ_FILES = ("images", "forecasting")
"""Tasks of explored models, by what they read."""


class WebSettings(Config):
    """Address, key and limits of one server."""

    host: str = "127.0.0.1"
    """Address to bind; the explorer binds the loopback interface only."""
    port: int = Field(0, ge=0, lt=65536)
    """Port; 0 takes a free one."""
    token: str = Field(default_factory=lambda: secrets.token_urlsafe(24))
    """Key of every request: in the address of the first, then in a cookie."""
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """Values of the header Host that are answered, without ports; others are a sign of DNS rebinding."""
    inputs: tuple[Path, ...] = ()
    """Images or tables of the command line; an address names them by their number only."""
    max_body_bytes: int = Field(1_000_000, gt=0)
    """Largest body of a request."""
    max_characters: int = Field(4_000, gt=0)
    """Longest source or target text."""
    max_tokens: int = Field(512, gt=0)
    """Longest input of the model, in tokens."""
    max_traces: int = Field(24, gt=0)
    """Traces in memory; the least recently used one is dropped."""
    max_trace_bytes: int = Field(1 << 30, gt=0)
    """Bytes of all traces in memory; at least one trace is kept."""


def check_explorable(path: object, task: str, inputs: Sequence[Path] = ()) -> None:
    """Raise ``CheckpointError`` for an unknown task, ``DataError`` for files that are not there or not read."""
    if task not in READ_TEXTS + READ_FILES:
        known = ", ".join(READ_TEXTS + READ_FILES)
        raise CheckpointError(f"{path}: task={task!r} cannot be explored; known: {known}")
    if inputs and task in READ_TEXTS:
        raise DataError(f"{inputs[0]}: a run of {task} reads texts, not files; type the text into the page")
    for file in inputs:
        if not file.is_file():
            raise DataError(f"{file}: there is no such file; name an image or a table")
