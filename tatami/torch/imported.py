"""What an fx graph became: a frontend graph, and how arguments and results of the fx graph meet its inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from tatami.core.expr import Expr, Shape
from tatami.core.module import Module
from tatami.frontend import ir
from tatami.frontend.graph import Graph


@dataclass(frozen=True)
class Unsupported:
    """A node that stays in PyTorch. `at`: the line of the model it came from."""

    node: fx.Node
    operator: str
    why: str
    at: str


@dataclass(frozen=True)
class Argument:
    """A tensor argument of the fx graph: `position` among its placeholders, the input's name, and the order of its
    axes in memory (None: made contiguous for each call)."""

    position: int
    name: str
    order: tuple[int, ...] | None
    updated: bool = False


@dataclass(frozen=True)
class Result:
    """A result that the program writes. PyTorch promises `shape` and `strides`; `stored` is the shape without what
    strides of 0 only repeat, `order` its axes in memory. Without an order it is copied into the strides."""

    name: str
    order: tuple[int, ...] | None
    shape: Shape
    strides: Shape
    stored: Shape


@dataclass(frozen=True)
class Check:
    """A result that is not the caller's: LAPACK's info, for which PyTorch raises what eager raises."""

    info: Result
    name: str
    is_matrix: bool


@dataclass(frozen=True)
class Forbidden:
    """What eager refuses of the values it is given: the diagnostic of an element for which it holds."""

    kind: str
    at: str
    why: str
    suggestion: str


@dataclass(frozen=True)
class View:
    """A result that is memory of an argument (its position) or of another result: what is written there shows in both.
    `offset`: from where that begins, in elements."""

    of: int | Result
    shape: Shape
    strides: Shape
    offset: Expr


Given = Result | View | int | Expr | None
"""What stands at a place of the fx graph's output: a result, a view or the number of a placeholder, a size, or nothing."""


@dataclass
class Imported:
    """What an fx graph became."""

    graph: Graph
    arguments: list[Argument] = field(default_factory=list)
    sizes: dict[int, Expr] = field(default_factory=dict)
    """Placeholders that are sizes: position -> the expression PyTorch knows them by."""
    outputs: list[Given] = field(default_factory=list)
    single: bool = False
    """The fx graph returns one value, no tuple."""
    unsupported: list[Unsupported] = field(default_factory=list)
    random: bool = False
    """The program has the input `seed`."""
    checks: list[Check] = field(default_factory=list)
    forbidden: list[Forbidden] = field(default_factory=list)
    found: Result | None = None
    """A result that is not the caller's: 0, or 1 + the position in `forbidden` of what the values broke."""

    def module(self) -> Module[ir.Graph]:
        return self.graph.module()


@dataclass(frozen=True)
class Frame:
    """What stands around an fx graph that is a program of its own (torch.export); by position."""

    names: Mapping[int, str] = field(default_factory=dict)
    """Names of placeholders; the others are arg0, arg1, …"""
    constants: Mapping[int, torch.Tensor] = field(default_factory=dict)
    """Placeholders whose content is known: parameters and buffers."""
    updates: Mapping[int, int] = field(default_factory=dict)
    """Output -> the placeholder that receives it in place."""
    outputs: Mapping[int, str] = field(default_factory=dict)
    """Names of outputs; the others are out0, out1, …"""
    logical: bool = False
    """Arrays come and go row by row whatever memory PyTorch's own tensors had."""
    raises: bool = True
    """The caller raises what `Imported.checks` find."""
    leaves: bool = False
    """PyTorch may run what it does quicker, as it runs what cannot be imported."""
    held: Collection[int] = ()
    """Placeholders that keep their content over many calls: parameters."""


ALONE = Frame()


def described(unsupported: Sequence[Unsupported]) -> str:
    """One line per operator that cannot be imported, with every place it stands."""
    found: dict[tuple[str, str], list[str]] = {}
    for u in unsupported:
        found.setdefault((u.operator, u.why), []).append(u.at)
    return "; ".join(f"{op} at {', '.join(at[:8])}{' …' if len(at) > 8 else ''}: {why}" for (op, why), at in found.items())
