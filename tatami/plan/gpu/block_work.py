"""Work that block reductions of rows and columns add to a product's epilogue, per result (decision 0026).

Reduced lets are computed a second time, and once more if exponentials follow their maximum. Each reduction adds one operation.
A quad combines 16 columns of a row by two shuffles; eight lanes combine eight columns of two rows each by seven shuffles, each
with two selections and one operation."""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.ops import OPS
from tatami.region.ir import Binary, Cast, Let, Select, Unary
from tatami.region.views.product import GemmView
from tatami.region.walk import nodes, used_lets

ROUNDING = 2
"""Instructions of a cast to 16 bits and back, in registers."""


class BlockWork(msgspec.Struct, frozen=True):
    """Operations per result, and stored bytes of all blocks, also per result."""

    ordinary: float = 0.0
    exponentials: float = 0.0
    shuffles: float = 0.0
    stored_bytes: float = 0.0


def block_work(view: GemmView) -> BlockWork:
    """The work of all block reductions of a product."""
    rows = sum(p.axis in view.n.axes for p in view.partials)
    columns, less = len(view.partials) - rows, sum(bool(p.top) for p in view.partials)
    first = _operations({p.source for p in view.partials}, view.epilogue)
    second = _operations({p.source for p in view.partials if p.top}, view.epilogue)
    return BlockWork(
        ordinary=first + second + len(view.partials) + less + rows * 2 / 16 + columns * 7 * 3 / 16,
        exponentials=float(less),
        shuffles=rows * 2 / 16 + columns * 7 / 16,
        stored_bytes=sum(DType.fp32.itemsize / p.width for p in view.partials),
    )


def _operations(sources: set[str], lets: tuple[Let, ...]) -> float:
    """Operations per result of the lets `sources` and everything that they need."""
    needed, found = set(sources), 0
    for let in reversed(lets):
        if let.name in needed:
            needed |= set(used_lets(let.expr))
            for n in nodes(let.expr):
                match n:
                    case Unary(fn=fn) | Binary(fn=fn):
                        found += OPS[fn].flops
                    case Cast(to=to) if to.is_narrow_float:
                        found += ROUNDING
                    case Select():
                        found += 1
                    case _:
                        pass
    return float(found)
