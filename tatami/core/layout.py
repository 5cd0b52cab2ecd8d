"""How a logical tensor lies in memory. One type for signatures, MemRefs and plans.

A Layout maps a logical index to an element address. `blocked` splits axes by constant factors into trailing block
axes (NCHW16c is ``order=(0,1,2,3), blocks=((1,16),)``) and may keep a border of `padding` elements around each axis
in the buffer. `swizzled` lies row by row in memory; its tiles in a GPU's shared
memory have their 16-byte chunks XORed with the row, over as many bytes of a row as the swizzle's name says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from tatami.core.algebra.visit import free_vars, step_of, substitute
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Atom, Expr, Floor, Shape, Var, ceildiv, expr, floordiv, mod, product

LayoutKind: TypeAlias = Literal["row_major", "col_major", "blocked", "swizzled"]


class Layout(msgspec.Struct, frozen=True, omit_defaults=True):
    """How axes lie in memory. `swizzle`: name of the swizzle of a `swizzled` layout; `vec_bytes`: bytes of its vectors."""

    kind: LayoutKind = "row_major"
    order: tuple[int, ...] = ()
    """blocked: the logical axes from outermost to innermost; empty means 0, 1, 2, …"""
    blocks: tuple[tuple[int, int], ...] = ()
    """blocked: (axis, factor), from outer to inner block axis."""
    padding: tuple[tuple[int, int], ...] = ()
    """blocked: (before, after) elements kept around each logical axis."""
    swizzle: str = ""
    vec_bytes: int = 0


SWIZZLES = {"xor32": 32, "xor64": 64, "xor128": 128}
"""Name of a swizzle -> bytes of a row of a tile within which its 16-byte chunks are exchanged."""
CHUNK = 16
"""Bytes of the vectors that a swizzle exchanges: what a thread reads of a tile at once."""


def layout_fault(layout: Layout, rank: int) -> str:
    """The reason why a layout says nothing of a tensor of `rank` axes; "" if it says how the tensor lies."""
    blocked, swizzled = bool(layout.order or layout.blocks or layout.padding), bool(layout.swizzle or layout.vec_bytes)
    if blocked and layout.kind != "blocked":
        return f"layout {layout.kind} has no order, blocks or padding; blocked has"
    if swizzled and layout.kind != "swizzled":
        return f"layout {layout.kind} has no swizzle and no vec_bytes; swizzled has"
    if layout.kind == "swizzled" and layout.swizzle not in SWIZZLES:
        return f"swizzle {layout.swizzle!r} is none of {', '.join(SWIZZLES)}"
    if layout.kind == "swizzled" and layout.vec_bytes not in (0, CHUNK):
        return f"vec_bytes {layout.vec_bytes}: a swizzle exchanges vectors of {CHUNK} bytes"
    if layout.order and sorted(layout.order) != list(range(rank)):
        return f"order {list(layout.order)} does not order {rank} axes"
    if layout.padding and len(layout.padding) != rank:
        return f"padding of {len(layout.padding)} axes; the tensor has {rank}"
    if wrong := [(a, f) for a, f in layout.blocks if not 0 <= a < rank or f < 1]:
        return f"block {list(wrong[0])}: an axis below {rank} and a factor of 1 or more"
    return ""


ROW_MAJOR = Layout()
"""Axes in their order, the last one contiguous."""


def layout_text(layout: Layout) -> str:
    """Kind, order of the axes in memory, and blocks, as dumps print them."""
    return " ".join(str(part) for part in (layout.kind, layout.order, layout.blocks) if part)


def packed_layout(rank: int, block: int) -> Layout:
    """``[batch…][N / block][K][block]`` of a logical ``[batch…, K, N]``, which a micro-kernel reads: any part of k of a sliver
    is contiguous."""
    return Layout("blocked", order=(*range(rank - 2), rank - 1, rank - 2), blocks=((rank - 1, block),))


class MemRef(msgspec.Struct, frozen=True):
    """A buffer as a kernel sees it: dtype, logical shape, bytes of alignment, aliasing promise, layout."""

    dtype: DType
    shape: Shape
    alignment: int = 64
    noalias: bool = True
    layout: Layout = ROW_MAJOR


def physical_shape(layout: Layout, shape: Shape) -> Shape:
    """The extents of the physical axes, outermost first."""
    if layout.kind in ("row_major", "swizzled"):
        return shape
    if layout.kind == "col_major":
        return tuple(reversed(shape))
    padded = [s + layout.padding[i][0] + layout.padding[i][1] if layout.padding else s for i, s in enumerate(shape)]
    for axis, factor in layout.blocks:
        padded[axis] = ceildiv(padded[axis], factor)
    order = layout.order or tuple(range(len(shape)))
    return tuple(padded[a] for a in order) + tuple(expr(f) for _, f in layout.blocks)


def size_elements(layout: Layout, shape: Shape) -> Expr:
    """Elements the buffer holds, borders and block padding included."""
    return product(physical_shape(layout, shape))


def address(layout: Layout, shape: Shape, index: tuple[Expr, ...]) -> Expr:
    """Element address of the logical `index`."""
    if layout.kind == "col_major":
        index = tuple(reversed(index))
    elif layout.kind == "blocked":
        shifted = [i + layout.padding[a][0] if layout.padding else i for a, i in enumerate(index)]
        inner: list[Expr] = []
        for axis, factor in layout.blocks:
            inner.append(mod(shifted[axis], expr(factor)))
            shifted[axis] = floordiv(shifted[axis], expr(factor))
        order = layout.order or tuple(range(len(index)))
        index = tuple(shifted[a] for a in order) + tuple(inner)
    out = ZERO
    for size, i in zip(physical_shape(layout, shape), index, strict=True):
        out = out * size + i
    return out


def slices(start: Expr, extents: Mapping[str, Expr]) -> tuple[tuple[Expr, Expr, Expr], ...] | None:
    """The terms of ``start``, a sum of index * step, as (index, number of values, step). An index is an axis of `extents` or
    the floor of one (heads that a group shares). None for any other form, or if a step is negative.

        b0*S*D*2 + b1//4*S*D   ->   (b0, |b0|, S*D*2), (b1//4, (|b1| - 1)//4 + 1, S*D)
    """
    steps: dict[Expr, Expr] = {}
    for mono, coefficient in start.terms:
        moving = [a for a in mono if not free_vars(_of(a)).isdisjoint(extents)]
        if len(moving) != 1 or coefficient < 0:
            return None
        index = _of(moving[0])
        rest = product(_of(a) for a in mono if a is not moving[0]) * coefficient
        steps[index] = steps.get(index, ZERO) + rest
    last = {axis: size - 1 for axis, size in extents.items()}
    out = []
    for axis in extents:  # in their order
        for index in list(steps):
            if axis in free_vars(index):
                atom = index.terms[0][0][0]
                grows = isinstance(atom, Floor) and ((step_of(atom.num, axis) or ZERO).as_int() or 0) > 0
                if not (isinstance(atom, Var) or grows) or len(free_vars(index) & extents.keys()) > 1:
                    return None
                out.append((index, substitute(index, last) + 1, steps.pop(index)))
    return tuple(out)


def _of(atom: Atom) -> Expr:
    return Expr((((atom,), 1),))
