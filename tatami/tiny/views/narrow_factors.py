"""Factors of sums of products that are narrower in memory than in the sum: what widens them is a view of memory, not work.

    y = x @ cast(w, fp32)                            w of fp16, bf16, i8 or u8
    y = x @ ((cast(w, fp32) - zero) * scale)         w of i8, or of 4 bits: shr(shl(words, place), 28); zero and scale for a block
                                                     of k, each of them perhaps absent

The widening stays in main if w is a constant (`tiny/passes/setup.py`), and its values are part of the product's Region
(`region/fusion/values.py`), so that a micro-kernel widens in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tatami.core.dtype import DType
from tatami.tiny import ir

SIGN_SHIFT = 28
"""Shift right of a word whose upper bits are a number of 4 bits."""


class Codes(NamedTuple):
    """A factor that is dequantised block by block: the values that compute it, and those that it is made from."""

    members: tuple[str, ...]
    leaves: tuple[str, ...]


def multiplied(program: ir.Program) -> frozenset[str]:
    """Ids of values that a sum of products reads as a factor, directly or through movement, and that nothing else reads."""
    by_id = {n.id: n for n in program.nodes}
    products = {
        n.src[0]
        for n in program.nodes
        if isinstance(n.op, ir.ReduceOp) and n.op.op == "sum" and by_id[n.src[0]].op == ir.Elementwise("mul")
    }
    out: set[str] = set()
    elsewhere = set(program.outputs)
    for node in reversed(program.nodes):
        is_moved = isinstance(node.op, ir.MOVEMENT) and node.id in out and node.id not in elsewhere
        (out if node.id in products or is_moved else elsewhere).update(node.src)
    return frozenset(out - elsewhere)


def codes_of_factors(program: ir.Program) -> dict[str, Codes]:
    """The factors of sums of products that are matrices dequantised block by block, by id."""
    by_id = {n.id: n for n in program.nodes}
    found = {v: _codes(v, by_id) for v in multiplied(program) if not isinstance(by_id[v].op, ir.MOVEMENT)}
    return {v: codes for v, codes in found.items() if codes is not None}


def is_widening(node: ir.Node, by_id: Mapping[str, ir.Node], factors: frozenset[str]) -> bool:
    """True if the node converts 8-bit integers to fp32, or fp16 or bf16 to fp32 for a sum of products (`factors`)."""
    if not isinstance(node.op, ir.CastOp) or node.dtype != DType.fp32:
        return False
    source = by_id[node.src[0]].dtype
    return source in (DType.i8, DType.u8) or (source.is_narrow_float and node.id in factors)


def _codes(v: str, by_id: Mapping[str, ir.Node]) -> Codes | None:
    """The parts of a matrix of fp32 that is dequantised block by block; None for other values."""
    node = by_id[v]
    if node.dtype != DType.fp32 or len(node.shape) != 2:
        return None
    members: list[str] = []
    leaves: list[str] = []
    if node.op == ir.Elementwise("mul"):
        members.append(node.id)
        leaves.append(_source(node.src[1], by_id).id)
        node = _source(node.src[0], by_id)
    if node.op == ir.Elementwise("sub"):
        members.append(node.id)
        zero, node = _source(node.src[1], by_id), _source(node.src[0], by_id)
        if not isinstance(zero.op, ir.CastOp) or by_id[zero.src[0]].dtype != DType.i8:
            return None
        members.append(zero.id)
        leaves.append(_source(zero.src[0], by_id).id)
    if not isinstance(node.op, ir.CastOp) or node.dtype != DType.fp32:
        return None
    members.append(node.id)
    node = _source(node.src[0], by_id)
    if node.op == ir.Elementwise("shr") and _source(node.src[1], by_id).op == ir.ConstOp(SIGN_SHIFT):
        members.append(node.id)
        node = _source(node.src[0], by_id)
        if node.op != ir.Elementwise("shl"):
            return None
        members += [node.id, *_coordinates(node.src[1], by_id)]
        node = _source(node.src[0], by_id)
    elif node.dtype != DType.i8 or len(members) == 1:
        return None
    leaves.append(node.id)
    is_small = all(_elements(by_id[leaf]) * 8 <= _elements(by_id[v]) for leaf in leaves[:-1])
    return Codes(tuple(members), tuple(leaves)) if is_small else None


def _source(v: str, by_id: Mapping[str, ir.Node]) -> ir.Node:
    """The value that `v` moves."""
    while isinstance(by_id[v].op, ir.MOVEMENT):
        v = by_id[v].src[0]
    return by_id[v]


def _coordinates(v: str, by_id: Mapping[str, ir.Node]) -> Iterator[str]:
    """The values of arithmetic on coordinates that `v` is made of."""
    node = _source(v, by_id)
    if not isinstance(node.op, ir.ConstOp):
        yield node.id
    for s in node.src:
        yield from _coordinates(s, by_id)


def _elements(node: ir.Node) -> int:
    total = 1
    for size in node.shape:
        total *= size.as_int() or 0
    return total
