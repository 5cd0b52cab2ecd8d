"""Collectives: exchanges of arrays among the processes of a group, and who carries them out.

    all_reduce       every process gets the sum (or product, max, min) of the operands of all
    all_gather       every process gets the operands of all, one after another along axis 0
    reduce_scatter   the operands of all are combined, and process k gets part k of the result along axis 0
    all_to_all       part k of every operand along axis 0 goes to process k
    broadcast        every process gets the operand of the process `root`

A `Communicator` exchanges arrays; a program names groups and knows no communicator. One is in use per process
(`use_communicator`): torch.distributed for programs of torch.compile, MPI for programs without PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from tatami.core.diagnostic import fail

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray"

COLLECTIVES = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"})
"""Names of the operations, and of the host steps that they become."""
REDUCTIONS = ("sum", "prod", "max", "min")
"""Ways to combine the operands of all processes."""


class Collective(msgspec.Struct, frozen=True):
    """One exchange. `group`: the name of the processes that take part; `ranks`: their number; `op`: how operands are combined;
    `root`: the process, counted in the group, that sends in a broadcast; `sent`, `received`: rows of axis 0 for and from each
    process in an all_to_all, empty for equal parts."""

    name: str
    group: str
    ranks: int
    op: str = "sum"
    root: int = 0
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()


class CommunicationError(Exception):
    """The reason why an exchange failed, in the words of the library that carries it out."""


class Pending(Protocol):
    """An exchange that has begun."""

    def wait(self) -> Array:
        """The result, once it is there. Raises CommunicationError."""


class Communicator(Protocol):
    """The interface of what exchanges arrays among processes."""

    def begin(self, what: Collective, x: Array) -> Pending:
        """Begin an exchange of a C-contiguous array, which the communicator may keep. Every process of the group begins the
        same exchanges in the same order. Raises CommunicationError."""


class _InUse:
    communicator: Communicator | None = None


def use_communicator(communicator: Communicator | None) -> None:
    """Let this process exchange arrays by `communicator`; None: not at all."""
    _InUse.communicator = communicator


def communicator_in_use() -> Communicator | None:
    """The communicator by which this process exchanges arrays; None: it has none."""
    return _InUse.communicator


class Exchange:
    """One exchange of a running program. `wait` returns the result; faults are diagnostics that name `at`."""

    def __init__(self, what: Collective, x: Array, at: str) -> None:
        """Begin it with a copy of `x`, which its program may overwrite. Raises CollectiveFailed."""
        self.what, self.at = what, at
        self._own = x.copy(order="C")
        self._pending: Pending | None = None
        if what.ranks == 1:
            return
        if _InUse.communicator is None:
            raise fail(
                "CollectiveFailed",
                at,
                f"nothing exchanges arrays among the {what.ranks} processes of the group {what.group!r}",
                "use torch.distributed with torch.compile, or tt.runtime.use_mpi() before the first call (extra [mpi])",
            )
        try:
            self._pending = _InUse.communicator.begin(what, self._own)
        except CommunicationError as error:
            raise self._failed(error) from error

    def wait(self) -> Array:
        """The result. Raises CollectiveFailed."""
        if self._pending is None:
            return self._own
        try:
            return self._pending.wait()
        except CommunicationError as error:
            raise self._failed(error) from error

    def _failed(self, error: CommunicationError) -> Exception:
        what = self.what
        return fail(
            "CollectiveFailed",
            self.at,
            f"{what.name} among the {what.ranks} processes of the group {what.group!r} failed: {error}",
            "look at what the other processes of the group reported: one of them ended, hangs, or runs another program",
        )


def row_bytes(x: Array) -> int:
    """Number of bytes of one index of axis 0, also for an array that has none; of all of an array of rank 0."""
    return x.itemsize * math.prod(x.shape[1:])


def collective(name: str, attrs: Mapping[str, object], at: str) -> Collective:
    """The exchange that the attributes of a step describe. Raises InvalidAttribute for attributes that describe none."""
    try:
        found = msgspec.convert({**attrs, "name": name}, Collective)
    except msgspec.ValidationError as error:
        raise fail("InvalidAttribute", at, f"{name}: {error}", "give the group and its number of processes") from None
    if found.ranks < 1 or found.op not in REDUCTIONS:
        why = f"{name} with {found.op} among {found.ranks} processes"
        raise fail("InvalidAttribute", at, why, f"give 1 process or more and one of {', '.join(REDUCTIONS)}")
    return found


def exchanged(name: str, attrs: Mapping[str, object], x: Array, at: str) -> Array:
    """The result of an exchange, waited for. Raises CollectiveFailed."""
    return Exchange(collective(name, attrs, at), x, at).wait()
