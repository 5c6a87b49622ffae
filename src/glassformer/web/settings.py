"""Settings of the web application."""

import secrets

from pydantic import Field

from glassformer.config import Config
from glassformer.errors import CheckpointError

EXPLORED_TASKS = ("translation", "language", "masked", "classification", "tagging")
"""Tasks whose models read texts."""


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


def check_explorable(path: object, task: str) -> None:
    """Raise ``CheckpointError`` for a run of a task that reads no text."""
    if task not in EXPLORED_TASKS:
        raise CheckpointError(
            f"{path}: is a run of task={task}, and explore reads texts; use glassformer walkthrough RUN FILE --html"
        )
