"""Routes of the server. One asyncio loop answers all clients; the worker's thread computes."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tatami.core.diagnostic import TatamiError
from tatami.generation.engine import Told
from tatami.generation.generator import Generator, Prompt
from tatami.generation.sequences import Sequence
from tatami.serve.answers import Form
from tatami.serve.bodies import MOST_CHOICES, BadRequest, Chat, Completion, error_body, read_body
from tatami.serve.metrics import Metrics
from tatami.serve.worker import Worker

MOST_BODY = 1 << 20
"""Maximum bytes of a request's body."""
BODY_SECONDS = 20.0
"""Maximum seconds for a body to arrive."""
LOCAL = frozenset(["localhost", "127.0.0.1", "[::1]"])
"""Hosts that a request without a key may name: a page of another host in a browser may not reach a server of this machine."""
Piece = tuple[int, str]
"""Index of a sequence, and the text that it has more; "" at its end."""


class Server:
    """One model and its clients. `key`: what a client has to send as its bearer token; None: local clients, without one."""

    def __init__(self, generator: Generator, model: str, *, key: str | None = None, places: int = 64) -> None:
        self.generator, self.model, self.key = generator, model, key
        self.metrics = Metrics()
        self.worker = Worker(generator.engine, places, self.metrics)
        self.created = int(time.time())

    def app(self) -> Starlette:
        """The ASGI application of all routes, which starts and ends the worker."""
        routes = [
            Route("/v1/completions", self._answering(self.completions), methods=["POST"]),
            Route("/v1/chat/completions", self._answering(self.chat), methods=["POST"]),
            Route("/v1/models", self._answering(self.models), methods=["GET"]),
            Route("/v1/models/{name:path}", self._answering(self.models), methods=["GET"]),
            Route("/metrics", self._answering(self.show_metrics), methods=["GET"]),
            Route("/health", self._answering(self.health, needs_key=False), methods=["GET"]),
        ]
        return Starlette(routes=routes, lifespan=self._life, exception_handlers={HTTPException: self._refuse})

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        self.worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.worker.close)

    # -- around every request ------------------------------------------------------------------
    def _answering(
        self, handler: Callable[[Request], Awaitable[Response]], *, needs_key: bool = True
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                if needs_key:
                    self._check_access(request)
                response = await handler(request)
            except BadRequest as error:
                response = _json(error_body(error), error.status)
            except ClientDisconnect:
                response = Response(status_code=499)
            self.metrics.add("tatami_requests_total", label=f'status="{response.status_code}"')
            return response

        return answer

    async def _refuse(self, _: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        self.metrics.add("tatami_requests_total", label=f'status="{status}"')
        why = {404: "there is no such page", 405: "this page takes another method"}.get(status, "the request failed")
        return _json(error_body(BadRequest(why, status=status)), status)

    def _check_access(self, request: Request) -> None:
        if self.key is None:
            origin = request.headers.get("origin")  # a browser sends that of the page which asks
            if not _is_local(request.headers.get("host", "")) or (
                origin is not None and not _is_local(origin.partition("://")[2])
            ):
                raise BadRequest("without a key the server is for this machine", status=403)
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), f"Bearer {self.key}".encode()):
            raise BadRequest("the key is missing or wrong", status=401, code="invalid_api_key")

    async def _body(self, request: Request) -> bytes:
        found = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    found += part
                    if len(found) > MOST_BODY:
                        raise BadRequest(f"a body has at most {MOST_BODY} bytes", status=413)
        except TimeoutError:
            raise BadRequest("the body did not arrive in time", status=408) from None
        return bytes(found)

    # -- pages -----------------------------------------------------------------------------------
    async def completions(self, request: Request) -> Response:
        """Answer POST /v1/completions."""
        body = read_body(await self._body(request), Completion, self.model)
        return await self._answer(request, body, [(p, body.most) for p in body.prompts()])

    async def chat(self, request: Request) -> Response:
        """Answer POST /v1/chat/completions."""
        body = read_body(await self._body(request), Chat, self.model)
        assert self.generator.tokenizer is not None
        try:
            tokens = await asyncio.to_thread(self.generator.tokenizer.conversation, [m.plain() for m in body.messages])
        except TatamiError as error:
            raise BadRequest(error.diagnostics[0].why, param="messages") from None
        return await self._answer(request, body, [(tokens, body.most or self.generator.engine.context)])

    async def models(self, request: Request) -> Response:
        """Answer GET /v1/models and GET /v1/models/NAME."""
        model = {"id": self.model, "object": "model", "created": self.created, "owned_by": "tatami"}
        name = request.path_params.get("name")
        if name is None:
            return _json({"object": "list", "data": [model]})
        if name != self.model:
            raise BadRequest(f"the model {name[:80]!a} is not served", status=404, code="model_not_found")
        return _json(model)

    async def health(self, _: Request) -> Response:
        """Answer GET /health: 200 while the worker is alive, else 503."""
        alive = self.worker.is_alive
        return _json({"status": "ok" if alive else "ending"}, 200 if alive else 503)

    async def show_metrics(self, _: Request) -> Response:
        """Answer GET /metrics in the text format of Prometheus."""
        return PlainTextResponse(self.metrics.text(self.worker.now()), media_type="text/plain; version=0.0.4")

    # -- text ------------------------------------------------------------------------------------
    async def _answer(self, request: Request, body: Completion | Chat, prompts: list[tuple[Prompt, int]]) -> Response:
        """The answers to all prompts, `n` of each, whole or as events."""
        count = body.n or 1
        if len(prompts) * count > MOST_CHOICES:
            raise BadRequest(f"{len(prompts) * count} answers; {MOST_CHOICES} is the most", param="n")
        sequences: list[Sequence] = []
        for i, (prompt, most) in enumerate(prompts):
            for j in range(count):
                how = body.sampling(i * count + j)
                try:
                    sequence = await asyncio.to_thread(self.generator.sequence, prompt, most, how, body.stops)
                except TatamiError as error:
                    raise BadRequest(error.diagnostics[0].why, param=error.diagnostics[0].at) from None
                if not j:
                    await asyncio.to_thread(self.worker.check, sequence.prompt)
                    prompt = sequence.prompt  # tokens of a prompt that fits serve all its answers
                sequences.append(sequence)
        job = Job(sequences, self.metrics)
        self.worker.submit(job.told())
        read = sum(len(s.prompt) for s in sequences[::count])
        self.metrics.add("tatami_prompt_tokens_total", read)
        form = Form(self.model, chat=isinstance(body, Chat))
        if body.stream:
            wants_usage = body.stream_options is not None and body.stream_options.include_usage
            return Events(job, form, read if wants_usage else None)
        await job.finished(request)
        if any(s.reason in ("cancelled", "fault") for s in sequences):
            raise BadRequest("the model failed, or the server is ending", status=503)
        return Response(form.whole(sequences, read), media_type="application/json")


class Job:
    """The sequences of one request, on the side of the loop."""

    def __init__(self, sequences: list[Sequence], metrics: Metrics) -> None:
        self.sequences, self.metrics = sequences, metrics
        self.loop = asyncio.get_running_loop()
        self.pieces: asyncio.Queue[Piece] = asyncio.Queue()
        self.started = time.monotonic()
        self.left = len(sequences)

    def told(self) -> list[tuple[Sequence, Told]]:
        """Each sequence with what the worker tells."""

        def teller(index: int) -> Told:
            def tell(_: Sequence, text: str) -> None:
                with suppress(RuntimeError):  # the loop has ended
                    self.loop.call_soon_threadsafe(self.pieces.put_nowait, (index, text))

            return tell

        return [(s, teller(i)) for i, s in enumerate(self.sequences)]

    async def each(self) -> AsyncIterator[Piece]:
        """Pieces until all sequences have ended. Whoever leaves earlier cancels the rest."""
        is_first = True
        try:
            while self.left:
                index, text = await self.pieces.get()
                if is_first:
                    self.metrics.add("tatami_first_token_seconds_total", time.monotonic() - self.started)
                    is_first = False
                self.left -= not text
                yield index, text
        finally:
            self.metrics.add("tatami_request_seconds_total", time.monotonic() - self.started)
            self.cancel()

    def cancel(self) -> None:
        """Cancel the sequences that have not ended."""
        for s in self.sequences:
            s.cancel()

    async def events(self, form: Form, usage_of: int | None) -> AsyncIterator[bytes]:
        """The answers as events. `usage_of`: number of tokens of the prompts if counts are wanted."""
        for i in range(len(self.sequences)):
            if begin := form.begin(i):
                yield begin
        async for index, text in self.each():
            yield form.piece(index, text) if text else form.end(index, self.sequences[index].reason)
        if usage_of is not None:
            yield form.usage(self.sequences, usage_of)
        yield b"data: [DONE]\n\n"

    async def finished(self, request: Request) -> None:
        """Wait for the end of all sequences, or of the client. Raises ClientDisconnect."""

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        async def done() -> None:
            async for _ in self.each():
                pass

        tasks = [asyncio.create_task(done()), asyncio.create_task(gone())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not tasks[0].done():
                raise ClientDisconnect
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Events(StreamingResponse):  # type: ignore[misc]  # the package has no types here
    """Answers as events, which end with their client. `usage_of`: number of tokens of the prompts if counts are wanted."""

    def __init__(self, job: Job, form: Form, usage_of: int | None) -> None:
        events = job.events(form, usage_of)
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            self.job.cancel()


def _is_local(place: str) -> bool:
    """True if ``host`` or ``host:port`` names this machine."""
    host, colon, port = place.rpartition(":")
    return (host if host and port.isdigit() else f"{host}{colon}{port}").lower() in LOCAL


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
