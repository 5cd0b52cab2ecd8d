"""The axes of a Region, and the place of each of its values over them.

Axes that reads map straight onto each other are one axis. A value that sees a shared result through a reshape (``[M, N]`` read
as ``[B, S, N]``) takes over the result's axes; its own coordinates are then expressions of them. Axes of size 1 are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tatami.core.algebra.inverse import invert
from tatami.core.algebra.simplify import simplify
from tatami.core.algebra.visit import substitute
from tatami.core.expr import ONE, ZERO, Expr, var
from tatami.region.form.axis_classes import AxisClasses
from tatami.region.form.axis_names import name_axes
from tatami.region.form.program_facts import ProgramFacts


class Frame(msgspec.Struct, frozen=True):
    """Position of a value in the Region. `axes`: axes of its let; `own`: its tiny axes (i…, r…) as expressions of Region axes;
    `back`: each let axis as an expression of the tiny axes i…; `reshaped`: True if the value took over another value's
    axes."""

    axes: tuple[str, ...]
    own: dict[str, Expr]
    back: dict[str, Expr]
    reshaped: bool = False


class Frames:
    """The frame of each value of a Region. `extents`: size of each axis of the Region."""

    def __init__(self, facts: ProgramFacts, name: str, values: Sequence[str]) -> None:
        self.facts = facts
        self.name = name
        self.values = list(values)
        self.inside = set(values)
        self.frames: dict[str, Frame] = {}
        self.extents: dict[str, Expr] = {}
        self.place()

    def place(self) -> None:
        """Decide the frame of every value, and the axes of the Region."""
        statements = self.facts.statements
        classes = AxisClasses(statements)
        reshaped: dict[str, tuple[str, tuple[Expr, ...], tuple[Expr, ...]]] = {}
        rigid: set[str] = set()
        for v in self.values:
            s = statements[v]
            inner = [a for a in s.reads if a.tensor in self.inside and not a.may]
            source = self.reshape_source(v, rigid, reshaped)
            if source is not None:
                reshaped[v] = source
                rigid.add(v)
                continue
            classes.add(v)
            classes.unify_reads(v, lambda p: p in self.inside and p not in reshaped)
            if s.kind in ("reduce", "scan") or any(a.tensor in rigid for a in inner):
                rigid.add(v)
        self.join_common_reads(classes, [v for v in self.values if v not in reshaped])
        patterns = [self.facts.patterns[v] for v in self.values if v in self.facts.patterns]
        anchors = [p for p in patterns if p.pattern != "dot"]
        outputs = [v for v in self.values if self.facts.writer.get(v) == self.name]
        plain = [v for v in self.values if v not in reshaped]
        names = name_axes(classes, statements, plain, outputs, anchors, self.facts.symbols)
        self.extents = {name: classes.size[root] for root, name in names.items()}
        for v in self.values:
            s = statements[v]
            if v in reshaped:
                self.frames[v] = self.reshaped_frame(v, *reshaped[v])
                continue
            own: dict[str, Expr] = {}
            for axis in (*s.axes, *s.reduced):
                own[axis.name] = ZERO if axis.size == ONE else var(names[classes.find((v, axis.name))])
            axes = tuple(names[classes.find((v, a.name))] for a in s.axes if a.size != ONE)
            back = {names[classes.find((v, a.name))]: var(a.name) for a in s.axes if a.size != ONE}
            self.frames[v] = Frame(axes, own, back)

    def join_common_reads(self, classes: AxisClasses, values: Sequence[str]) -> None:
        """Let values that read the same dimension of the same tensor share the axis, if no contraction gives roles: ``max over
        i1 of x[i0, i1]`` and ``exp(x[i0, i1] - ..)``."""
        if any(self.facts.patterns[v].pattern != "dot" for v in values if v in self.facts.patterns):
            return
        first: dict[tuple[str, int], tuple[str, str]] = {}
        for v in values:
            for access in self.facts.statements[v].reads:
                if access.tensor in self.inside or access.may:
                    continue
                for d, entry in enumerate(access.map):
                    slot = (v, (entry.as_name() if entry is not None else None) or "")
                    if slot in classes.parent:
                        classes.union(first.setdefault((access.tensor, d), slot), slot)

    def reshape_source(
        self, v: str, rigid: set[str], reshaped: Mapping[str, object]
    ) -> tuple[str, tuple[Expr, ...], tuple[Expr, ...]] | None:
        """(value, map onto it, inverse) of the shared result that `v` reads through a reshape; None if there is none."""
        s = self.facts.statements[v]
        if s.kind not in ("elementwise", "copy"):
            return None
        for access in s.reads:
            p = access.tensor
            if p not in rigid or access.guards or access.may:
                continue
            edge = self.facts.edges[p, v]
            if edge.rule != "reshape" and not (p in reshaped and edge.rule == "pointwise"):
                continue
            index_map = tuple(e for e in access.map if e is not None)
            producer = self.facts.statements[p]
            target = tuple(f"@{a.name}" for a in producer.axes)
            inverse = invert(index_map, {a.name: a.size for a in s.axes}, target, tuple(a.size for a in producer.axes))
            if inverse is not None:
                return p, index_map, inverse
        return None

    def reshaped_frame(self, v: str, p: str, index_map: tuple[Expr, ...], inverse: tuple[Expr, ...]) -> Frame:
        """The frame of `v`, a reshape of `p` by `index_map`: the axes of `p`, and coordinates by `inverse`."""
        base = self.frames[p]
        axes = self.facts.statements[p].axes
        into = {f"@{a.name}": base.own[a.name] for a in axes}
        own = {
            a.name: simplify(substitute(e, into), self.extents)
            for a, e in zip(self.facts.statements[v].axes, inverse, strict=True)
        }
        forward = {a.name: e for a, e in zip(axes, index_map, strict=True)}
        back = {name: substitute(e, forward) for name, e in base.back.items()}
        return Frame(base.axes, own, back, reshaped=True)
