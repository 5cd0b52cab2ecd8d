"""Constants that stay narrow in memory: what widens them stays in main, for micro-kernels that widen in registers.

main: y = x @ cast(w, fp32), w a constant of fp16   ->   the same; `setup` packs w as fp16
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.dtype import DType
from tatami.tiny import ir


def multiplied(program: ir.Program) -> frozenset[str]:
    """Ids of values that a sum of products reads as a factor, directly or through movement."""
    by_id = {n.id: n for n in program.nodes}
    out: set[str] = set()
    for node in program.nodes:
        if not isinstance(node.op, ir.ReduceOp) or node.op.op != "sum":
            continue
        product = by_id[node.src[0]]
        if product.op != ir.Elementwise("mul"):
            continue
        for ident in product.src:
            out.add(ident)
            while isinstance(by_id[ident].op, ir.MOVEMENT):
                ident = by_id[ident].src[0]
                out.add(ident)
    return frozenset(out)


def is_widening(node: ir.Node, by_id: Mapping[str, ir.Node], factors: frozenset[str]) -> bool:
    """True if the node converts 8-bit integers to fp32, or fp16 or bf16 to fp32 for a sum of products (`factors`)."""
    if not isinstance(node.op, ir.CastOp) or node.dtype != DType.fp32:
        return False
    source = by_id[node.src[0]].dtype
    return source in (DType.i8, DType.u8) or (source.is_narrow_float and node.id in factors)
