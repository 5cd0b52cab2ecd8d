"""Facts as text: the report of spec 3 §7.1, one Region after the other, then the dependences."""

from __future__ import annotations

from collections.abc import Iterator

from tatami.core.codec import dump_text
from tatami.core.expr import ZERO
from tatami.core.lines import Line, ended, text_of
from tatami.core.module import Module
from tatami.poly_core.ir import PolyCore, RegionFacts


def show(module: Module[PolyCore]) -> str:
    """The facts of all programs as text."""
    return text_of(show_lines(module))


def show_lines(module: Module[PolyCore]) -> Iterator[Line]:
    """The same by lines, each of a Region."""
    return ended(_program(name, core) for name, core in module.programs.items())


def _program(name: str, core: PolyCore) -> Iterator[Line]:
    yield Line(f"program {name}")
    for f in core.regions:
        yield Line(f"  region {f.region} ({f.kind})", (name, f.region))
        for line in dump_text({"analysis": report(f)}).splitlines():
            yield Line(f"    {line}", (name, f.region))
    for d in core.dependences:
        yield Line(f"  {d.kind} dependence {d.source} -> {d.target} through {d.buffer}", (name, d.target))


def report(f: RegionFacts) -> dict[str, object]:
    """The fields of spec 3 §7.1. `compute_at` and `min_buffer` summarise the lets; `per_let` and `buffers` list them."""
    halo: dict[str, int] = {}
    total = ZERO
    for c in f.compute_at:
        total = total + c.halo_bytes
        for axis, width in c.halo.items():
            halo[axis] = max(halo.get(axis, 0), width)
    order = ("reg", "smem_ring", "gmem")
    contracted = {c.acc for c in f.contractions}
    own = [b for b in f.min_buffer if b.name in contracted] or list(f.min_buffer)
    most = max(own, key=lambda b: (order.index(b.buffer), b.depth), default=None)
    return {
        "parallel_axes": list(f.parallel_axes),
        "reduce_axes": list(f.reduce_axes),
        "tail_axes": list(f.tail_axes),
        "affine_closed": f.affine_closed,
        "compute_at": {
            "ok": all(c.ok for c in f.compute_at),
            "halo": {"bytes": str(total), "per_axis": halo},
        },
        "min_buffer": {"buffer": most.buffer, "depth": most.depth} if most is not None else {"buffer": "reg", "depth": 1},
        "buffers": {b.name: f"{b.buffer} x{b.depth}" for b in f.min_buffer},
        "barrier": f.barrier,
        "bank_conflicts": {
            h.tensor: f"{h.conflict_ways}-way{f', swizzle {h.swizzle}' if h.swizzle else ''}" for h in f.bank_hints
        },
        "contractions": [
            {
                "acc": c.acc,
                "batch": list(c.batch),
                "m": list(c.m),
                "n": list(c.n),
                "k": list(c.k),
                "lhs": c.lhs,
                "rhs": c.rhs,
                "epilogue": list(c.epilogue),
            }
            for c in f.contractions
        ],
        "flops": str(f.flops),
        "bytes": {"read": str(f.bytes_read), "written": str(f.bytes_written)},
    }
