"""Calls of other graphs of the module: plain, by condition, repeatedly.

The operands of a call are the callee's inputs in signature order, without those bound from the module's constants
(`call_inputs`). Callee size symbols are decided by the shapes of the operands, then by `sizes`, then by its defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias, TypeVar

import msgspec

from tatami.core.algebra.visit import free_vars, substitute
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv, shape_text, var
from tatami.core.module import Module
from tatami.core.signature import Equation, Input, Output
from tatami.frontend.ir import Graph, Node, TensorType
from tatami.frontend.operation import Operands, Operation, Site, need, want
from tatami.frontend.operations.result_sizes import (
    Bound,
    NewSizes,
    called_types,
    found_symbols,
    joined_types,
    last_states,
    varying_symbols,
)

CALLEES = {"call": ("graph",), "if": ("then", "otherwise"), "loop": ("body",)}
"""Operation -> its attributes that name other graphs."""


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `call`. `sizes`: values of the callee's symbols that no operand decides."""

    graph: str
    sizes: dict[str, Expr] = {}
    new: tuple[str, ...] = ()
    """Names for the sizes of results that only a run decides (`result_sizes`)."""


class If(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `if`. Operands: the condition (bool, rank 0), then the operands of both branches."""

    then: str
    otherwise: str
    new: tuple[str, ...] = ()
    """Names for the sizes of results that only a run decides, among them sizes that differ between the branches."""


class Loop(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `loop`. Operands: trip count (i64, rank 0; absent: no limit), condition (bool, rank 0; absent: true),
    `carried` state tensors, then invariants. It runs while the iteration is below the trip count and the condition holds.

    The body takes (iteration i64, condition bool, state.., invariants..) and returns (condition bool, state.., scan..).
    Results: the last state, then each scan output stacked on a new first axis, of size `trip` or the new symbol `size`.
    A state whose size the body declares as a symbol may have another size each turn; rows of a scan output may not.
    """

    body: str
    carried: int
    trip: Expr | None = None
    """Number of iterations, if it is a size and the condition never ends the loop."""
    size: str | None = None
    """Symbol that holds the number of iterations if `trip` is None; required for scan outputs."""
    new: tuple[str, ...] = ()
    """Names for the other sizes of results that only a run decides."""


def call_inputs(graph: Graph, constants: Collection[str]) -> list[Input]:
    """The inputs of `graph` that a call passes, in order: all but those bound from `constants`."""
    return [i for i in graph.signature.inputs if i.storage == "argument" or i.tensor not in constants]


def callee(name: str, site: Site) -> Graph:
    """The graph of the module with this name. Raises E1602."""
    if name not in site.graphs:
        raise fail("UnknownValue", site.at, f"no graph of the module is called {name!r}", f"make it with g.subgraph({name!r})")
    return site.graphs[name]


def bind_sizes(
    graph: Graph, inputs: list[Input], types: list[TensorType], sizes: dict[str, Expr], site: Site
) -> tuple[dict[str, Expr], list[Equation]]:
    """(callee symbols in terms of the caller's, equations that are not proved). Raises TatamiError if the shapes conflict."""
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
            f"{i.tensor} has shape {shape_text(i.shape)}, the operand {shape_text(t.shape)}",
            "give the declared rank",
            site,
            "BroadcastMismatch",
        )
    sides = [
        (f"axis {k} of {i.tensor}", wanted, given)
        for i, t in zip(inputs, types, strict=True)
        for k, (wanted, given) in enumerate(zip(i.shape, t.shape, strict=True))
    ]
    decided_by = dict.fromkeys(bound, "the call's sizes")
    for bare in (True, False):  # N = given first, then 2*N + 1 = given for the symbols that are left
        for place, wanted, given in sides:
            solved = _solved(wanted, given, bound, bare)
            if solved is not None:
                bound.setdefault(*solved)
                decided_by.setdefault(solved[0], place)
    for name, value in graph.signature.defaults.items():
        bound.setdefault(name, expr(value))
    equations = []
    for place, wanted, given in sides:
        have = substitute(wanted, bound)
        difference = (have - given).as_int()
        if difference == 0:
            continue
        known = [f"{s} = {bound[s]} by {decided_by.get(s, 'its default')}" for s in sorted(free_vars(wanted)) if s in bound]
        because = f" = {have} ({', '.join(known)})" if known else ""
        want(
            difference is None,
            f"{place} is {wanted}{because}, the operand there has {given}",
            "pass operands whose sizes agree",
            site,
            "AxisAlignmentMismatch",
        )
        equations.append(Equation(have, given, site.at))
    return bound, equations


def bound_sizes(node: Node, name: str, type_of: Callable[[str], TensorType], module: Module[Graph]) -> dict[str, Expr]:
    """The symbols of the callee `name` in terms of the graph that holds the call `node`, without those that vary."""
    lead = {"call": 0, "if": 1, "loop": 2}[node.op]
    types = [type_of(i) for i in node.inputs[lead:] if i]
    if node.op == "loop":
        types = [TensorType(DType.i64, ()), TensorType(DType.bool, ()), *types]
    sizes = {s: expr(e) for s, e in (node.attrs.get("sizes") or {}).items()} if node.op == "call" else {}
    site = Site(node.name, module.programs, module.constants)
    graph = callee(name, site)
    bound, _ = bind_sizes(graph, call_inputs(graph, module.constants), types, sizes, site)
    varying = turning_sizes(graph, int(node.attrs["carried"]), bound, site) if node.op == "loop" else ()
    return {s: e for s, e in bound.items() if s not in varying}


def _solved(wanted: Expr, given: Expr, bound: dict[str, Expr], bare: bool) -> tuple[str, Expr] | None:
    """(symbol, value) for a callee's size with one open symbol: the symbol itself (`bare`), or linear in it. None for other
    sizes. A remainder of the division is a conflict that the check of all sizes finds."""
    name = wanted.as_name()
    if bare:
        return None if name is None else (name, given)
    open_ = free_vars(wanted) - bound.keys()
    if len(open_) != 1 or name is not None:
        return None
    (name,) = open_
    at_zero, at_one, at_two = (substitute(wanted, {**bound, name: expr(k)}) for k in range(3))
    slope = (at_one - at_zero).as_int()
    if slope is None or slope <= 0 or at_two - at_one != at_one - at_zero:
        return None
    return name, floordiv(given - at_zero, expr(slope))


def turning_sizes(body: Graph, carried: int, bound: dict[str, Expr], site: Site) -> frozenset[str]:
    """The symbols of a loop body whose value may differ in each turn."""
    states, results = _states(body, carried, site)
    found = varying_symbols(states, results, Bound(bound, found_symbols(body)))
    if found is None:
        before = tuple(TensorType(s.dtype, tuple(substitute(e, bound) for e in s.shape)) for s in states)
        after = tuple(TensorType(r.dtype, tuple(substitute(e, bound) for e in r.shape)) for r in results)
        raise fail(
            "BroadcastMismatch",
            site.at,
            f"loop state changes from {_types(before)} to {_types(after)}",
            "keep dtype and rank of the state, and declare the body's sizes that change as symbols",
        )
    return found


def _states(body: Graph, carried: int, site: Site) -> tuple[list[Input], tuple[Output, ...]]:
    """(the body's state inputs, its state outputs)."""
    return call_inputs(body, site.constants)[2 : 2 + carried], body.signature.outputs[1 : 1 + carried]


def count_new(op: str, attrs: object, operands: Operands, site: Site) -> int:
    """The number of names that the attribute `new` has to have."""
    found = NewSizes((), site, unlimited=True)
    _INFER[op](attrs, operands, site, found)
    return len(found.given)


def _called(name: str, types: list[TensorType], sizes: dict[str, Expr], site: Site) -> tuple[Graph, Bound]:
    graph = callee(name, site)
    sizes, _ = bind_sizes(graph, call_inputs(graph, site.constants), types, sizes, site)
    return graph, Bound(sizes, found_symbols(graph))


def _call(attrs: Call, operands: Operands, site: Site, new: NewSizes) -> tuple[TensorType, ...]:
    graph, bound = _called(attrs.graph, need(operands), attrs.sizes, site)
    return called_types(graph.signature.outputs, bound, new, "the called graph finds the size {} of a result when it runs")


def _if(attrs: If, operands: Operands, site: Site, new: NewSizes) -> tuple[TensorType, ...]:
    types = need(operands)
    want(
        types[0].dtype == DType.bool and not types[0].shape,
        "the condition of if",
        "give a rank-0 bool",
        site,
        "UnsupportedDType",
    )
    yes, at_yes = _called(attrs.then, types[1:], {}, site)
    no, at_no = _called(attrs.otherwise, types[1:], {}, site)
    return joined_types(yes.signature.outputs, no.signature.outputs, (at_yes, at_no), new)


def _loop(attrs: Loop, operands: Operands, site: Site, new: NewSizes) -> tuple[TensorType, ...]:
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
    types = [TensorType(DType.i64, ()), TensorType(DType.bool, ()), *need(rest)]
    body, bound = _called(attrs.body, types, {}, site)
    outputs = body.signature.outputs
    want(
        len(outputs) >= 1 + attrs.carried and outputs[0].dtype == DType.bool and not outputs[0].shape,
        f"the loop body gives {_types(tuple(TensorType(o.dtype, o.shape) for o in outputs))}",
        "give (condition bool, state.., scan..)",
        site,
    )
    varying = turning_sizes(body, attrs.carried, dict(bound.sizes), site)
    states = last_states(*_states(body, attrs.carried, site), bound, varying, new)
    turning = Bound(bound.sizes, bound.open | varying)
    scans = called_types(outputs[1 + attrs.carried :], turning, new, "a turn finds the size {} of its scan output")
    if not scans:
        return states
    length = attrs.trip if attrs.trip is not None else None if attrs.size is None else var(attrs.size)
    want(length is not None, "scan outputs of an unknown length", "set `trip`, or name a new `size` symbol", site)
    assert length is not None
    return (*states, *(TensorType(t.dtype, (length, *t.shape)) for t in scans))


def _types(types: tuple[TensorType, ...]) -> str:
    return ", ".join(f"{t.dtype}{shape_text(t.shape)}" for t in types)


_Rule: TypeAlias = Callable[[Any, Operands, Site, NewSizes], tuple[TensorType, ...]]
_INFER: dict[str, _Rule] = {"call": _call, "if": _if, "loop": _loop}


_Attrs = TypeVar("_Attrs", Call, If, Loop)


def _with_names(
    rule: Callable[[_Attrs, Operands, Site, NewSizes], tuple[TensorType, ...]],
) -> Callable[[_Attrs, Operands, Site], tuple[TensorType, ...]]:
    """The type rule of an operation whose new sizes have the names of its attribute `new`."""

    def infer(attrs: _Attrs, operands: Operands, site: Site) -> tuple[TensorType, ...]:
        new = NewSizes(attrs.new, site)
        types = rule(attrs, operands, site, new)
        new.done()
        return types

    return infer


CONTROL: tuple[Operation, ...] = (
    Operation("call", Call, 0, -1, _with_names(_call), "the results of another graph"),
    Operation("if", If, 1, -1, _with_names(_if), "the results of one of two graphs"),
    Operation("loop", Loop, 2, -1, _with_names(_loop), "a graph again and again over carried state"),
)
"""Rows of the table: calls of other graphs."""
