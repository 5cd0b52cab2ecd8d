"""Facts about one Region that its streaming kernels need: where each let is stored, who reads it and who writes it."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.expr import var
from tatami.core.layout import MemRef
from tatami.gpu.streaming.parts import cut_lines
from tatami.plan.ir import GpuStream
from tatami.region.ir import At, Let, Param, Reduce, Region, RegionExpr, Scan, Target, Yield
from tatami.region.walk import Types, all_axes, lets_by_name, lines_of, nodes, used_lets, widened


class StreamRegion:
    """A Region and its plan, with long lines cut into parts."""

    def __init__(self, region: Region, plan: GpuStream) -> None:
        self.plan = plan
        self.cut = cut_lines(region, plan)
        self.region = region = self.cut.region
        self.lets = lets_by_name(region)
        self.extents = all_axes(region)
        self.types = Types(region)
        self.memrefs: dict[str, MemRef] = {p.name: p.memref for p in region.inputs}
        self.memrefs |= {t.name: t.memref for t in region.outputs}
        ports: tuple[Param | Target, ...] = (*region.inputs, *region.outputs)
        self.aliased = frozenset(p.name for p in ports if not p.memref.noalias)
        self.in_memory = frozenset() if plan.fused else stored_lets(region) | _rows(plan, self.lets)
        self.late = late_yields(region)
        """Yields that are written last, in order, since the order of writes to their elements counts."""

    def is_kept(self, name: str) -> bool:
        """True if a later kernel reads the let from memory."""
        readers = {n for x in self.region.lets for n in used_lets(x.expr)}
        readers |= {n for y in self.late for n in (y.source, *y.indices)}
        readers |= {n for e in self.cut.expressions() for n in used_lets(e)}
        return name in self.in_memory and name in readers

    def group_of(self, let: Let) -> int:
        """Number of threads that compute one element of the let."""
        if let.name in self.cut.groups:
            return self.cut.groups[let.name]
        for p, group in zip(self.plan.passes, self.plan.groups):
            if let.name in p.lets:
                return group if isinstance(let.expr, Reduce | Scan) else 1
        return 1

    def points_of(self, let: Let) -> tuple[str, ...]:
        """Axes of the let's points; for a part of a line, the number of the part comes first."""
        return (*self.cut.axes.get(let.name, ()), *(a for a in let.axes if a not in lines_of(let.expr)))

    def yields_of(self, let: Let) -> list[Yield]:
        """Yields that store the let."""
        return [y for y in self.region.yields if y.source == let.name]

    def scratch_name(self, let: str) -> str:
        """Name of the scratch buffer of a let."""
        return f"let{list(self.lets).index(let)}"

    def exact(self, let: Let) -> RegionExpr:
        """The let's expression, with products computed in the wider dtype that it asks for."""
        return widened(let.expr, let.dtype, self.types)


def stored_lets(region: Region) -> frozenset[str]:
    """Lets that are stored in memory between the kernels of a plan that is not fused."""
    out = {let.name for let in region.lets if isinstance(let.expr, Reduce | Scan)}
    out |= {n.let for let in region.lets for n in nodes(let.expr) if isinstance(n, At)}
    return frozenset(out)


def _rows(plan: GpuStream, lets: Mapping[str, Let]) -> frozenset[str]:
    return frozenset(n for n, where in plan.storage.items() if where in ("row", "workspace") and n in lets)


def may_meet(y: Yield) -> bool:
    """True if writes of this yield go to positions given by data, or combine with the value there."""
    return bool(y.indices) or y.combine != "set"


def late_yields(region: Region) -> tuple[Yield, ...]:
    """Yields that have to be written in order: writes that may meet, and later writes to the same output."""
    out: list[Yield] = []
    for y in region.yields:
        if may_meet(y) or any(other.to == y.to for other in out):
            out.append(y)
    return tuple(out)


def free_axes_of(y: Yield, let: Let) -> tuple[str, ...]:
    """Axes whose points write to different elements whatever the data are: axes that alone form an entry of the index."""
    entries = y.map if y.map is not None else tuple(var(a) for a in let.axes)
    alone = {name for e in entries if e is not None and (name := e.as_name()) is not None}
    return tuple(a for a in let.axes if a in alone)
