"""Measuring on a Ray cluster (extra `ray`): a subject per node, on nodes that are machines like this one.

Such a node has the custom resource `tatami-HASH`, by the hash of this machine in the ledger; each says again what it is
before it measures. If a node is lost, no candidate is blamed: its programs are compiled on
another node, and its last request is sent there.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Protocol

import msgspec

from tatami.core.diagnostic import TatamiError, fail
from tatami.ledger.records import revision
from tatami.search.measuring.crew import NoPlace
from tatami.search.measuring.measurer import WORKER, Ended, Limits, Measurer, Outcome
from tatami.search.measuring.messages import OWN, Add, Done, Drop, Open, Reply, Request, Wrong
from tatami.search.measuring.ray_host import Answered, Asked, Greeting, Host, Over, Setup, files_in

ALONE = 0.9
"""Share of a node's resource that a lane takes, so that a node has one."""
TOGETHER = 0.1
"""Share that the measurer of the whole program takes: no lane measures while it does, so that they may share a node."""
START = 60.0
"""Seconds until a node that is free has started a process: it loads Tatami."""
REACH = 10.0
"""Seconds until an address counts as one where nothing listens."""
LOOK = 1.0
"""Seconds between two looks whether there still is a node to wait for."""
END = 5.0
"""Seconds that a node has to end its worker and remove its files."""
LOSSES = 2
"""Number of nodes lost with one request after which the candidate counts as the reason."""


def resource_name(machine: str) -> str:
    """The custom resource of the nodes that are such machines. `machine`: its hash in the ledger."""
    return f"tatami-{machine}"


class _Lost(Exception):
    """The node of a request is gone."""


class _Method(Protocol):
    def remote(self, *arguments: bytes) -> object:
        """Call it on the node; the result stands for the answer."""


class _Actor(Protocol):
    """The search's handle of a `Host` on a node."""

    greet: _Method
    ask: _Method
    end: _Method


class RayCrew:
    """The nodes of a cluster. `machine`: hash of this machine. Raises TatamiError: MissingPackage; InvalidAttribute if there is no
    cluster at the address, or no such node in it."""

    def __init__(self, address: str, machine: str, command: Sequence[str], limits: Limits) -> None:
        self.ray = _ray()
        self.machine = machine
        self.command = () if tuple(command) == WORKER else tuple(command)
        self.limits = limits
        self.taken = 0
        """Number of nodes that measure a subject, or are asked to."""
        self._lock = threading.Lock()
        self._is_ours = not self.ray.is_initialized()
        if not self._is_ours:
            self._check_joined(address)
        else:
            try:
                _reach(address)
                self.ray.init(address=address, logging_level="ERROR", log_to_driver=False)
            except Exception as error:  # Ray raises many kinds, its own and those of sockets
                why = f"there is no cluster at {address[:100]!r}: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}"
                raise fail("InvalidAttribute", "ray", why, "start one with ray start --head, and give its address") from None
        if not self.lanes():
            fault = self.no_node()
            self.close()
            raise fault

    def _check_joined(self, address: str) -> None:
        """Raise InvalidAttribute if this process has joined a cluster at another address: it can be in one only."""
        joined = str(self.ray.get_runtime_context().gcs_address)
        if address not in ("auto", joined):
            why = f"this process has joined the cluster at {joined}, not {address[:100]!r}"
            raise fail("InvalidAttribute", "ray", why, f'give ray="{joined}" or "auto", or call ray.shutdown() first')

    def take(self, number: int) -> None:
        """Count nodes that measure a subject, from any lane."""
        with self._lock:
            self.taken += number

    @property
    def resource(self) -> str:
        """The custom resource that nodes have."""
        return resource_name(self.machine)

    def lanes(self) -> int:
        """The number of nodes with the resource that are alive."""
        nodes = self.ray.nodes()
        return sum(bool(n["Alive"]) and n.get("Resources", {}).get(self.resource, 0) >= 1 for n in nodes)

    def no_node(self) -> TatamiError:
        """The diagnostic if no node can measure."""
        how = f"start nodes that are machines like this one with ray start --address … --resources '{{\"{self.resource}\": 1}}'"
        return fail("InvalidAttribute", "ray", f"no free node of the cluster has the resource {self.resource}", how)

    def measurer(self, opened: Open, *, is_alone: bool) -> RayMeasurer:
        """A measurer on a node that is free when it is first asked."""
        return RayMeasurer(opened, self.limits, self.command, crew=self, share=ALONE if is_alone else TOGETHER)

    def close(self) -> None:
        """Leave the cluster, unless the caller had joined it."""
        if self._is_ours:
            self.ray.shutdown()


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH):
            pass


def _ray() -> ModuleType:
    try:
        import ray
    except ModuleNotFoundError:
        raise fail("MissingPackage", "ray", "the package 'ray' is not installed", 'pip install "tatami[ray]"') from None
    return ray


@dataclass
class RayMeasurer(Measurer):
    """Candidates for one program at a time, in a worker of a node."""

    crew: RayCrew = field(kw_only=True)
    share: float = field(kw_only=True)
    _host: _Actor | None = None
    _is_closed: bool = False

    def reopen(self, opened: Open) -> None:
        """Turn to another program; the worker forgets the last one."""
        self.opened = opened
        self.live.clear()
        if self._host is not None:
            self._ask(opened)

    def drop(self, name: str) -> None:
        """Remove a program from the worker."""
        self.live.pop(name, None)
        if self._host is not None:
            self._ask(Drop(name))

    def close(self) -> None:
        """End the worker. One that is asked at this moment, in another thread, raises NoPlace there."""
        self._is_closed = True
        self._leave()

    def _no_place(self) -> Exception:
        """The exception if no node is free: another lane may have one for a subject, but none for the whole program."""
        fault = self.crew.no_node()
        return NoPlace(fault) if self.share == ALONE else fault

    def _leave(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            with contextlib.suppress(Exception):  # it may be gone, and the cluster with it
                self.crew.ray.get(host.end.remote(), timeout=END)
            with contextlib.suppress(Exception):
                self.crew.ray.kill(host)
            self.crew.take(-(self.share == ALONE))

    def _ask(self, request: Request, needed: Sequence[str] = ()) -> Reply:
        """The reply of a node to one request. Raises Ended, NoPlace."""
        for _ in range(LOSSES):
            try:
                if self._host is None:
                    self._start()
                if gone := [n for n in needed if n not in self.live]:
                    raise Ended(gone[0], Outcome("crashed", "it ended a worker in which it was compiled again"))
                return self._reply_of(self._sent(request))
            except _Lost:
                self._leave()
            except KeyboardInterrupt:
                self._leave()  # it still works on the request
                raise
        name = request.name if isinstance(request, Add) else needed[-1] if needed else OWN
        self.live.pop(name, None)
        raise Ended(name, Outcome("crashed", f"{LOSSES} nodes of the cluster were lost with it"))

    def _start(self) -> None:
        """A worker on a free node, with the programs that the last one had. Raises NoPlace, TatamiError, _Lost."""
        if self._is_closed:
            raise self._no_place()
        ray = self.crew.ray
        setup = Setup(self.opened.target, self.crew.command, asdict(self.limits))
        options = {"num_cpus": 0, "resources": {self.crew.resource: self.share}, "max_restarts": 0, "max_concurrency": 2}
        self._host = ray.remote(Host).options(**options).remote(msgspec.msgpack.encode(setup))
        self.crew.take(self.share == ALONE)
        self._check(self._greeting())
        self._sent(self.opened)
        for name, request in list(self.live.items()):
            reply = self._sent(request)
            if not (isinstance(reply, Done) or (isinstance(reply, Wrong) and name == OWN)):
                del self.live[name]

    def _greeting(self) -> Greeting:
        """The answer of the node to the question what it is. Raises NoPlace if none is free, _Lost."""
        assert self._host is not None
        ray, answer = self.crew.ray, self._host.greet.remote()
        until = time.monotonic() + START
        while True:
            try:
                return msgspec.msgpack.decode(ray.get(answer, timeout=LOOK), type=Greeting)
            except ray.exceptions.GetTimeoutError:
                if time.monotonic() > until or self.crew.taken > self.crew.lanes():
                    self._leave()
                    raise self._no_place() from None
            except ray.exceptions.RayActorError:
                raise _Lost from None

    def _check(self, node: Greeting) -> None:
        """Raise InvalidAttribute for a node that is not what its resource says."""
        if (node.machine, node.revision) == (self.crew.machine, revision()):
            return
        self._leave()
        if node.fault:
            why = node.fault
        elif node.machine != self.crew.machine:
            why = "its processor, caches or C compiler are not those of this machine"
        else:
            why = "it has another state of Tatami"
        at = f"node {node.node[:100]}"
        raise fail(
            "InvalidAttribute", at, f"it has the resource {self.crew.resource}, and {why}", "give it to like machines only"
        )

    def _sent(self, request: Request) -> Answered:
        folder = request.folder if isinstance(request, Open | Add) else ""
        asked = Asked(request, files_in(folder) if folder else {})
        host, exceptions = self._host, self.crew.ray.exceptions
        if host is None:  # closed by another thread
            raise self._no_place()
        try:
            data = self.crew.ray.get(host.ask.remote(msgspec.msgpack.encode(asked)))
        except exceptions.RayError as error:
            if self._is_closed:
                raise self._no_place() from None
            if not isinstance(error, exceptions.RayActorError | exceptions.NodeDiedError):
                raise
            raise _Lost from None
        if self._is_closed:  # by another thread: the worker was ended under the request
            raise self._no_place()
        return msgspec.msgpack.decode(data, type=Answered)

    def _reply_of(self, answer: Answered) -> Reply:
        if isinstance(answer, Over):
            self.live.pop(answer.name, None)
            raise Ended(answer.name, Outcome(answer.verdict, answer.why))
        return answer
