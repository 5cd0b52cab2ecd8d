"""Conditions on the sizes of a tiny program: no size is negative, PAD crops and SHRINK takes only existing elements.

    PAD [(0, -4)] of x[N]        max(4, N) == N
    SHRINK 0:M of x[N]           max(M, N) == N

A program lowered from a graph has its conditions from there (`frontend.operations.size_conditions`); normalisation adds those
that a program written by hand lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tatami.core.algebra.order import greatest, is_always_less
from tatami.core.expr import ZERO, Shape
from tatami.core.sizes.conditions import Claim, conditions, cropped, shape_claims
from tatami.tiny.ir import Node, PadOp, Program, ShrinkOp


def with_conditions(program: Program) -> Program:
    """The program with the conditions on its sizes in the signature."""
    needed = conditions(program_claims(program.nodes), program.signature.assumptions)
    if not needed:
        return program
    signature = msgspec.structs.replace(program.signature, assumptions=(*program.signature.assumptions, *needed))
    return msgspec.structs.replace(program, signature=signature)


def program_claims(nodes: Iterable[Node]) -> Iterator[Claim]:
    """The size conditions of all nodes, in their order."""
    shapes: dict[str, Shape] = {}
    for node in nodes:
        src = [shapes[s] for s in node.src if s in shapes]
        shapes[node.id] = node.shape
        yield from _claims(node, src)


def _claims(node: Node, src: list[Shape]) -> Iterator[Claim]:
    match node.op:
        case PadOp(pad=pad):
            for size, (lo, hi) in zip(src[0], pad, strict=True):
                yield Claim(cropped(lo, hi), size, node.id)
        case ShrinkOp(lo=los, hi=his):
            for size, lo, hi in zip(src[0], los, his, strict=True):
                yield Claim(ZERO, lo, node.id)
                yield Claim(lo, hi, node.id)
                yield Claim(hi, size if is_always_less(lo, hi) else greatest(lo, size), node.id)
        case _:
            pass
    yield from shape_claims(node.shape, node.id, src)
