"""TMA descriptors (tensor maps) of operands and results."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import substitute
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.expr import Expr, expr, var
from tatami.core.kernel import TensorMapSpec, Window, is_divisible
from tatami.core.layout import slices
from tatami.gpu.products.problem import Problem
from tatami.gpu.products.tma_walk import Boxes, Walk

MAX_RANK = 5
"""Largest rank of a tensor map."""


def refused(p: Problem, why: str, suggestion: str = "use a plan of kind sm80_mma or sm80_pair") -> TatamiError:
    """The error InvalidPlan for a problem whose tensors TMA cannot address."""
    return fail("InvalidPlan", p.region, why, suggestion)


def tensor_map(
    p: Problem,
    param: str,
    along: tuple[tuple[Expr, str], ...],
    pitch: Expr,
    offset: Expr,
    box: list[int],
    tf32: bool = False,
) -> tuple[TensorMapSpec, tuple[Expr, ...]]:
    """The descriptor of a matrix, and the coordinates of a block: innermost first, batch axes that move last. `along`: size
    and coordinate of its two axes, innermost first; `pitch`, `offset` in elements. Raises InvalidPlan where TMA has no such
    map."""
    outer = slices(offset, {f"b{i}": size for i, size in enumerate(p.batch)} | p.matrices)
    if outer is None:
        raise refused(p, f"{param} starts at element {offset} of its buffer")
    dims = [*(size for size, _ in along), *(count for _, count, _ in outer)]
    coords = [*(var(name) for _, name in along), *(index for index, _, _ in outer)]
    buffer, size = _memory(p, param)
    strides = [pitch * size, *(step * size for _, _, step in outer)]
    if len(dims) > MAX_RANK:
        raise refused(p, f"a tensor map of rank {len(dims)}; the limit is {MAX_RANK}")
    for s in strides:
        if not is_divisible(s, 16, tuple(p.conditions)):
            why = f"stride {s} bytes of {param} is not known to be a multiple of 16, which TMA needs"
            raise refused(p, why, "guard the plan by the size, or use a plan of kind sm80_mma or sm80_pair")
    sizes, steps = in_symbols(p, tuple(dims)), in_symbols(p, tuple(strides))
    whole = (*box, *(1 for _ in outer))
    return TensorMapSpec(buffer, sizes, steps, whole, box[0] * size, tf32=tf32), tuple(coords)


def _memory(p: Problem, param: str) -> tuple[str, int]:
    """Buffer of a parameter, and bytes per element."""
    place = [q.name for q in p.params].index(param)
    return p.buffers[place], p.params[place].dtype.itemsize


def in_symbols(p: Problem, sizes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Sizes over the program's symbols."""
    names = {f"s{i}": var(s) for i, s in enumerate(p.symbols)}
    return tuple(substitute(e, names) for e in sizes)


def placed(maps: list[TensorMapSpec], parameters: int) -> tuple[TensorMapSpec, ...]:
    """The maps as the last parameters of the kernel, after the `parameters` others."""
    return tuple(msgspec.structs.replace(s, position=parameters + i) for i, s in enumerate(maps))


def walk_map(p: Problem, param: str, walk: Walk, channels: int, pixels: int) -> TensorMapSpec:
    """The im2col map of an image; a box holds `channels` neighbours of each of `pixels` pixels."""
    return _image_map(p, param, walk, channels, [channels, pixels], walk.window)


def box_map(p: Problem, param: str, boxes: Boxes, channels: int, box: list[int]) -> TensorMapSpec:
    """The map of boxes; `box` holds the numbers of channels and of rows or columns, the same at all places of a block."""
    return _image_map(p, param, boxes, channels, [*box, *(1 for _ in boxes.dims[2:])], None)


def _image_map(
    p: Problem, param: str, image: Walk | Boxes, channels: int, box: list[int], window: Window | None
) -> TensorMapSpec:
    if image.depth % channels:
        raise refused(p, f"blocks of {channels} channels do not divide the {image.depth} that {param} sums over")
    buffer, size = _memory(p, param)
    for s in image.strides:
        if not is_divisible(s, 16 // size, p.conditions):
            raise refused(p, f"a stride of {s} elements of {param} is not known to be a multiple of 16 bytes, which TMA needs")
    dims, strides = in_symbols(p, image.dims), in_symbols(p, tuple(s * expr(size) for s in image.strides))
    return TensorMapSpec(buffer, dims, strides, tuple(box), box[0] * size, tf32=p.multiplied == "tf32", window=window)
