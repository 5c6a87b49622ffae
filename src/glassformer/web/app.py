"""The application: one check before every route, limits, and the pages of the explorer."""

from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from glassformer.web.explorer.routes import Explorer, explorer_routes
from glassformer.web.limits import BodyLimit
from glassformer.web.security import Guard
from glassformer.web.settings import WebSettings


def create_app(run: str | Path, settings: WebSettings, others: Sequence[str | Path] = ()) -> FastAPI:
    """An ASGI application that explores ``run``, and others beside it. It reads the runs and writes nothing.

    The model is loaded in a thread of its own, so this returns at once; ``app.state.explorer`` has it.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.explorer = Explorer(Path(run), settings, [Path(other) for other in others])
    app.include_router(explorer_routes(app.state.explorer))
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=1)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(Guard, settings=settings)  # the outermost: before every route, also one that does not exist
    return app
