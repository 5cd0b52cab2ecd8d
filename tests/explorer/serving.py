"""A served page of the digits network, for tests and pictures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from tatami.decisions import Decisions
from tatami.explorer.messages import Edit
from tatami.explorer.serve import Server
from tests.explorer.pages import DIGITS, page_of

EDIT = Edit(str(DIGITS), "cpu:avx2", {}, None, False, Decisions())
"""The compilation that edits start from."""


@contextmanager
def running(limit: float = 60.0) -> Iterator[Server]:
    """A server in a thread of this process, ended afterwards. `limit`: seconds of an edit."""
    server = Server(page_of(DIGITS), EDIT, "tatami.cli.explore_worker", limit)
    config = uvicorn.Config(server.application(), host="127.0.0.1", port=0, log_level="error", access_log=False)
    serving = uvicorn.Server(config)
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not serving.started:
        assert time.monotonic() < until
        time.sleep(0.02)
    server.port = serving.servers[0].sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        serving.should_exit = True
        thread.join(20)
