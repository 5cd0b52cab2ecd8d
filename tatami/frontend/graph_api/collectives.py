"""Exchanges of tensors with other processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tatami.core.numbers.collectives import COLLECTIVES
from tatami.frontend.graph_api.value import Value


class Collectives(Value):
    """Methods of a tensor that exchange it with the other processes of a group of `ranks` processes. Every process of the group
    runs the same collectives in the same order: that in which the graph was built."""

    __slots__ = ()

    def all_reduce(self, ranks: int, op: str = "sum", group: str = "world") -> Self:
        """The tensors of all processes combined; `op`: sum, prod, max, min."""
        return self.one("all_reduce", op=op, group=group, ranks=ranks, number=self._collectives())

    def all_gather(self, ranks: int, group: str = "world") -> Self:
        """The tensors of all processes, one after another along axis 0."""
        return self.one("all_gather", group=group, ranks=ranks, number=self._collectives())

    def reduce_scatter(self, ranks: int, op: str = "sum", group: str = "world") -> Self:
        """The part of this process, along axis 0, of the tensors of all processes combined."""
        return self.one("reduce_scatter", op=op, group=group, ranks=ranks, number=self._collectives())

    def all_to_all(self, ranks: int, sent: Sequence[int] = (), received: Sequence[int] = (), group: str = "world") -> Self:
        """Part k of axis 0 to process k; `sent`, `received`: rows for and from each process, equal parts if empty."""
        return self.one("all_to_all", sent=sent, received=received, group=group, ranks=ranks, number=self._collectives())

    def broadcast(self, ranks: int, root: int = 0, group: str = "world") -> Self:
        """The tensor of process `root`."""
        return self.one("broadcast", root=root, group=group, ranks=ranks, number=self._collectives())

    def _collectives(self) -> int:
        """The number of collectives that the graph has so far."""
        return sum(n.op in COLLECTIVES for n in self.graph._nodes)
