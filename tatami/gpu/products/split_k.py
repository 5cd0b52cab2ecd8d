"""Split-K, deterministic: a product as two Regions, partial sums to scratch, then their sum in order and the epilogue.

    y[m, n] = relu(sum over k of a*b)   ->   t[s, m, n] = sum over part s of k of a*b
                                             y[m, n] = relu((t[0, m, n] + t[1, m, n]) + ...)

The first goes through the MMA template, whose kernel adds the part's coordinate to the addresses of t; the second is
elementwise and is streamed.
"""

from __future__ import annotations

from functools import reduce

import msgspec

from tatami.core.expr import Expr, expr, product, var
from tatami.core.layout import MemRef
from tatami.core.target import ACCESS_BYTES
from tatami.plan.ir import GpuStream, Pass, Sm80Mma, Sm90Mma, Storage
from tatami.region.ir import Binary, Let, Param, Read, Region, RegionExpr, Target, Yield
from tatami.region.walk import nodes, used_lets

THREADS = 256
"""Threads per block of the kernel that adds the parts."""
MANY = 16
"""Number of parts above which a thread computes only MANY_RESULTS results."""
MANY_RESULTS = 4
"""Results per thread where each is the sum of more than MANY parts: the thread holds an element of each part for each
result."""


class Split(msgspec.Struct, frozen=True):
    """A product cut along k: its parts, and the Region that adds them."""

    product: Region
    after: Region
    plan: GpuStream
    """The schedule of the Region `after`."""
    scratch: tuple[str, Expr]
    """Name and size in bytes of the scratch buffer t."""


def split_region(region: Region, plan: Sm80Mma | Sm90Mma, acc: str) -> Split:
    """`region` cut into `plan.split_k` parts. `acc` is the let that holds the sum over k."""
    let = next(x for x in region.lets if x.name == acc)
    sizes = {i.name: i.size for i in region.iters}
    shape = tuple(sizes[a] for a in let.axes)
    parts = f"{acc}'"
    at = tuple(var(a) for a in let.axes)
    terms: list[RegionExpr] = [Read(parts, (expr(s), *at)) for s in range(plan.split_k)]
    summed = Let(acc, let.axes, let.dtype, reduce(lambda x, y: Binary("add", x, y), terms))
    others = [x for x in region.lets if x is not let]
    first = msgspec.structs.replace(
        region,
        inputs=tuple(p for p in region.inputs if p.name in read_tensors((let,))),
        outputs=(Target(parts, MemRef(let.dtype, shape)),),
        lets=(let,),
        yields=(Yield(acc, parts),),
    )
    second = msgspec.structs.replace(
        region,
        reduce_axes=(),
        inputs=(
            Param(parts, MemRef(let.dtype, (expr(plan.split_k), *shape))),
            *(p for p in region.inputs if p.name in read_tensors(others)),
        ),
        lets=tuple(summed if x is let else x for x in region.lets),
    )
    return Split(first, second, elementwise(second, plan.split_k), (parts, product(shape) * plan.split_k * let.dtype.itemsize))


def read_tensors(lets: tuple[Let, ...] | list[Let]) -> set[str]:
    """Names of the tensors that `lets` read."""
    return {e.tensor for x in lets for e in nodes(x.expr) if isinstance(e, Read)}


def elementwise(region: Region, parts: int) -> GpuStream:
    """The schedule with a pass per let that is stored; other lets are recomputed where they are used. `parts`: terms of the
    sum per result."""
    leaving = {y.source for y in region.yields}
    used = {n for x in region.lets for n in used_lets(x.expr)}
    storage: dict[str, Storage] = {
        x.name: "recompute" if x.name not in leaving else "row" if x.name in used else "register" for x in region.lets
    }
    passes = tuple(Pass(x.axes, (x.name,)) for x in region.lets if x.name in leaving)
    memrefs = [*(p.memref for p in region.inputs), *(t.memref for t in region.outputs)]
    most = ACCESS_BYTES if parts <= MANY else MANY_RESULTS * min(m.dtype.itemsize for m in memrefs)
    return GpuStream((), passes, storage, THREADS, min(ACCESS_BYTES, most))
