"""The node's side of measuring on a Ray cluster, without Ray: an actor that is ended leaves no files and no worker."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from tatami.decisions import Decisions
from tatami.search.measuring.measurer import Limits
from tatami.search.measuring.messages import Add, Open
from tatami.search.measuring.ray_crew import ALONE, RayCrew, RayMeasurer
from tatami.search.measuring.ray_host import Asked, Host, Over, Setup

OPENED = Open("", {}, {}, 1, 0, 0)
DEAF = (sys.executable, "-c", "import time; time.sleep(60)")
"""A worker that never answers."""


def setup(command: tuple[str, ...] = ()) -> bytes:
    return msgspec.msgpack.encode(Setup({}, command, {}))


def asked(request: Open | Add) -> bytes:
    return msgspec.msgpack.encode(Asked(request))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_an_actor_that_ends_leaves_no_folder(tmp_path: Path) -> None:
    host = Host(setup())
    host.ask(asked(OPENED))
    assert [p.name.startswith("tatami-build-") for p in tmp_path.iterdir()] == [True]
    host.end()
    assert not [*tmp_path.iterdir()]


def test_an_actor_ends_under_a_request(tmp_path: Path) -> None:
    host = Host(setup(DEAF))
    host.ask(asked(OPENED))
    answers: list[bytes] = []
    thread = threading.Thread(target=lambda: answers.append(host.ask(asked(Add("own", Decisions())))))
    thread.start()
    until = time.monotonic() + 20
    while host._measurer is None or host._measurer._process is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    process = host._measurer._process
    host.end()
    thread.join(20)
    (answer,) = (msgspec.msgpack.decode(a, type=Over) for a in answers)
    assert answer.why == "the search left this node"
    assert process.returncode is not None and not [*tmp_path.iterdir()]


def test_leaving_a_node_ends_its_actor_before_it_is_killed() -> None:
    done: list[str] = []

    def ended(by: str) -> Callable[..., None]:
        return lambda *_, **__: done.append(by)

    ray = SimpleNamespace(get=lambda answer, timeout: answer, kill=ended("kill"))
    crew = cast(RayCrew, SimpleNamespace(ray=ray, take=lambda number: done.append(f"take {number}")))
    measurer = RayMeasurer(OPENED, Limits(), (), crew=crew, share=ALONE)
    measurer._host = cast("object", SimpleNamespace(end=SimpleNamespace(remote=ended("end"))))  # type: ignore[assignment]
    measurer.close()
    measurer.close()
    assert done == ["end", "kill", "take -1"]
