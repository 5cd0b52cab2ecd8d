"""Calls of other graphs of the module: plain, by condition, repeatedly.

The operands of a call are the callee's inputs in signature order, without those bound from the module's constants
(`call_inputs`). Callee size symbols are decided by the shapes of the operands, then by `sizes`, then by its defaults.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, substitute, var
from tatami.core.signature import Equation, Input
from tatami.frontend.ir import Graph, TensorType
from tatami.frontend.operation import Operands, Operation, Site, need, text, want


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    graph: str
    sizes: dict[str, Expr] = {}


class If(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operands: the condition (bool, rank 0), then what both branches take."""

    then: str
    otherwise: str


class Loop(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Operands: trip count (i64, rank 0; absent: no limit), condition (bool, rank 0; absent: true), `carried` state
    tensors, then invariants. It runs while the iteration is below the trip count and the condition holds.

    The body takes (iteration i64, condition bool, state.., invariants..) and gives (condition bool, state.., scan..).
    Results: the last state, then each scan output stacked on a new first axis, of size `trip` or the new symbol `size`.
    """

    body: str
    carried: int
    trip: Expr | None = None
    """Number of iterations when it is a size and the condition never ends the loop."""
    size: str | None = None
    """Otherwise: the symbol that will hold the number of iterations; needed for scan outputs."""


def call_inputs(graph: Graph, constants: Collection[str]) -> list[Input]:
    """The inputs of `graph` that a call passes."""
    return [i for i in graph.signature.inputs if i.storage == "argument" or i.tensor not in constants]


def callee(name: str, site: Site) -> Graph:
    if name not in site.graphs:
        raise fail("UnknownValue", site.at, f"no graph is called {name!r}", "name a graph of the module")
    return site.graphs[name]


def bind_sizes(
    graph: Graph, inputs: list[Input], types: list[TensorType], sizes: dict[str, Expr], site: Site
) -> tuple[dict[str, Expr], list[Equation]]:
    """Callee symbols in terms of the caller's, and equations that were not proved. Raises when the shapes conflict."""
    want(
        len(inputs) == len(types),
        f"the graph takes {len(inputs)} operands ({', '.join(i.tensor for i in inputs)}), the call gives {len(types)}",
        "pass one operand per input",
        site,
        "InputMismatch",
    )
    bound: dict[str, Expr] = dict(sizes)
    for i, t in zip(inputs, types, strict=True):
        want(
            t.dtype in (i.dtype, DType.unknown),
            f"{i.tensor} is {i.dtype}, the operand {t.dtype}",
            f"cast(to={i.dtype})",
            site,
            "DTypeMismatch",
        )
        want(
            len(i.shape) == len(t.shape),
            f"{i.tensor} has shape {text(i.shape)}, the operand {text(t.shape)}",
            "give the declared rank",
            site,
            "BroadcastMismatch",
        )
        for wanted, given in zip(i.shape, t.shape, strict=True):
            name = wanted.as_name()
            if name is not None:
                bound.setdefault(name, given)
    for name, value in graph.signature.defaults.items():
        bound.setdefault(name, expr(value))
    equations = []
    for i, t in zip(inputs, types, strict=True):
        for wanted, given in zip(i.shape, t.shape, strict=True):
            have = substitute(wanted, bound)
            difference = (have - given).as_int()
            if difference == 0:
                continue
            want(
                difference is None,
                f"{i.tensor} needs size {have}, the operand has {given}",
                "pass operands whose sizes agree",
                site,
                "AxisAlignmentMismatch",
            )
            equations.append(Equation(have, given, site.at))
    return bound, equations


def result_types(graph: Graph, bound: dict[str, Expr]) -> tuple[TensorType, ...]:
    return tuple(TensorType(o.dtype, tuple(substitute(s, bound) for s in o.shape)) for o in graph.signature.outputs)


def call_types(name: str, types: list[TensorType], sizes: dict[str, Expr], site: Site) -> tuple[TensorType, ...]:
    graph = callee(name, site)
    bound, _ = bind_sizes(graph, call_inputs(graph, site.constants), types, sizes, site)
    return result_types(graph, bound)


def _call(attrs: Call, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return call_types(attrs.graph, need(operands), attrs.sizes, site)


def _if(attrs: If, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    types = need(operands)
    want(
        types[0].dtype == DType.bool and not types[0].shape,
        "the condition of if",
        "give a rank-0 bool",
        site,
        "UnsupportedDType",
    )
    yes = call_types(attrs.then, types[1:], {}, site)
    no = call_types(attrs.otherwise, types[1:], {}, site)
    want(
        yes == no,
        f"the branches give {_types(yes)} and {_types(no)}",
        "make both branches give the same dtypes and shapes",
        site,
        "BroadcastMismatch",
    )
    return yes


def _loop(attrs: Loop, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    want(len(operands) >= 2 + attrs.carried, "loop operands", "give trip count, condition (or '') and all state", site)
    trip, condition, *rest = operands
    if trip is not None:
        want(
            trip.dtype == DType.i64 and not trip.shape, "the trip count of loop", "give a rank-0 i64", site, "UnsupportedDType"
        )
    if condition is not None:
        want(
            condition.dtype == DType.bool and not condition.shape,
            "the condition of loop",
            "give a rank-0 bool",
            site,
            "UnsupportedDType",
        )
    types = need(rest)
    results = call_types(attrs.body, [TensorType(DType.i64, ()), TensorType(DType.bool, ()), *types], {}, site)
    want(
        len(results) >= 1 + attrs.carried and results[0] == TensorType(DType.bool, ()),
        f"the loop body gives {_types(results)}",
        "give (condition bool, state.., scan..)",
        site,
    )
    state = results[1 : 1 + attrs.carried]
    want(
        state == tuple(types[: attrs.carried]),
        f"loop state changes from {_types(tuple(types[: attrs.carried]))} to {_types(state)}",
        "keep dtype and shape of the state",
        site,
        "BroadcastMismatch",
    )
    scans = results[1 + attrs.carried :]
    if not scans:
        return state
    length = attrs.trip if attrs.trip is not None else None if attrs.size is None else var(attrs.size)
    want(length is not None, "scan outputs of an unknown length", "set `trip`, or name a new `size` symbol", site)
    assert length is not None
    return (*state, *(TensorType(t.dtype, (length, *t.shape)) for t in scans))


def _types(types: tuple[TensorType, ...]) -> str:
    return ", ".join(f"{t.dtype}{text(t.shape)}" for t in types)


CONTROL: tuple[Operation, ...] = (
    Operation("call", Call, 0, -1, _call, "the results of another graph"),
    Operation("if", If, 1, -1, _if, "the results of one of two graphs"),
    Operation("loop", Loop, 2, -1, _loop, "a graph again and again over carried state"),
)
