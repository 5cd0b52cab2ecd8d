"""The page on this machine, with plans and documents to edit: a server on 127.0.0.1 that answers who knows its token.

    GET  /TOKEN/       the page
    POST /TOKEN/edit   `messages.Asked` -> `messages.Answer`

A request needs the token in its path, this server's own Host (so that no other name leads here) and, to edit, its own Origin. An
edit is compiled in a process of its own, one at a time, which ends after LIMIT seconds. Nothing is written: what a reader keeps, the
browser saves."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from tatami.core.diagnostic import Diagnostic, diagnostic, fail
from tatami.explorer.edits import MOST_TEXT
from tatami.explorer.html import html
from tatami.explorer.ir import Explored
from tatami.explorer.messages import Answer, Asked, Edit, PlanEdit

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
"""The address that is served at: this machine alone reaches it."""
LIMIT = 60.0
"""Seconds after which the compilation of an edited plan is ended."""
GRACE = 5.0
"""Seconds after LIMIT at which a worker without its server ends itself."""
MOST_BYTES = 2 * MOST_TEXT
"""Maximum bytes of a request: the longest text that is edited, its quotes and line ends escaped."""
HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": "frame-ancestors 'none'",
}
"""Headers of every reply: nothing is kept, and no other page embeds or reads it."""


@dataclass
class Server:
    """One page being served. `edit`: the compilation that edits start from, without a request; `worker`: the module that
    is run to compile one; `limit`: its seconds; `token`: what a request has to know."""

    page: Explored
    edit: Edit
    worker: str
    limit: float = LIMIT
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    port: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def address(self) -> str:
        """The address of the page, token included."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def application(self) -> Starlette:
        """The application. Raises MissingPackage without the extra `explorer`."""
        applications, routing = _starlette()
        routes = [
            routing.Route("/{token}/", self.show, methods=["GET"]),
            routing.Route("/{token}/edit", self.change, methods=["POST"]),
        ]
        made: Starlette = applications.Starlette(routes=routes)
        return made

    def is_allowed(self, request: Request) -> bool:
        """True if a request knows the token and came to this server by its own name, from its own page."""
        known = hmac.compare_digest(str(request.path_params["token"]).encode(), self.token.encode())
        own = f"{HOST}:{self.port}"
        origin = request.headers.get("origin", f"http://{own}" if request.method == "GET" else "")
        return known and request.headers.get("host") == own and origin == f"http://{own}"

    async def show(self, request: Request) -> Response:
        """The page, with the address to send edits to."""
        if not self.is_allowed(request):
            return _reply("not found", 404)
        return _reply(html(self.page, edits="edit"), 200, "text/html; charset=utf-8")

    async def change(self, request: Request) -> Response:
        """The answer to a request of the page."""
        if not self.is_allowed(request):
            return _reply("not found", 404)
        if request.headers.get("content-type") != "application/json":
            return _answered(_refusal("request", "it is not JSON", "send it as application/json"), 415)
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_BYTES:
                why = f"it has more than {MOST_BYTES} bytes"
                return _answered(diagnostic("InputTooLarge", "request", why, "edit the document in a file"), 413)
        try:
            asked: Asked = msgspec.json.decode(bytes(body), type=Asked)
        except (msgspec.DecodeError, RecursionError) as error:
            why = f"the request cannot be read: {error}"[:300]
            return _answered(_refusal("request", why, "load the page again"))
        if isinstance(asked, PlanEdit) and asked.key not in {k.key for k in self.page.kernels if k.key}:
            return _answered(_refusal("plan", "no kernel of this page has that key", "load the page again"))
        async with self.turn:
            return _reply(await self.compiled(asked), 200, "application/json")

    async def compiled(self, asked: Asked) -> bytes:
        """The worker's answer, or that it took too long or broke."""
        edit = msgspec.structs.replace(self.edit, asked=asked, seconds=self.limit + GRACE)
        pipe = asyncio.subprocess.PIPE
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(p for p in (package, os.environ.get("PYTHONPATH", "")) if p)
        command = (sys.executable, "-P", "-m", self.worker)  # -P: no module of the folder that the user stands in
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
        )
        try:
            out, said = await asyncio.wait_for(process.communicate(msgspec.json.encode(edit)), self.limit)
        except TimeoutError:
            return _encoded(
                _refusal("edit", f"not compiled within {self.limit:g} s", "use smaller sizes (-D), or edit a dump and run it")
            )
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode != 0:
            why = said.decode(errors="replace").strip().splitlines()
            return _encoded(
                _refusal(
                    "edit", f"the compiler broke: {why[-1] if why else 'no message'}"[:400], "report it as a fault of Tatami"
                )
            )
        return out


def serve(server: Server, port: int, tell: Callable[[str], object] = print) -> None:
    """Serve until the process is ended. `tell` gets the address once the server listens. Raises TatamiError if the port is taken
    or the extra `explorer` is missing."""
    application = server.application()
    import uvicorn

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise fail("InvalidAttribute", "--port", f"port {port}: {error.strerror}", "leave --port out for a free one") from None
    with listening:
        server.port = listening.getsockname()[1]
        tell(server.address)
        config = uvicorn.Config(application, log_level="error", access_log=False, server_header=False, date_header=False)
        with contextlib.suppress(KeyboardInterrupt):  # the way to end it
            uvicorn.Server(config).run(sockets=[listening])


def _starlette() -> tuple[ModuleType, ModuleType]:
    try:
        import uvicorn  # noqa: F401
        from starlette import applications, routing
    except ModuleNotFoundError as error:
        name = str(error.name)
        raise fail("MissingPackage", name, f"the package {name!r} is not installed", 'pip install "tatami[explorer]"') from None
    return applications, routing


def _reply(content: str | bytes, status: int, kind: str = "text/plain; charset=utf-8") -> Response:
    from starlette.responses import Response

    return Response(content, status, HEADERS, kind)


def _refusal(at: str, why: str, suggestion: str) -> Diagnostic:
    return diagnostic("InvalidDocument", at, why, suggestion)


def _encoded(fault: Diagnostic) -> bytes:
    return msgspec.json.encode(Answer(faults=(fault,)))


def _answered(fault: Diagnostic, status: int = 200) -> Response:
    return _reply(_encoded(fault), status, "application/json")
