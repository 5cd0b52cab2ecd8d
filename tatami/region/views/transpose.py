"""Maps that transpose: their reads are contiguous along another axis than their writes.

y[.., b] = f(x[.., a, ..], …)     x is contiguous along a, y along b
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import free_vars, step_of
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, var
from tatami.core.layout import address
from tatami.region.ir import At, Read, Reduce, Region, Scan, Within
from tatami.region.walk import lets_by_name, nodes, written_index

DTYPES = (DType.fp32, DType.fp64, DType.i32, DType.u32, DType.i64, DType.u64)
"""Element dtypes that can be transposed in registers: 4 or 8 bytes."""


class Turned(msgspec.Struct, frozen=True):
    """Writes are contiguous along `along`, `reads` along `across`; all of them have one dtype."""

    along: str
    across: str
    reads: tuple[Read, ...]


def find_turned(region: Region) -> Turned | str:
    """The axes and reads of a transposing Region, or the reason why it does not transpose."""
    lets, axes = lets_by_name(region), tuple(i.name for i in region.iters)
    if region.opaque is not None or any(y.indices or y.combine != "set" for y in region.yields):
        return "it does not write each element in its place"
    inner = [n for let in region.lets for n in nodes(let.expr)]
    if any(isinstance(n, Reduce | Scan | Within) for n in inner):
        return "it reduces, scans or guards what it reads"
    if any(isinstance(n, At) and n.map != tuple(var(a) for a in lets[n.let].axes) for n in inner):
        return "a let is read at another place"
    if any(set(let.axes) != set(axes) for let in region.lets):
        return "a let lacks an axis"
    memrefs = {p.name: p.memref for p in region.inputs} | {t.name: t.memref for t in region.outputs}

    def place(tensor: str, index: tuple[Expr, ...]) -> Expr:
        return address(memrefs[tensor].layout, memrefs[tensor].shape, index)

    def contiguous(tensor: str, index: tuple[Expr, ...]) -> str:
        return next((a for a in axes if step_of(place(tensor, index), a) == ONE), "")

    own = {contiguous(y.to, written_index(y, lets[y.source].axes)) for y in region.yields}
    if len(own) != 1 or "" in own or any(t.updates for t in region.outputs):
        return "its writes are not contiguous along one axis"
    (along,) = own
    moving = (n for n in inner if isinstance(n, Read) and along in free_vars(place(n.tensor, n.map)))
    reads = tuple(n for n in dict.fromkeys(moving) if contiguous(n.tensor, n.map) not in ("", along))
    across = {contiguous(r.tensor, r.map) for r in reads}
    dtypes = {memrefs[r.tensor].dtype for r in reads}
    if len(across) != 1 or len(dtypes) != 1 or not dtypes <= set(DTYPES):
        return f"{len(across)} axes are turned, of {len(dtypes)} element types; the template takes 1 of each, of 4 or 8 bytes"
    if any(step_of(place(r.tensor, r.map), along) is None for r in reads):
        return f"the reads move unevenly along {along}"
    return Turned(along, across.pop(), reads)
