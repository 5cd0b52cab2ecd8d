"""A node's side of measuring on a Ray cluster: an actor that answers the messages of a search by a worker of its own machine.

Messages are bytes (msgpack), so that no object of the search is unpickled on a node, or of a node in the search.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, assert_never

import msgspec

from tatami.core.codec import from_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.target import Target
from tatami.ledger.records import revision, target_hash
from tatami.runtime.building.temporary import build_folder
from tatami.search.measuring.measurer import WORKER, Ended, Limits, Measurer, Outcome, Verdict, memory_limit
from tatami.search.measuring.messages import Add, Clocked, Clocks, Done, Drop, Open, Refused, Timed, Turns, Wrong
from tatami.storage.dump import write_bytes


class Setup(msgspec.Struct, frozen=True):
    """The first message. `command`: of workers, empty for the node's own; `limits`: seconds by the step of a worker."""

    target: dict[str, object]
    command: tuple[str, ...]
    limits: dict[str, float]


class Greeting(msgspec.Struct, frozen=True):
    """A node about itself: its name, the hash of its machine, the state of its Tatami. `fault`: the reason why it cannot say so."""

    node: str
    machine: str = ""
    revision: str = ""
    fault: str = ""


class Asked(msgspec.Struct, frozen=True):
    """A request of the search. `files`: the documents in the folder that it names, by their paths in it."""

    request: Open | Add | Turns | Clocks | Drop
    files: dict[str, bytes] = {}


class Over(msgspec.Struct, frozen=True, tag="over"):
    """A program crashed or hung on the node, and its worker was ended."""

    name: str
    verdict: Verdict
    why: str


Answered: TypeAlias = Done | Wrong | Refused | Timed | Clocked | Over


def files_in(folder: str) -> dict[str, bytes]:
    """The documents in a folder, for a node that does not see it."""
    root = Path(folder)
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


class Host:
    """The actor. Its methods take and give bytes."""

    def __init__(self, setup: bytes) -> None:
        self._setup = msgspec.msgpack.decode(setup, type=Setup)
        self._folders = build_folder()
        self._folder = self._folders.__enter__()
        self._count = 0
        self._measurer: Measurer | None = None
        self._is_ended = False

    def greet(self) -> bytes:
        """The facts by which the search knows whether this node may measure."""
        node = socket.gethostname()
        try:
            machine = target_hash(from_builtins(self._setup.target, Target, "target"))
            found = Greeting(node, machine, revision())
        except TatamiError as error:
            found = Greeting(node, fault=str(error))
        return msgspec.msgpack.encode(found)

    def ask(self, data: bytes) -> bytes:
        """The answer to one request of the search, in bytes."""
        asked = msgspec.msgpack.decode(data, type=Asked)
        try:
            answer = self._answer(asked.request, asked.files)
        except Exception:
            if not self._is_ended:
                raise
            answer = Over("", "crashed", "the search left this node")  # nobody reads it
        return msgspec.msgpack.encode(answer)

    def end(self) -> None:
        """End the worker and remove the folder: Ray ends an actor without running Python to its end. It is called while `ask` may
        still wait for the worker."""
        self._is_ended = True
        if self._measurer is not None:
            self._measurer.close()
        self._folders.__exit__(None, None, None)

    def _answer(self, request: Open | Add | Turns | Clocks | Drop, files: Mapping[str, bytes]) -> Answered:
        try:
            match request:
                case Open():
                    self._open(msgspec.structs.replace(request, folder=self._kept(files), memory=memory_limit()))
                    return Done()
                case Add():
                    folder = self._kept(files) if request.folder else ""
                    return _told(request.name, self._opened.add(request.name, request.decisions, folder))
                case Turns():
                    return Timed(self._opened.turns(request.names, request.count, request.seed))
                case Clocks():
                    return Clocked(self._opened.clocks(request.names, request.count))
                case Drop():
                    self._opened.drop(request.name)
                    return Done()
                case _:
                    assert_never(request)
        except Ended as ended:
            return Over(ended.name, ended.outcome.verdict, ended.outcome.why)

    @property
    def _opened(self) -> Measurer:
        assert self._measurer is not None, "the first request opens a program"
        return self._measurer

    def _open(self, opened: Open) -> None:
        if self._measurer is None:
            command = self._setup.command or WORKER
            self._measurer = Measurer(opened, Limits(**self._setup.limits), command)
        else:
            self._measurer.reopen(opened)

    def _kept(self, files: Mapping[str, bytes]) -> str:
        """A folder of this node with the documents of a request."""
        self._count += 1
        folder = Path(self._folder) / str(self._count)
        for name, content in files.items():
            path = folder / name
            assert path.resolve().is_relative_to(folder.resolve()), name
            write_bytes(path, content)
        return str(folder)


def _told(name: str, outcome: Outcome) -> Answered:
    match outcome.verdict:
        case "right":
            return Done()
        case "wrong":
            return Wrong(outcome.why)
        case "refused":
            return Refused(outcome.why)
        case _:
            return Over(name, outcome.verdict, outcome.why)
