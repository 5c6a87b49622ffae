"""Routes of the explorer. Nothing here imports PyTorch: the session is made in the worker, while the page opens."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from glassformer.errors import GlassformerError
from glassformer.web import explorer
from glassformer.web.settings import WebSettings
from glassformer.web.worker import ClientGoneError, Worker

if TYPE_CHECKING:
    from glassformer.web.explorer.session import Session

Result = TypeVar("Result")
logger = logging.getLogger("uvicorn.error")
FRAGMENT = "x-fragment"
"""Header of requests by the page's own script, which wait for the model; a new page shows that it is loading.

``first`` asks for what is quick, and analyses that take long follow; ``whole`` asks for all.
"""
BYTES = "application/octet-stream"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STATIC = files("glassformer.web.explorer") / "static"
SERVED = {file.name: file for file in STATIC.iterdir() if Path(file.name).suffix in TYPES}
SERVED["palette.css"] = files("glassformer") / "explain" / "page" / "palette.css"  # importing explain takes a second
"""The files that the page may load, by name."""


class Explorer:
    """Runs and the worker that computes their pages."""

    def __init__(self, run: Path, settings: WebSettings, others: Sequence[Path] = ()) -> None:
        self.worker = Worker()
        self.session: Future[Session] = self.worker.submit(
            lambda: explorer.Session(run, settings, others, lambda: self.worker.has_waiting_jobs)
        )
        self.worker.submit(lambda: explorer.render_page(self.session.result(), ""))  # load the model at once
        self._advancing = False

    async def compute(self, request: Request, job: "Callable[[Session], Result]") -> Result:
        """The result of ``job`` in the worker thread."""
        return await self.worker.run(lambda: self._answer(job), request.is_disconnected)

    def _answer(self, job: "Callable[[Session], Result]") -> "Result":
        """In the worker: the result of ``job``, and a start of what it asked to be computed piece by piece."""
        session = self.session.result()
        result = job(session)
        if session.jobs.active and not self._advancing:
            self._advancing = True
            self.worker.submit(self._advance, background=True)
        return result

    def _advance(self) -> None:
        """In the worker: one piece of each job. The next one queues behind the requests that came meanwhile."""
        self._advancing = self.session.result().jobs.step()
        if self._advancing:
            self.worker.submit(self._advance, background=True)


def explorer_routes(one: Explorer) -> APIRouter:
    """The page, its files and its numbers."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page(request: Request) -> Response:
        """The page of an address; until the model is loaded, one that asks again."""
        if not one.session.done() and FRAGMENT not in request.headers:
            return HTMLResponse((STATIC / "loading.html").read_text(encoding="utf-8"))
        return await _page(one, request)

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        """A style sheet, script or picture of the page."""
        if name not in SERVED:
            return PlainTextResponse("There is no such file.\n", 404)
        return Response(SERVED[name].read_bytes(), media_type=TYPES[Path(name).suffix])

    @router.get("/shades.css")
    async def shades(request: Request) -> Response:
        """Colors of numbers, by the classes of table cells."""
        return await _answer(one, request, lambda session: Response(session.shades(), media_type="text/css"))

    @router.get("/checkpoints")
    async def checkpoints(request: Request) -> Response:
        """Name and label of each checkpoint of a run, for the page's menu while the run is training."""
        run = request.query_params.get("run", "")

        def job(session: "Session") -> Response:
            return JSONResponse([[one.name, one.label] for one in session.checkpoints(run)])

        return await _answer(one, request, job)

    @router.post("/atlas/{action}")
    async def atlas(action: str, request: Request) -> Response:
        """Stop the atlas of an address, or go on with it."""
        query = request.url.query

        def job(session: "Session") -> Response:
            explorer.control_atlas(session, query, action)
            return Response(status_code=204)

        return await _answer(one, request, job)

    _add_numbers(router, one)
    return router


def _add_numbers(router: APIRouter, one: Explorer) -> None:
    """Routes of numbers: for the sliders, for the canvas, and as files."""

    @router.get("/logits")
    async def logits(request: Request) -> Response:
        """Logits of the selected step, little-endian float32, for the sliders of the output."""
        query = request.url.query
        return await _answer(one, request, lambda session: Response(session.logits(query), media_type=BYTES))

    @router.get("/matrix")
    async def matrix(request: Request) -> Response:
        """Numbers of a region of the selected tensor, little-endian float32, for the canvas."""
        query = request.url.query
        return await _answer(one, request, lambda session: Response(session.matrix(query), media_type=BYTES))

    @router.get("/export/{name}")
    async def export(name: str, request: Request) -> Response:
        """A panel of an address as a file: a picture, a table, tensors, Python lines, or the offline report."""
        query = request.url.query

        def job(session: "Session") -> Response:
            file = explorer.export_panel(session, query, name)
            headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
            return StreamingResponse(file.pieces, media_type=file.media_type, headers=headers)

        return await _answer(one, request, job)


async def _page(one: Explorer, request: Request) -> Response:
    """A page, or a part of it for the page's own script. Long analyses end when another view waits."""
    query, part = request.url.query, request.headers.get(FRAGMENT)

    def job(session: "Session") -> Response:
        try:
            page = explorer.render_page(session, query, complete=part != "first")
        except explorer.ViewInterruptedError:
            if part is not None:  # the script asks again; a view that nobody sees would delay the other one
                return PlainTextResponse("Another view came first; ask again.\n", 503)
            page = explorer.render_page(session, query, complete=False)
        return HTMLResponse(page.html, page.status)

    return await _answer(one, request, job)


async def _answer(one: Explorer, request: Request, job: "Callable[[Session], Response]") -> Response:
    """The response of ``job``; an error is a line of text, with status 422 if the user can mend it, else 500.

    Texts of the user are in addresses and in messages of errors, so only the kind of an unexpected error is logged.
    """
    try:
        return await one.compute(request, job)
    except (ClientGoneError, asyncio.CancelledError):  # cancelled: the server ends
        return Response(status_code=499)
    except GlassformerError as error:
        return PlainTextResponse(f"{error}\n", 422)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        logger.error("a view failed: %s in %s, line %d", type(error).__name__, place.filename, place.lineno)
        return PlainTextResponse("This view failed; go back, and please report its address.\n", 500)
