"""Running the application: a socket of the loopback interface, and uvicorn on it."""

import logging
import socket
from collections.abc import Callable
from contextlib import closing
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from glassformer.errors import ConfigError
from glassformer.web.settings import WebSettings


def open_socket(settings: WebSettings) -> socket.socket:
    """A listening socket; ``ConfigError`` if the port is taken.

    asyncio sets TCP_NODELAY only if the protocol is named; without it, the body of an answer waits 40 ms for the
    acknowledgment of its headers.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"port={settings.port}: cannot be used ({error.strerror}); choose another --port, or 0 for a free one"
        ) from None
    return listener


def address_of(listener: socket.socket, settings: WebSettings) -> str:
    """The address of the page, with its key."""
    return f"http://{settings.host}:{listener.getsockname()[1]}/?token={settings.token}"


class AnnouncingServer(uvicorn.Server):
    """A server that calls ``started_hook`` once it accepts requests, and ends at the first signal."""

    def __init__(self, config: uvicorn.Config, started_hook: Callable[[], None]) -> None:
        super().__init__(config)
        self._started_hook = started_hook

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started_hook()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End at once: nobody reads the answers that are open, nor what the server says of their end."""
        super().handle_exit(sig, frame)
        self.force_exit = True
        logging.disable(logging.CRITICAL)


def serve(app: ASGIApp, listener: socket.socket, started_hook: Callable[[], None]) -> None:
    """Answer requests until Ctrl-C or SIGTERM. Texts are in addresses, so no request is logged."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=30,
    )
    with closing(listener):
        AnnouncingServer(config, started_hook).run([listener])
