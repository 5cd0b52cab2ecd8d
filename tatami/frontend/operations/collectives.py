"""Collectives: exchanges with the other processes of a group (`core.numbers.collectives`).

all_reduce       x -> the sum (or product, max, min) of the x of all processes
all_gather       x: [n, ..] -> [ranks * n, ..]
reduce_scatter   x: [n, ..] -> [n / ranks, ..], the part of this process in the combined x
all_to_all       x: [n, ..] -> part k of axis 0 from process k
broadcast        x -> the x of process `root`
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import expr, floordiv, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import Operands, Operation, Site, need, same_size, want


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of all collectives. `group`: the name of the processes; `ranks`: their number; `number`: the place among the
    collectives of the graph, in which all processes begin them."""

    group: str
    ranks: int
    number: int = 0


class Combined(Exchange, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of a collective that combines the operands of all processes."""

    op: Literal["sum", "prod", "max", "min"] = "sum"


class FromRoot(Exchange, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `broadcast`. `root`: the process that sends, counted in the group."""

    root: int = 0


class Parts(Exchange, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `all_to_all`. `sent`, `received`: rows for and from each process; empty: equal parts."""

    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()


def _operand(attrs: Exchange, operands: Operands, site: Site, has_rows: bool = False) -> TensorType:
    (x,) = need(operands)
    want(attrs.ranks >= 1, f"a group of {attrs.ranks} processes", "give 1 or more", site)
    want(bool(attrs.group), "a group without a name", "name the group of processes", site)
    want(not has_rows or len(x.shape) > 0, "a collective along axis 0 of a tensor of rank 0", "give rank 1 or more", site)
    return x


def _combined(attrs: Combined, operands: Operands, site: Site, has_rows: bool = False) -> TensorType:
    x = _operand(attrs, operands, site, has_rows)
    want(x.dtype != DType.bool, f"{attrs.op} of bool", "cast to i32 first", site, "UnsupportedDType")
    return x


def _all_reduce(attrs: Combined, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return (_combined(attrs, operands, site),)


def _all_gather(attrs: Exchange, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x = _operand(attrs, operands, site, has_rows=True)
    return (TensorType(x.dtype, (x.shape[0] * attrs.ranks, *x.shape[1:])),)


def _divided(x: TensorType, ranks: int, site: Site) -> TensorType:
    part = floordiv(x.shape[0], expr(ranks))
    same_size(part * ranks, x.shape[0], f"axis 0 of {shape_text(x.shape)} in {ranks} equal parts", site)
    return TensorType(x.dtype, (part, *x.shape[1:]))


def _reduce_scatter(attrs: Combined, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return (_divided(_combined(attrs, operands, site, has_rows=True), attrs.ranks, site),)


def _all_to_all(attrs: Parts, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x = _operand(attrs, operands, site, has_rows=True)
    if not attrs.sent and not attrs.received:
        _divided(x, attrs.ranks, site)
        return (x,)
    for what, rows in (("sent", attrs.sent), ("received", attrs.received)):
        fits = len(rows) == attrs.ranks and all(n >= 0 for n in rows)
        want(fits, f"{what} {list(rows)} among {attrs.ranks} processes", "give a number of rows for each process", site)
    same_size(expr(sum(attrs.sent)), x.shape[0], f"the rows sent of {shape_text(x.shape)}", site)
    return (TensorType(x.dtype, (expr(sum(attrs.received)), *x.shape[1:])),)


def _broadcast(attrs: FromRoot, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x = _operand(attrs, operands, site)
    want(0 <= attrs.root < attrs.ranks, f"root {attrs.root} of {attrs.ranks} processes", "name a process of the group", site)
    return (x,)


COLLECTIVE: tuple[Operation, ...] = (
    Operation("all_reduce", Combined, 1, 1, _all_reduce, "the sum (or product, max, min) of the operands of all processes"),
    Operation("all_gather", Exchange, 1, 1, _all_gather, "the operands of all processes along axis 0"),
    Operation("reduce_scatter", Combined, 1, 1, _reduce_scatter, "the part along axis 0 of the combined operands"),
    Operation("all_to_all", Parts, 1, 1, _all_to_all, "part k of axis 0 goes to process k"),
    Operation("broadcast", FromRoot, 1, 1, _broadcast, "the operand of the process `root`"),
)
"""Rows of the table: collectives."""
