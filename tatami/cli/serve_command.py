"""The work of `tatami serve`."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from tatami.cli.terminal import show_diagnostics
from tatami.core.diagnostic import fail
from tatami.generation.generator import Generator

KEY = "TATAMI_API_KEY"
"""Environment variable of the key that clients have to send."""


class Options(msgspec.Struct, frozen=True):
    """The options of `tatami serve`, by their names there."""

    host: str
    port: int
    slots: int
    places: int
    context: int | None
    precision: str | None
    threads: int | None


def serve_command(model: str, given: Mapping[str, object]) -> None:
    """Serve a model until SIGINT or SIGTERM."""
    try:
        import uvicorn

        from tatami.serve.app import LOCAL, Server
    except ModuleNotFoundError as error:
        if error.name not in ("uvicorn", "starlette"):
            raise
        raise fail(
            "MissingPackage", error.name, f"the package {error.name!r} is not installed", 'pip install "tatami[serve]"'
        ) from None
    options = msgspec.convert(given, Options)
    host, port, slots, places = options.host, options.port, options.slots, options.places
    key = os.environ.get(KEY)
    if key is None and host not in {*LOCAL, "::1"}:
        raise fail("InvalidAttribute", "--host", f"{host[:60]!a} is reached from other machines", f"set {KEY}, or leave it out")
    if key is not None and not (key.isascii() and key.isprintable() and len(key) >= 8):
        raise fail("InvalidAttribute", KEY, "it is not a key", "use at least 8 printable ASCII characters")
    if not 0 <= port < 1 << 16 or not 1 <= places <= 1 << 16:
        raise fail("InvalidAttribute", "--port, --queue", f"{port}, {places}", "give numbers below 65536")
    generator = Generator.open(
        model, context=options.context, slots=slots, threads=options.threads, precision=options.precision
    )
    show_diagnostics(generator.warnings)
    name = Path(model).stem
    server = Server(generator, name, key=key, places=slots + places)
    web = uvicorn.Server(
        uvicorn.Config(
            server.app(),
            host=host,
            port=port,
            log_level="warning",
            limit_concurrency=512,
            server_header=False,
            access_log=False,
        )
    )
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every write to a client that has left
    with listening(host, port) as opened:
        there = opened.getsockname()[1]
        where = f"http://{f'[{host}]' if ':' in host else host}:{there}/v1"
        click.echo(f"serving {name!a} at {where}, {slots} sequences of {generator.engine.context} tokens", err=True)
        web.run(sockets=[opened])


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket at this address; port 0: any free one. Raises FileUnreadable."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        why = f"{host[:60]!a}, {port}: {error.strerror or error}"
        raise fail("FileUnreadable", "--host, --port", why, "choose another port, or end what uses it") from None
    with opened:
        yield opened
