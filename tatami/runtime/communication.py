"""Exchanges with other processes for programs that run without PyTorch (`core.numbers.collectives`).

tt.runtime.use_mpi()                  all processes that mpirun started, as the group "world"
tt.runtime.use_communicator(own)      an object with `begin(what, array)`, which returns one with `wait()`
"""

# ruff: noqa: N802  the names of mpi4py
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.numbers.collectives import (
    Array,
    Collective,
    CommunicationError,
    Communicator,
    Pending,
    row_bytes,
    use_communicator,
)

__all__ = ["Collective", "CommunicationError", "Communicator", "Pending", "use_communicator", "use_mpi"]
_OPS = {"sum": "SUM", "prod": "PROD", "max": "MAX", "min": "MIN"}


class MpiRequest(Protocol):
    """The interface of a request of mpi4py that is used here."""

    def Wait(self) -> object:
        """Wait for the end of the exchange."""


class MpiGroup(Protocol):
    """The interface of a communicator of mpi4py that is used here."""

    def Get_size(self) -> int:
        """The number of processes that it has."""

    def Set_errhandler(self, handler: object) -> None:
        """Choose what MPI does about errors."""

    def Iallreduce(self, operand: Array, result: Array, op: object) -> MpiRequest:
        """The request of an all_reduce that has begun."""

    def Ireduce_scatter_block(self, operand: Array, result: Array, op: object) -> MpiRequest:
        """The request of a reduce_scatter of equal parts that has begun."""

    def Iallgather(self, operand: Array, result: Array) -> MpiRequest:
        """The request of an all_gather that has begun."""

    def Ialltoallv(self, operand: list[object], result: list[object]) -> MpiRequest:
        """The request of an all_to_all that has begun; each side is an array and its counts."""

    def Ibcast(self, operand: Array, root: int) -> MpiRequest:
        """The request of a broadcast that has begun, into its operand."""


class MpiLibrary(Protocol):
    """The interface of `mpi4py.MPI` that is used here, besides SUM and the like."""

    Exception: type[Exception]
    ERRORS_RETURN: object


def use_mpi(groups: Mapping[str, MpiGroup] | None = None) -> None:
    """Let programs of this process exchange arrays by MPI. `groups`: name of a group -> its communicator of mpi4py; the group
    "world" is all processes. Raises MissingPackage without mpi4py or an MPI library."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        why = f"mpi4py cannot be used ({str(error).splitlines()[0]})"
        raise fail("MissingPackage", "tt.runtime.use_mpi", why, "pip install 'tatami[mpi]' and an MPI library") from None
    use_communicator(Mpi(MPI, {"world": MPI.COMM_WORLD, **(groups or {})}))


@dataclass(frozen=True)
class Request:
    """An exchange of MPI that has begun. `operand` is kept until it has ended."""

    mpi: MpiLibrary
    request: MpiRequest
    operand: Array
    result: Array
    like: Array
    shape: tuple[int, ...]

    def wait(self) -> Array:
        """The result. Raises CommunicationError."""
        try:
            self.request.Wait()
        except self.mpi.Exception as error:
            raise CommunicationError(_reason(error)) from error
        return self.result.reshape(-1).view(self.like.dtype).reshape(self.shape)


@dataclass(frozen=True)
class Mpi:
    """Communicators of mpi4py by the name of their group."""

    mpi: MpiLibrary
    groups: Mapping[str, MpiGroup]
    told: set[str] = field(default_factory=set)
    """Groups whose errors MPI reports to Python instead of ending the process."""

    def begin(self, what: Collective, x: Array) -> Pending:
        """Begin an exchange. Raises CommunicationError."""
        group = self._group(what)
        moves = what.name in ("all_gather", "all_to_all", "broadcast")
        computes = x.dtype.kind in "iu" or x.dtype.name in ("float32", "float64")
        if not moves and not computes:
            raise CommunicationError(f"MPI cannot combine elements of {x.dtype}; cast to fp32 before the exchange")
        try:
            return self._begin(what, x, group)
        except (self.mpi.Exception, KeyError) as error:
            raise CommunicationError(_reason(error)) from error

    def _begin(self, what: Collective, x: Array, group: MpiGroup) -> Request:
        moved = x.reshape(-1).view(np.uint8)
        rest = x.shape[1:]

        def begun(request: MpiRequest, operand: Array, made: Array, shape: tuple[int, ...]) -> Request:
            return Request(self.mpi, request, operand, made, x, shape)

        match what.name:
            case "all_reduce":
                made = np.empty_like(x)
                return begun(group.Iallreduce(x, made, getattr(self.mpi, _OPS[what.op])), x, made, x.shape)
            case "reduce_scatter":
                made = np.empty((x.shape[0] // what.ranks, *rest), x.dtype)
                return begun(group.Ireduce_scatter_block(x, made, getattr(self.mpi, _OPS[what.op])), x, made, made.shape)
            case "all_gather":
                made = np.empty(moved.size * what.ranks, np.uint8)
                return begun(group.Iallgather(moved, made), moved, made, (x.shape[0] * what.ranks, *rest))
            case "all_to_all":
                equal = (x.shape[0] // what.ranks,) * what.ranks
                to, of = (rows or equal for rows in (what.sent, what.received))
                sent, received = ([n * row_bytes(x) for n in rows] for rows in (to, of))
                made = np.empty(sum(received), np.uint8)
                return begun(group.Ialltoallv([moved, sent], [made, received]), moved, made, (sum(of), *rest))
            case _:
                return begun(group.Ibcast(moved, root=what.root), moved, moved, x.shape)

    def _group(self, what: Collective) -> MpiGroup:
        if what.group not in self.groups:
            raise CommunicationError(f"use_mpi was given no group of that name, but {', '.join(sorted(self.groups))}")
        group = self.groups[what.group]
        if group.Get_size() != what.ranks:
            raise CommunicationError(f"the group has {group.Get_size()} processes now")
        if what.group not in self.told:
            group.Set_errhandler(self.mpi.ERRORS_RETURN)
            self.told.add(what.group)
        return group


def _reason(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
