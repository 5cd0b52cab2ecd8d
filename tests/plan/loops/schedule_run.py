"""Schedules by their own rules, one element at a time: what streaming kernels have to do (`plan/loops/schedule.py`).

Nothing of `region.run` is used for the order of work: a let that is read before it is complete, or from a register that
holds another value, is an error here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.numbers import numerics
from tatami.core.ops import neutral
from tatami.core.scalar import number
from tatami.plan.ir import Pass
from tatami.plan.loops.schedule import Skeleton, nest_of
from tatami.region.ir import At, Binary, Cast, Const, Index, Read, Reduce, Ref, Region, RegionExpr, Scan, Select, Unary, Within
from tatami.region.walk import Types, all_axes, lets_by_name


class ScheduleRun:
    def __init__(self, region: Region, plan: Skeleton, tensors: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        self.region, self.plan, self.tensors, self.sizes = region, plan, tensors, sizes
        self.lets = lets_by_name(region)
        self.types = Types(region)
        self.extent = {a: max(0, int(evaluate(e, sizes))) for a, e in all_axes(region).items()}
        self.out = {t.name: np.full([int(evaluate(s, sizes)) for s in t.memref.shape], np.nan) for t in region.outputs}
        self.place = {n: i for i, p in enumerate(plan.passes) for n in p.lets}

    def outputs(self) -> dict[str, np.ndarray]:
        for point in self.points(self.plan.outer):
            self.rows: dict[str, dict[tuple[int, ...], float]] = {n: {} for n in self.lets}
            self.local: dict[str, float] = {}
            for number_, p in enumerate(self.plan.passes):
                self.number = number_
                self.run_pass(p, point)
        return self.out

    def points(self, axes: tuple[str, ...]):
        for values in itertools.product(*(range(self.extent[a]) for a in axes)):
            yield dict(zip(axes, values))

    def run_pass(self, p: Pass, outer: dict[str, int]) -> None:
        nests = {n: nest_of(self.lets[n], self.plan.outer) for n in p.lets}
        inner = next((i for _, i, how in nests.values() if how), ())
        reverse = any(how == "scan-" for _, _, how in nests.values())
        inner_axes = tuple(a for a in p.axes if a in inner)
        point_axes = tuple(a for a in p.axes if a not in inner)
        assert p.axes == point_axes + inner_axes
        for point in self.points(point_axes):
            accumulators: dict[str, float] = {}
            for name, (_, _, how) in nests.items():
                e = self.lets[name].expr
                if how == "reduce":
                    assert isinstance(e, Reduce)
                    accumulators[name] = float(number(neutral(e.fn, e.dtype) if e.init is None else e.init))
                elif how:
                    assert isinstance(e, Scan)
                    accumulators[name] = float(number(neutral(e.fn, e.dtype)))
            steps = list(self.points(inner_axes))
            for step in reversed(steps) if reverse else steps:
                env = {**outer, **point, **step}
                here: dict[str, float] = {}
                for name in p.lets:
                    let = self.lets[name]
                    how = nests[name][2]
                    if how == "reduce":
                        assert isinstance(let.expr, Reduce)
                        accumulators[name] = combine(let.expr.fn, accumulators[name], self.value(let.expr.body, env, here))
                        continue
                    if how:
                        assert isinstance(let.expr, Scan)
                        before = accumulators[name]
                        accumulators[name] = combine(let.expr.fn, before, self.value(let.expr.body, env, here))
                        here[name] = before if let.expr.exclusive else accumulators[name]
                    else:
                        here[name] = self.value(let.expr, env, here)
                    self.complete(name, env, here[name])
            for name in p.lets:
                if nests[name][2] == "reduce":
                    self.complete(name, {**outer, **point}, accumulators[name])

    def complete(self, name: str, env: Mapping[str, int], value: float) -> None:
        let = self.lets[name]
        storage = self.plan.storage[name]
        free = tuple(a for a in let.axes if a not in self.plan.outer)
        if storage in ("row", "tile", "workspace"):
            self.rows[name][tuple(env[a] for a in free)] = value
        elif not free:
            self.local[name] = value
        for y in self.region.yields:
            if y.source == name:
                entries = None if y.map is None else [m for m in y.map if m is not None]
                index = (
                    tuple(env[a] for a in let.axes)
                    if entries is None
                    else tuple(int(evaluate(m, {**self.sizes, **env})) for m in entries)
                )
                old = self.out[y.to][index]
                assert np.isnan(old) or old == value or np.isnan(value), "an element is written twice"
                self.out[y.to][index] = value

    def read_let(self, name: str, env: Mapping[str, int], here: Mapping[str, float]) -> float:
        let = self.lets[name]
        storage = self.plan.storage[name]
        if storage == "recompute":
            return self.value(let.expr, env, {})
        if name in here and all(env[a] == self.current[a] for a in let.axes):
            return here[name]
        free = tuple(a for a in let.axes if a not in self.plan.outer)
        if storage == "register":
            assert not free, f"{name} is in a register that is gone"
            return self.local[name]
        return self.rows[name][tuple(env[a] for a in free)]

    def value(self, e: RegionExpr, env: Mapping[str, int], here: Mapping[str, float]) -> float:
        self.current = dict(env)
        return self.at(e, env, here)

    def at(self, e: RegionExpr, env: Mapping[str, int], here: Mapping[str, float]) -> float:
        full = {**self.sizes, **env}
        match e:
            case Read(tensor=tensor, map=entries):
                index = tuple(int(evaluate(m, full)) for m in entries)
                assert all(0 <= i < n for i, n in zip(index, self.tensors[tensor].shape)), "read outside"
                return float(self.tensors[tensor][index])
            case Ref(let=let):
                return self.through(let, {a: env[a] for a in self.lets[let].axes}, here)
            case At(let=let, map=entries):
                return self.through(let, {a: int(evaluate(m, full)) for a, m in zip(self.lets[let].axes, entries)}, here)
            case Const(value=value):
                return float(number(value))
            case Index(value=value):
                return float(evaluate(value, full))
            case Within(guards=guards):
                return float(all(0 <= evaluate(g.index, full) < evaluate(g.size, full) for g in guards))
            case Select(pred=pred, then=then, other=other):
                return self.at(then, env, here) if self.at(pred, env, here) else self.at(other, env, here)
            case Cast(x=x):
                return self.at(x, env, here)
            case Unary(fn=fn, x=x):
                return self.scalar(e, fn, [self.at(x, env, here)])
            case Binary(fn=fn, x=x, y=y):
                return self.scalar(e, fn, [self.at(x, env, here), self.at(y, env, here)])
            case _:
                raise NotImplementedError(type(e))

    def through(self, let: str, env: Mapping[str, int], here: Mapping[str, float]) -> float:
        if self.plan.storage[let] == "recompute":
            return self.at(self.lets[let].expr, env, here)
        return self.read_let(
            let, {**env, **{a: self.current[a] for a in self.plan.outer if a not in env and a in self.current}}, here
        )

    def scalar(self, e: RegionExpr, fn: str, args: list[float]) -> float:
        dtype = self.types.of(e)
        assert dtype is not None
        return float(numerics.apply(fn, [np.asarray(a) for a in args], dtype, "float64"))


def combine(fn: str, a: float, b: float) -> float:
    return {
        "sum": lambda: a + b,
        "prod": lambda: a * b,
        "max": lambda: float(np.maximum(a, b)),
        "min": lambda: float(np.minimum(a, b)),
    }[fn]()
