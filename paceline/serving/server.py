"""Serves the page: to whoever has the link that was printed, from no other page, and by no other name.

Everything that the page is made of comes from here; what it asks is JSON, and what it is answered are lines of JSON. How soon a request
must have come, and how many strangers may hold a connection, is here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import secrets
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import h11
import uvicorn
from pydantic import BaseModel, ValidationError
from starlette.requests import HTTPConnection
from uvicorn.protocols.http.h11_impl import H11Protocol

from paceline.reporting.axes import part_colour, what_scripts_need
from paceline.reporting.figures import KIND_LABELS
from paceline.reporting.render import SCRIPTS, environment, plotly_script
from paceline.serving.answers import Conversation
from paceline.serving.processes import Processes
from paceline.serving.question import MOST_BYTES, MOST_PLAN_S, PlanQuestion, Question, Served
from simulator.base.catalog import entries
from simulator.base.errors import InputError
from simulator.base.text import format_rough_seconds
from simulator.strategies.catalogue import SHORT_NAMES

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from paceline.serving.answers import Planner


REQUEST_S = 10.0
"""What a request may take until its header and its body are here."""
MOST_STRANGERS = 32
"""Connections without the cookie, of more than which the oldest is closed; as many are accepted at a time."""


class Connection(H11Protocol):
    """A connection that is closed where a request does not come in time, or too many others come without the cookie."""

    known = False
    """Whether a request on it had the cookie."""
    _late: asyncio.TimerHandle | None = None
    _begun_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it."""
        super().connection_made(transport)
        self._begun_s = self.loop.time()
        strangers = [stranger for stranger in self.connections if isinstance(stranger, Connection) and not stranger.known]
        for stranger in sorted(strangers, key=lambda stranger: stranger._begun_s)[:-MOST_STRANGERS]:
            stranger.transport.abort()
        self._expect()

    def handle_events(self) -> None:
        """Take what has come."""
        super().handle_events()
        self.known = self.known or (self.scope is not None and self.app_state["door"].knows(HTTPConnection(dict(self.scope)).cookies))
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        super().connection_lost(exc)
        if self._late is not None:
            self._late.cancel()

    def _expect(self) -> None:
        """Have it closed where a request, or the rest of one, does not come in time."""
        comes = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if comes and self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self.transport.abort)
        elif not comes and self._late is not None:
            self._late.cancel()
            self._late = None


class Server(uvicorn.Server):
    """A server that says nothing of what its own end cuts off."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all connections."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


_SHARED = ("format.js", "axes.js", "plots.js", "traces.js")
"""Of the report's scripts, what draws a figure."""


def page_html(served: Served) -> str:
    """The page: a frame, which the first answer fills."""
    begins = {
        "text": served.text,
        "name": served.name,
        "most_bytes": MOST_BYTES,
        "needed": what_scripts_need(),
        "kinds": [(kind, part_colour(kind), label) for kind, label in KIND_LABELS.items()],
    }
    lists = {"strategies": list(SHORT_NAMES), "clusters": list(entries("clusters"))}
    return (
        environment()
        .get_template("live.html")
        .render(begins=begins, name=served.name, plan_most=format_rough_seconds(MOST_PLAN_S), **lists)
    )


@lru_cache(maxsize=1)
def script() -> str:
    """The page's script: its own, and the report's as a function that is called for each report that is shown."""
    return environment().get_template("live.js").render(shared=_SHARED, scripts=SCRIPTS)


@lru_cache(maxsize=1)
def style() -> str:
    """The report's styles, and what the page has beside it."""
    made = environment()
    return "".join(made.get_template(name).render() for name in ("report.css", "page.css", "live.css"))


AskedT = TypeVar("AskedT", bound=BaseModel)

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that no other one reaches."""
_MOST_BODY = 512 * 1024
_MOST_ASKING = 32
"""Questions that are answered at a time: of more the oldest is left."""
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Door:
    """Lets in who has the link.

    Parameters
    ----------
    host, port
        Where the page is.
    names
        By which names browsers may call it.
    once
        Whether the link opens it only once: afterwards the browser that used it has a cookie.
    """

    def __init__(self, host: str, port: int, *, once: bool = True) -> None:
        self.host, self.port, self.once = host, port, once
        self._token: str | None = secrets.token_urlsafe(24)
        self._cookie = secrets.token_urlsafe(32)
        self._name = f"paceline-{port}"

    @property
    def link(self) -> str:
        """Return what is to be opened."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={self._token}"

    def is_called(self, host: str) -> bool:
        """Return whether a browser calls the page by a name of its own: another name may be one that a stranger makes lead here."""
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        here = (*LOOPBACK, socket.gethostname())
        if self.host in LOOPBACK:
            mine = name in LOOPBACK
        elif self.host in ("0.0.0.0", "::"):  # noqa: S104 - the user's own choice
            mine = name in here or _is_address(name)  # neither of which a stranger's page can use
        else:
            mine = name in (self.host, *here)
        return port == self.port and mine

    def opens(self, token: str) -> bool:
        """Return whether a link's token is the right one; it is used up where it opens only once."""
        right = self._token is not None and hmac.compare_digest(token.encode(), self._token.encode())
        if right and self.once:
            self._token = None
        return right

    def knows(self, cookies: dict[str, str]) -> bool:
        """Return whether a browser has come in by the link."""
        return hmac.compare_digest(cookies.get(self._name, "").encode(), self._cookie.encode())

    def set_cookie(self, response: Response) -> None:
        """Let a browser in from now on."""
        response.set_cookie(self._name, self._cookie, httponly=True, samesite="strict", path="/")


def _is_address(name: str) -> bool:
    """Return whether a name is an address as numbers."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class _Guard:
    """Refuses what no page of ours asks: by another name, from another page, without the cookie, or too much."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing here answers web sockets
            await self._app(scope, receive, send)
            return
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse

        request = Request(scope)
        refused = self._refused(request)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in there]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        app = self._app if refused is None else PlainTextResponse(refused[1], status_code=refused[0])
        await app(scope, receive, with_headers)

    def _refused(self, request: Request) -> tuple[int, str] | None:
        """Status and reason; None where it may be answered."""
        headers = request.headers
        if not self._door.is_called(headers.get("host", "")):
            return 421, "This page is not known by that name; open the link that was printed."
        origin, own = headers.get("origin"), f"http://{headers.get('host', '')}"
        if origin is not None and origin != own:
            return 403, "Other pages may not ask here."
        entering = request.method == "GET" and request.url.path in ("/", "/enter.js")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") and not entering:
            return 403, "Other pages may not ask here."
        if request.method == "POST" and (origin is None or not headers.get("content-type", "").startswith("application/json")):
            return 403, "Only the page itself may ask."
        try:
            length = int(headers.get("content-length", "0"))
        except ValueError:
            length = -1
        if not 0 <= length <= _MOST_BODY or (request.method == "POST" and "content-length" not in headers):
            return 413, f"A question has at most {_MOST_BODY:,} bytes."
        if not entering and not self._door.knows(request.cookies):
            return 403, "Open the link that was printed where the page is served."
        return None


def application(served: Served, processes: Processes, door: Door, plan: Planner) -> Starlette:
    """The page and its answers, as an ASGI application.

    Parameters
    ----------
    served
        What the page begins with.
    processes
        That work.
    door
        Who is let in.
    plan
        Makes a plan.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    conversation = Conversation(served, processes, plan)
    asking: dict[str, asyncio.Task[None]] = {}

    async def page(request: Request) -> Response:
        token = request.query_params.get("token")
        if token is not None and door.opens(token):
            # a page of its own, so that the browser sends the cookie, and keeps what stands behind # in the link
            response = HTMLResponse('<!DOCTYPE html><meta charset="utf-8"><title>Paceline</title><script src="/enter.js"></script>')
            door.set_cookie(response)
            return response
        if not door.knows(request.cookies):
            used = "This link has been used, and opens the page only once. " if token is not None else ""
            return PlainTextResponse(
                f"{used}Open the link that was printed where the page is served, or begin again there.", status_code=403
            )
        return HTMLResponse(page_html(served))

    async def enter(_: Request) -> Response:
        return Response('location.replace("/" + location.hash);', media_type="text/javascript")

    def of_text(make: Callable[[], str], kind: str) -> Callable[[Request], Any]:
        async def give(_: Request) -> Response:
            return Response(make(), media_type=kind, headers={"cache-control": "private, max-age=86400"} if make is plotly_script else None)

        return give

    def asking_with(kind: type[AskedT], answer: Callable[[Request, AskedT], Awaitable[Response]]) -> Callable[[Request], Any]:
        async def give(request: Request) -> Response:
            try:
                asked = kind.model_validate_json(await request.body())
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
                return JSONResponse({"kind": "failed", "text": text}, status_code=400)
            return await answer(request, asked)

        return give

    def streamed(request: Request, what: str, events: AsyncGenerator[dict[str, Any], None]) -> Response:
        client = f"{what} {request.headers.get('x-client', secrets.token_hex())[:64]}"
        return StreamingResponse(lines_of(events, client, asking), media_type="application/x-ndjson")

    async def ask(request: Request, question: Question) -> Response:
        return streamed(request, "ask", conversation.answer(question))

    async def from_here(request: Request, asked: PlanQuestion) -> Response:
        return streamed(request, "plan", conversation.planned(asked.question, asked.goal))

    async def save(request: Request, question: Question) -> Response:
        return streamed(request, "save", conversation.saved(question))

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=400)  # nobody reads it

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Door]]:
        try:
            yield {"door": door}
        finally:
            processes.end()

    return Starlette(
        routes=[
            Route("/", page),
            Route("/enter.js", enter),
            Route("/live.js", of_text(script, "text/javascript")),
            Route("/live.css", of_text(style, "text/css")),
            Route("/plotly.js", of_text(plotly_script, "text/javascript")),
            Route("/ask", asking_with(Question, ask), methods=["POST"]),
            Route("/plan", asking_with(PlanQuestion, from_here), methods=["POST"]),
            Route("/save", asking_with(Question, save), methods=["POST"]),
        ],
        middleware=[Middleware(_Guard, door=door)],
        exception_handlers={ClientDisconnect: gone},
        lifespan=lifespan,
    )


async def lines_of(
    events: AsyncGenerator[dict[str, Any], None], client: str, asking: dict[str, asyncio.Task[None]]
) -> AsyncIterator[bytes]:
    """The parts of an answer, a line of JSON each; a newer question of the same page ends them, and says so."""
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(event: dict[str, Any]) -> None:
        lines.put_nowait(json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n")

    async def answer() -> None:
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    put(event)
        except Exception as error:
            logging.getLogger("uvicorn.error").exception("an answer failed")
            put({"kind": "failed", "text": f"this is a fault of Paceline: {type(error).__name__}; the terminal has more"})

    def ended(task: asyncio.Task[None]) -> None:
        """Also of one that was cancelled before it began."""
        if task.cancelled():
            put({"kind": "failed", "text": "a newer question took its place"})
        lines.put_nowait(None)

    if (older := asking.pop(client, None)) is not None:
        older.cancel()
    elif len(asking) >= _MOST_ASKING:
        asking[next(iter(asking))].cancel()
    task = asking[client] = asyncio.create_task(answer())
    task.add_done_callback(ended)
    try:
        while (line := await lines.get()) is not None:
            yield line
    finally:
        task.cancel()
        if asking.get(client) is task:
            del asking[client]


def serve(
    served: Served,
    plan: Planner,
    *,
    host: str | None = None,
    port: int = 0,
    jobs: int = 0,
    ready: Callable[[str], None] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> None:
    """Serve until the process is asked to end; arguments as of :func:`paceline.serve`, and what makes a plan."""
    from paceline.serving.answers import warmed

    listening = listening_at(host or LOOPBACK[0], port)
    door = Door(host or LOOPBACK[0], listening.getsockname()[1], once=host is None)
    processes = Processes(jobs or 2 * (os.cpu_count() or 1))
    app = application(served, processes, door, plan)
    config = uvicorn.Config(
        app, http=Connection, ws="none", lifespan="on", backlog=MOST_STRANGERS, timeout_graceful_shutdown=1, log_level="error",
        access_log=False, server_header=False,
    )  # fmt: skip
    server = Server(config)

    def told(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, "processes")

    try:
        processes.warm(warmed, served, progress=told)
        if ready is not None:
            ready(door.link)
        server.run(sockets=[listening])
    finally:
        processes.end()
        listening.close()


def listening_at(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises
    ------
    InputError
        The address is none of this machine's, or in use.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        where = f"`host` {host[:80]!r}, `port` {port}"
        raise InputError(f"{where}: cannot be served at: {reason}; leave both out for a free port of this machine") from None
    return listening
