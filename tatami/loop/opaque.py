"""Opaque Regions: one call of a routine of the runtime text (c/runtime_text: routines.c, trees.c) per line.

A routine is ``int tatami_<name>(void* const* buffers, const int64_t* integers)`` for one line along its axis, or for one block
of rows that pass through trees, so that threads divide the lines. The buffers are the Region's inputs and outputs, row-major.
The integers are: for every buffer its dtype code, its rank and its extents; then the attributes in the order of their names,
and the number of the line."""

from __future__ import annotations

import hashlib

import msgspec

from tatami.core.codec import dump_text, to_builtins
from tatami.core.custom.kernel_body import Ranks, bound_text, counters_in
from tatami.core.custom.verbatim import KernelCode
from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, Expr, Shape, ceildiv, expr, product, var
from tatami.core.numbers.trees import ROWS
from tatami.core.scalar import Scalar
from tatami.loop.emit.grain import grain
from tatami.loop.ir import Body, BufferParam, Call, Integer, Parallel, Pointer, UserRoutine
from tatami.region.ir import Opaque, Param, Region, Target
from tatami.region.walk import routine_operands

DTYPE_CODE: dict[DType, int] = {d: i for i, d in enumerate(DType)}
"""Number by which routines know a dtype."""
ATTRIBUTES: dict[str, tuple[tuple[str, int], ...]] = {
    "sort": (("axis", -1), ("descending", 0)),
    "topk": (("axis", -1), ("largest", 1)),
    "tree_ensemble": (("how", 0),),
}
"""The native routines, with their attributes and defaults."""
GRAIN_ORDER = 1 << 11
"""Minimum number of elements that a thread sorts or searches: some ten microseconds."""


def lower_opaque(region: Region) -> Body:
    """The body of an opaque Region. Raises UnsupportedModel if there is no such routine."""
    assert region.opaque is not None
    opaque = region.opaque
    if opaque.code is not None:
        return lower_custom(region, opaque.code)
    if opaque.routine not in ATTRIBUTES:
        raise fail(
            "UnsupportedModel",
            region.name,
            f"there is no native routine {opaque.routine!r}",
            f"use one of {', '.join(sorted(ATTRIBUTES))}, or target reference",
        )
    pointers: list[Pointer] = []
    integers: list[Expr] = []
    for port in _ports(region):
        pointers.append(Pointer(port.name, ZERO))
        integers += [expr(DTYPE_CODE[port.memref.dtype]), expr(len(port.memref.shape)), *port.memref.shape]
    for name, default in ATTRIBUTES[opaque.routine]:
        integers.append(expr(_number(opaque.attrs.get(name, default))))
    line = Call(f"tatami_{opaque.routine}", (*pointers, *(Integer(i) for i in (*integers, var("line")))), routine=True)
    lines, least = _lines(_ports(region)[0].memref.shape, opaque)
    return Body((Parallel("line", lines, least, (line,)),), about=f"routine {opaque.routine}")


def _lines(shape: Shape, opaque: Opaque) -> tuple[Expr, Expr]:
    """Number of calls for a first operand of this shape, and the minimum number of them per thread."""
    if opaque.routine == "tree_ensemble":
        return ceildiv(shape[0], ROWS), ONE
    axis = _number(opaque.attrs.get("axis", -1))
    length = shape[axis] if shape else ONE
    return product(s for k, s in enumerate(shape) if k != axis % len(shape)), grain(GRAIN_ORDER, length)


def _ports(region: Region) -> list[Param | Target]:
    """Operands in the routine's order, then results. Raises LayoutMismatch unless all are row-major."""
    inputs = {p.name: p for p in region.inputs}
    ports: list[Param | Target] = [*(inputs[name] for name in routine_operands(region)), *region.outputs]
    for port in ports:
        if port.memref.layout.kind != "row_major":
            raise fail("LayoutMismatch", region.name, "a routine reads row-major buffers", "plan row_major for its tensors")
    return ports


def lower_custom(region: Region, code: KernelCode) -> Body:
    """A user's own body: one call of a routine with its text, placeholders replaced (docs/custom_kernels.md)."""
    if code.c is None:
        raise fail(
            "UnsupportedModel",
            region.name,
            "this custom kernel has no C body, and the target is a CPU",
            "give g.kernel_body(c=…) in addition to cuda=…, or compile for a GPU",
        )
    ports = _ports(region)
    operands = len(ports) - len(region.outputs)
    shapes = [port.memref.shape for port in ports]
    ranks = Ranks(tuple(map(len, shapes[:operands])), tuple(map(len, shapes[operands:])))
    names = [f"tatami_in{k}" for k in range(operands)] + [f"tatami_out{k}" for k in range(len(region.outputs))]
    params = tuple(
        BufferParam(n, p.memref.dtype, k >= operands, p.memref.noalias)
        for k, (n, p) in enumerate(zip(names, ports, strict=True))
    )
    text = bound_text(code.c, ranks, "the C body of a custom kernel")
    user = UserRoutine(
        name="",
        inputs=params[:operands],
        outputs=params[operands:],
        sizes=tuple(f"{n}_n{axis}" for n, shape in zip(names, shapes, strict=True) for axis in range(len(shape))),
        counters=tuple(f"tatami_i{k}" for k in counters_in(text, ranks)),
        text=text,
        preamble=code.preamble,
    )
    key = hashlib.sha256(dump_text(to_builtins(user)).encode()).hexdigest()
    user = msgspec.structs.replace(user, name=f"tatami_user_{key[:16]}")
    arguments: tuple[Pointer | Integer, ...] = (
        *(Pointer(p.name, ZERO) for p in ports),
        *(Integer(size) for shape in shapes for size in shape),
    )
    return Body((Call(user.name, arguments, routine=True),), about="custom kernel", user=user)


def _number(value: Scalar | list[Scalar]) -> int:
    return int(value) if isinstance(value, (bool, int, float)) else 0
