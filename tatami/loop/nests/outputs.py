"""Memory before the first phase: zeros in output elements that no index reaches, copies of inputs that are overwritten."""

from __future__ import annotations

from tatami.core.expr import expr, product, var
from tatami.core.layout import size_elements
from tatami.loop.emit.emitter import Emitter
from tatami.loop.ir import Const, Load, LocalBuffer, Parallel, Store
from tatami.loop.nests.lane_loops import WORK
from tatami.plan.views.flatten import FlatLet
from tatami.plan.views.nest_form import nodes
from tatami.region.ir import Read, ReadAt, Region, Target


def overwritten_inputs(region: Region, lets: dict[str, FlatLet]) -> tuple[str, ...]:
    """Inputs that an output updates, and that are read at other points than the one that writes the element."""
    out: list[str] = []
    for target in region.outputs:
        if not target.updates:
            continue
        maps = {
            (y.source, y.map if y.map is not None else tuple(var(a) for a in lets[y.source].axes))
            for y in region.yields
            if y.to == target.name and not y.indices and y.combine == "set"
        }
        for name, let in lets.items():
            for e in nodes(let.expr):
                reads = isinstance(e, (Read, ReadAt)) and e.tensor == target.updates
                if reads and not (isinstance(e, Read) and let.kind == "map" and (name, e.map) in maps and len(maps) == 1):
                    out.append(target.updates)
    return tuple(dict.fromkeys(out))


def clear_border(e: Emitter, target: Target) -> None:
    """Set elements of a blocked layout that belong to no index (borders, the rest of a block) to zero."""
    m = target.memref
    count = size_elements(m.layout, m.shape)
    if target.updates or count == product(m.shape):
        return
    x = e.loop(count)
    zero = Store(target.name, var(x), Const(0, m.dtype))
    e.emit(Parallel(x, count, expr(WORK * 4), (zero,)))


def snapshot(e: Emitter, tensor: str) -> None:
    """Copy an input that an output overwrites while other points still read it."""
    m = e.memrefs[tensor]
    count = size_elements(m.layout, m.shape)
    buffer = e.fresh("b")
    e.emit(LocalBuffer(buffer, m.dtype, count))
    x = e.loop(count)
    copy = Store(buffer, var(x), Load(tensor, var(x), m.dtype))
    e.emit(Parallel(x, count, expr(WORK * 4), (copy,)))
    e.moved[tensor] = buffer
