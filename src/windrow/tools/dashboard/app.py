"""The dashboard over HTTP: a page, a JSON endpoint for each of its views, and server-sent events of new versions.

Without a token the page is read-only and only for this machine. A request must then name a loopback host, so that a
site that resolves its own name to 127.0.0.1 cannot read the page (DNS rebinding). With a token each request needs it,
in the header ``Authorization: Bearer`` or as the session that the form at ``/login`` begins. Redriving dead letters is
the only request that writes. It needs a token and is refused if another site sends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

import uvicorn
from anyio.to_thread import run_sync
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windrow.errors import InputError, WindrowError
from windrow.terminal.listening import BACKLOG, SECONDS, BoundedListener
from windrow.tools.dashboard.views import HISTORY_VIEWS
from windrow.tools.dashboard.watch import LongView, View, Watch, WatchedRun

STATIC: Final = Path(__file__).parent / "static"
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_LOOK: Final = 1.0
"""Seconds between two reads of the history."""
_STOPPING: Final = 3
"""Seconds that a stopping server waits for its open answers."""
_SENDING: Final = 30
"""Seconds in which the client must read what is sent to it."""
_LARGEST: Final = 64 << 10
"""Greatest size of a request in bytes."""
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def _from_tables(name: str) -> Callable[..., dict[str, Any]]:
    """Return a function that imports `windrow.tools.dashboard.tables` on its first call and calls `name` in it."""

    def call(*values: object) -> dict[str, Any]:
        from windrow.tools.dashboard import tables  # noqa: PLC0415 - Arrow only where tables are shown

        found: dict[str, Any] = getattr(tables, name)(*values)
        return found

    return call


redrive_letters = _from_tables("redrive_letters")
_VIEWS: Final[Mapping[str, View]] = {
    **HISTORY_VIEWS,
    **{name: _from_tables(name) for name in ("revisions", "dead", "late")},
    "key": _from_tables("history_of_key"),
    "why": LongView(_from_tables("why")),
}
"""The views by their names on the page and in ``/api/``."""
_OPEN: Final = ("/login", "/static/")
"""Paths that need no token."""


def create_app(runs: Sequence[WatchedRun], token: str | None = None) -> Starlette:
    """Return the application for `runs`, whose names must be distinct."""
    pages = _Pages({run.name: Watch(run, _VIEWS) for run in runs}, token)
    app = Starlette(
        routes=[
            Route("/", pages.page),
            Route("/login", pages.login, methods=["GET", "POST"]),
            Route("/events", pages.events),
            Route("/api/runs", pages.runs),
            Route("/api/redrive", pages.redrive, methods=["POST"]),
            Route("/api/{view}", pages.view),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(_Guard, pages=pages)],
        exception_handlers={WindrowError: _error, Exception: _defect},
    )
    app.state.stopping = pages.stopping
    return app


class _Pages:
    """Answers requests that the guard accepts."""

    def __init__(self, watches: Mapping[str, Watch], token: str | None) -> None:
        self._watches = watches
        self.token = token
        # set when the server stops: it waits for the end of all answers
        self.stopping = asyncio.Event()
        # the cookie is not the token: it ends with this process
        self.session = secrets.token_urlsafe(32)
        self._process = secrets.token_hex(4)

    def knows(self, request: Request) -> bool:
        """Return True if a request carries the token, or the cookie of a session that began with it."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return (kind.lower() == "bearer" and self.is_token(given.strip())) or _same(
            request.cookies.get(_cookie(request), ""), self.session
        )

    def is_token(self, given: str) -> bool:
        """Return True if a token is set and `given` equals it."""
        return self.token is not None and _same(given, self.token)

    async def page(self, request: Request) -> Response:
        """Answer with the HTML page."""
        del request
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    async def login(self, request: Request) -> Response:
        """Answer with the login form, or begin a session if the posted token is right."""
        if request.method == "GET":
            return FileResponse(STATIC / "login.html", headers={"Cache-Control": "no-cache"})
        given = parse_qs((await _body(request)).decode(errors="replace")).get("token", [""])[0]
        if not self.is_token(given.strip()):
            return RedirectResponse("/login?wrong=1", 303)
        return self.begin(RedirectResponse("/", 303), request)

    def begin(self, response: Response, request: Request) -> Response:
        """Set the session cookie."""
        is_secure = request.url.scheme == "https"
        response.set_cookie(_cookie(request), self.session, httponly=True, samesite="strict", secure=is_secure)
        return response

    async def runs(self, request: Request) -> Response:
        """Return the runs, and whether dead letters can be redriven from this page."""
        del request
        seen = [await run_sync(watch.look) for watch in self._watches.values()]
        return JSONResponse(
            {
                "runs": [
                    {
                        "name": last.run.name,
                        "checkpoint": str(last.run.checkpoint),
                        "pipeline_file": last.run.file,
                        "state": None if last.absent else last.status.state,
                    }
                    for last in seen
                ],
                "views": list(_VIEWS),
                "can_write": self.token is not None,
            },
            headers={"Cache-Control": "no-store"},
        )

    async def view(self, request: Request) -> Response:
        """Return a view as JSON; all clients get the same bytes until the history changes."""
        watch = self._watch(request)
        name = request.path_params["view"]
        if name not in _VIEWS:
            return _refusal(404, f"unknown view {name!r}")
        query = {key: value for key, value in request.query_params.items() if key != "run"}
        leaving = asyncio.create_task(_wait_until_left(request))
        try:
            is_left: Callable[[], bool] = lambda: leaving.done() or self.stopping.is_set()  # noqa: E731
            version, body = await run_sync(partial(watch.answer, name, query, is_left))
        finally:
            leaving.cancel()
        question = hashlib.sha256(json.dumps([watch.run.name, name, query]).encode()).hexdigest()[:12]
        headers = {"ETag": f'"{self._process}-{version}-{question}"', "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    async def events(self, request: Request) -> Response:
        """Send the version of a run's views each time it changes."""
        # without time to end, the stream would be cancelled, and the answer incomplete
        return EventSourceResponse(self._versions(self._watch(request)), ping=15, shutdown_grace_period=_LOOK)

    async def _versions(self, watch: Watch) -> AsyncIterator[ServerSentEvent]:
        sent = None
        while not self.stopping.is_set():
            version = (await run_sync(watch.look)).version
            if version != sent:
                yield ServerSentEvent(json.dumps({"version": version}), event="version", id=str(version))
                sent = version
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), _LOOK)

    async def redrive(self, request: Request) -> Response:
        """Redrive dead letters, or on a dry run return the outcomes that they would have."""
        if self.token is None:
            return _refusal(403, "this page is read-only: start it with --token to redrive from it")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refusal(415, "send JSON")
        watch = self._watch(request)
        try:
            asked = json.loads(await _body(request))
        except ValueError:
            return _refusal(400, "the body is not JSON")
        if not isinstance(asked, dict):
            return _refusal(400, "the body is not a JSON object")
        return JSONResponse(await run_sync(partial(redrive_letters, watch.run, asked)))

    def _watch(self, request: Request) -> Watch:
        name = request.query_params.get("run") or next(iter(self._watches))
        watch = self._watches.get(name)
        if watch is None:
            msg = f"unknown run {name!r}: choose one of {', '.join(self._watches)}"
            raise InputError(msg)
        return watch


class _Guard:
    """Refuses requests that are not allowed, and adds headers that restrict the browser to what the page needs."""

    def __init__(self, app: ASGIApp, pages: _Pages) -> None:
        self._app = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        response = self._refuse(Request(scope))
        # others are shut down when they take long
        is_admitted = response is None and not scope["path"].startswith(_OPEN)
        limit = partial(scope["app"].state.listening.limit, scope["client"]) if is_admitted else lambda _: None

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            limit(_SENDING)
            await send(message)
            limit(None)

        limit(None)
        try:
            await (response or self._app)(scope, receive, answer)
        finally:
            limit(SECONDS)

    def _refuse(self, request: Request) -> Response | None:
        """Return the response that refuses a request, or None if the request is allowed."""
        pages = self._pages
        if request.method not in {"GET", "HEAD", "POST"}:
            return _refusal(405, "only GET, HEAD and POST are supported")
        if pages.token is None:
            if _name(request.headers.get("host", "")) not in LOOPBACK:
                return _refusal(421, "this page can only be opened on this machine, as 127.0.0.1 or localhost")
        elif not request.url.path.startswith(_OPEN):
            if request.url.path == "/" and pages.is_token(request.query_params.get("token", "")):
                # remove the token from the address
                others = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
                return pages.begin(RedirectResponse(f"/{'?' if others else ''}{urlencode(others)}", 303), request)
            if not pages.knows(request):
                if request.url.path == "/":
                    return RedirectResponse("/login", 303)
                return _refusal(401, "send the token as `Authorization: Bearer TOKEN`, or log in at /login")
        # an explanation reads the whole log: other sites may not start it
        is_own = request.method == "POST" or request.url.path == "/api/why"
        return _refuse_foreign(request) if is_own else None


def _refuse_foreign(request: Request) -> Response | None:
    """Return a refusal if a page of another site made the request, otherwise None."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if (origin is not None and origin.partition("://")[2] != host) or site not in {"same-origin", "none"}:
        return _refusal(403, "this request was made by a page of another site")
    return None


async def _wait_until_left(request: Request) -> None:
    """Return once the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _name(host: str) -> str:
    """Return the host name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _cookie(request: Request) -> str:
    """Return the name of the session cookie, which contains the port.

    Browsers send a host's cookies to all of its ports.
    """
    return f"windrow_session_{request.url.port or 'default'}"


def _same(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(errors="replace"), expected.encode(errors="replace"))


async def _body(request: Request) -> bytes:
    """Return the body of a request; raise InputError if it is too long or takes too long."""
    parts = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for part in request.stream():
                parts += part
                if len(parts) > _LARGEST:
                    msg = "the request is too long"
                    raise InputError(msg)
    except TimeoutError:
        msg = f"the request was not complete within {SECONDS:g} s"
        raise InputError(msg) from None
    return bytes(parts)


def _refusal(code: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, code, headers={"Cache-Control": "no-store"})


async def _error(request: Request, exc: Exception) -> Response:
    """Answer a WindrowError with status 400 for an InputError and 503 for any other.

    An InputError is the client's mistake; other errors come from a file or a server.
    """
    del request
    return _refusal(400 if isinstance(exc, InputError) else 503, str(exc))


async def _defect(request: Request, exc: Exception) -> Response:
    """Answer an unexpected exception so that the page can show it; the server prints the traceback."""
    del request
    return _refusal(500, f"internal error of windrow: {type(exc).__name__}: {exc}")


class _Server(uvicorn.Server):
    """A server of a listening socket that ends open responses when it stops."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, listening: BoundedListener) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._listening = listening

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests until the server is stopped."""
        await super().serve(sockets or [self._listening])

    async def on_tick(self, counter: int) -> bool:
        """Shut down overdue connections, and do what uvicorn does every tenth of a second."""
        if counter % 5 == 0:
            self._listening.close_overdue()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End open event streams, close the sockets, and wait for the responses."""
        self._stopping.set()
        await super().shutdown(sockets)


def server(app: Starlette, listening: BoundedListener) -> uvicorn.Server:
    """Return a server whose `run` answers requests on a listening socket until Ctrl-C or SIGTERM."""
    app.state.listening = listening
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", ws="none", server_header=False,
        timeout_graceful_shutdown=_STOPPING, loop="asyncio", http="h11", backlog=BACKLOG,
    )  # fmt: skip
    return _Server(config, app.state.stopping, listening)


def address_of(listening: socket.socket) -> str:
    """Return the URL at which a listening socket is reached from this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not listened on
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
