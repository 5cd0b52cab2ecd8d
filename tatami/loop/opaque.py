"""Opaque Regions: one call of a routine of the runtime text (c/runtime_text/routines.c).

A routine is ``int tatami_<name>(void* const* buffers, const int64_t* integers)``. The buffers are the Region's inputs
and outputs, row-major. The integers are: for every buffer its dtype code, its rank and its extents; then the attributes
in the order of their names, an absent list as its length 0.
"""

from __future__ import annotations

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, expr
from tatami.core.scalar import Scalar
from tatami.loop.ir import Body, Call, Integer, Pointer
from tatami.region.ir import Param, Region, Target

DTYPE_CODE: dict[DType, int] = {d: i for i, d in enumerate(DType)}
ATTRIBUTES: dict[str, tuple[tuple[str, int], ...]] = {
    "sort": (("axis", -1), ("descending", 0)),
    "topk": (("axis", -1), ("largest", 1)),
}
"""The routines there are, with their attributes and defaults."""


def lower_opaque(region: Region) -> Body:
    assert region.opaque is not None
    opaque = region.opaque
    if opaque.routine not in ATTRIBUTES:
        raise fail(
            "UnsupportedModel",
            region.name,
            f"there is no native routine {opaque.routine!r}",
            f"use one of {', '.join(sorted(ATTRIBUTES))}, or target reference",
        )
    pointers: list[Pointer] = []
    integers: list[Expr] = []
    ports: list[Param | Target] = [*region.inputs, *region.outputs]
    for port in ports:
        if port.memref.layout.kind != "row_major":
            raise fail("LayoutMismatch", region.name, "a routine reads row-major buffers", "plan row_major for its tensors")
        pointers.append(Pointer(port.name, ZERO))
        integers += [expr(DTYPE_CODE[port.memref.dtype]), expr(len(port.memref.shape)), *port.memref.shape]
    for name, default in ATTRIBUTES[opaque.routine]:
        integers.append(expr(_number(opaque.attrs.get(name, default))))
    call = Call(f"tatami_{opaque.routine}", (*pointers, *(Integer(i) for i in integers)), routine=True)
    return Body((call,), about=f"routine {opaque.routine}")


def _number(value: Scalar | list[Scalar]) -> int:
    return int(value) if isinstance(value, (bool, int, float)) else 0
