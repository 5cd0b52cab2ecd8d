"""Result of an import: a frontend graph, and the relation of its inputs and outputs to arguments and results of the fx
graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from tatami.core.expr import Expr, Shape
from tatami.core.module import Module
from tatami.frontend import ir
from tatami.frontend.graph import Graph
from tatami.torch.rows import Rows


@dataclass(frozen=True)
class Unsupported:
    """A node that stays in PyTorch. `at`: the line of the model from which it comes."""

    node: fx.Node
    operator: str
    why: str
    at: str


@dataclass(frozen=True)
class Argument:
    """A tensor argument of the fx graph. `position`: its number among the placeholders; `name`: the input's; `order`: the
    order of its axes in memory, if that is not their own; `rows`: the array without gaps that the program reads in its place. An
    argument that lies otherwise is copied at each call."""

    position: int
    name: str
    order: tuple[int, ...] | None
    updated: bool = False
    rows: Rows | None = None


@dataclass(frozen=True)
class Result:
    """A result that the program writes. PyTorch promises `shape` and `strides`; `stored`: the shape without axes that
    strides of 0 repeat; `order`: its axes in memory. Without an order the result is copied into the strides."""

    name: str
    order: tuple[int, ...] | None
    shape: Shape
    strides: Shape
    stored: Shape


@dataclass(frozen=True)
class Check:
    """An additional result with LAPACK's info, for which PyTorch raises the same error as eager."""

    info: Result
    name: str
    is_matrix: bool


@dataclass(frozen=True)
class Forbidden:
    """Values that eager refuses: the diagnostic for such an element."""

    kind: str
    at: str
    why: str
    suggestion: str


@dataclass(frozen=True)
class View:
    """A result that shares memory with an argument (its position) or with another result. `offset`: its beginning in that
    memory, in elements."""

    of: int | Result
    shape: Shape
    strides: Shape
    offset: Expr


Given = Result | View | int | Expr | None
"""An entry of the fx graph's output: a result, a view, the number of a placeholder, a size, or nothing."""


@dataclass
class Imported:
    """Result of importing an fx graph."""

    graph: Graph
    arguments: list[Argument] = field(default_factory=list)
    sizes: dict[int, Expr] = field(default_factory=dict)
    """Placeholders that are sizes: position → the size expression."""
    outputs: list[Given] = field(default_factory=list)
    single: bool = False
    """True if the fx graph returns one value instead of a tuple."""
    unsupported: list[Unsupported] = field(default_factory=list)
    random: bool = False
    """True if the program has the input `seed`."""
    checks: list[Check] = field(default_factory=list)
    forbidden: list[Forbidden] = field(default_factory=list)
    found: Result | None = None
    """An additional result: 0, or 1 + the position in `forbidden` of the rule that a value breaks. None without such rules."""

    def module(self) -> Module[ir.Graph]:
        """The graph as a module of one program."""
        return self.graph.module()


@dataclass(frozen=True)
class Frame:
    """Context of an fx graph that is a whole program (torch.export); entries are keyed by position."""

    names: Mapping[int, str] = field(default_factory=dict)
    """Names of placeholders; by default arg0, arg1, …"""
    constants: Mapping[int, torch.Tensor] = field(default_factory=dict)
    """Content of placeholders that are constants: parameters and buffers."""
    updates: Mapping[int, int] = field(default_factory=dict)
    """Output -> the placeholder that receives it in place."""
    outputs: Mapping[int, str] = field(default_factory=dict)
    """Names of outputs; by default out0, out1, …"""
    logical: bool = False
    """True if arrays are passed row by row, independently of the memory of PyTorch's own tensors."""
    raises: bool = True
    """True if the caller raises the errors that `Imported.checks` finds."""
    leaves: bool = False
    """True if operators that PyTorch runs faster may stay in PyTorch, like those that cannot be imported."""
    held: Collection[int] = ()
    """Placeholders that keep their content over many calls: parameters."""


ALONE = Frame()
"""The frame of a graph without context: default names, no constants."""


def described(unsupported: Sequence[Unsupported]) -> str:
    """One line per operator that cannot be imported, with every place where it occurs."""
    found: dict[tuple[str, str], list[str]] = {}
    for u in unsupported:
        found.setdefault((u.operator, u.why), []).append(u.at)
    return "; ".join(f"{op} at {', '.join(at[:8])}{' …' if len(at) > 8 else ''}: {why}" for (op, why), at in found.items())
