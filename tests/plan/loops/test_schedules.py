"""Schedules run by their own rules give what the Region means, for examples and for generated Regions."""

from __future__ import annotations

import itertools
import random as stdlib_random
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from tatami.core.algebra.visit import evaluate
from tatami.core.expr import Expr, expr, var
from tatami.core.target import PRESETS
from tatami.indexbook.ir import Guard
from tatami.plan.ir import CpuPlan, CpuRows, GpuStream, Storage
from tatami.plan.loops.schedule import Skeleton, skeleton
from tatami.plan.verify_plan import verify_plan
from tatami.plan.views.form_passes import Wish
from tatami.plan.views.nest_form import longest_vector_axis, nest_form
from tatami.plan.views.wished_plans import rows_plan, scalar_plan
from tatami.region.ir import At, Binary, Iter, Let, Ref, Region, RegionExpr, Scan, Select, Unary, Within, Yield
from tatami.region.meaning.inlined_lets import clamped_shape
from tatami.region.meaning.region import run_region
from tatami.region.verify import verify_region
from tests.loop.compiled import lowered
from tests.loop.meaning.run import run
from tests.plan.loops.schedule_run import ScheduleRun
from tests.region import examples as ex

TARGET = PRESETS["cpu:avx512"]


def check(region: Region, sizes: dict[str, int], seed: int = 0) -> None:
    assert [str(d) for d in verify_region(region) if not d.is_warning] == []
    rng = np.random.default_rng(seed)
    tensors = {p.name: rng.standard_normal(clamped_shape(p.memref.shape, sizes)).astype(np.float32) for p in region.inputs}
    wanted = run_region(region, tensors, sizes, "float64")
    bones = skeleton(region, sizes, 1 << 20)
    stored: dict[str, Storage] = {n: "row" if how in ("tile", "workspace") else how for n, how in bones.storage.items()}
    stream = GpuStream(bones.outer, bones.passes, stored, 256, 16)
    assert [str(d) for d in verify_plan(stream, region, PRESETS["sm80"])] == []
    got = ScheduleRun(region, bones, tensors, sizes).outputs()
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-9, atol=1e-9)
    plans: tuple[CpuPlan, ...] = (scalar_plan(region, Wish(storage=bones.storage)), *fitting(region, bones))
    for plan in plans:
        assert [str(d) for d in verify_plan(plan, region, TARGET)] == []
        for name, array in run_of_loops(region, plan, tensors, sizes).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-9, atol=1e-9, err_msg=f"{name} of {plan}")


def run_of_loops(
    region: Region, plan: CpuPlan, tensors: Mapping[str, np.ndarray], sizes: dict[str, int]
) -> dict[str, np.ndarray]:
    """The outputs of the loops of a plan, statement by statement, in float64."""
    kernel, binding = lowered(region, plan, "avx512")
    outputs = {t.name: np.full(clamped_shape(t.memref.shape, sizes), np.nan) for t in region.outputs}
    arrays = [tensors[p.name].astype(np.float64).reshape(-1) for p in region.inputs]
    arrays += [a.reshape(-1) for a in outputs.values()]
    assert run(kernel, arrays, [int(evaluate(e, sizes)) for e in binding.sizes], "float64") == 0
    return outputs


def fitting(region: Region, bones: Skeleton) -> Iterator[CpuRows]:
    """Vector loops of every width that some axis has room for, with the outer axes and storage of the sketch or without."""
    for width, wish in itertools.product((16, 8, 4), (Wish(bones.outer, storage=bones.storage), Wish())):
        plan = rows_plan(region, wish, width)
        most = longest_vector_axis(nest_form(region, plan), plan)
        if most is None or most >= width:
            yield plan


@pytest.mark.parametrize("make", ex.ALL, ids=lambda f: f.__name__)
def test_examples(make: object) -> None:
    check(make(), {"M": 3, "N": 4, "K": 2, "B": 2, "D": 2, "H": 3, "W": 4, "Ci": 2, "Co": 2, "L": 7})  # type: ignore[operator]


class Generator:
    """Small random Regions: pointwise lets, reduces, scans, shifted and guarded reads, several outputs."""

    axes = {"i": 3, "j": 4, "k": 2, "p": 2}

    def __init__(self, seed: int) -> None:
        self.random = stdlib_random.Random(seed)
        self.lets: list[Let] = []

    def region(self) -> Region:
        r = self.random
        for number in range(r.randint(2, 7)):
            self.lets.append(self.let(f"l{number}"))
        sources = {self.lets[-1].name} | {n.name for n in self.lets if r.random() < 0.2}
        chosen = [n for n in self.lets if n.name in sources]
        outputs = tuple(ex.target(f"Y{n.name}", *(self.axes[a] for a in n.axes)) for n in chosen)
        return Region(
            "generated",
            tuple(Iter(a, expr(n)) for a, n in self.axes.items()),
            (Iter("z", expr(2)),),
            (ex.param("X", 3, 4, 2), ex.param("V", 4)),
            outputs,
            tuple(self.lets),
            tuple(Yield(n.name, f"Y{n.name}") for n in chosen),
        )

    def let(self, name: str) -> Let:
        r = self.random
        axes = tuple(a for a in self.axes if r.random() < 0.6)
        if r.random() < 0.3:
            axes = tuple(r.sample(axes, len(axes)))
        choice = r.random()
        if choice < 0.4:
            bound = tuple(a for a in (*self.axes, "z") if a not in axes and r.random() < 0.6) or ("z",)
            return ex.let(
                name, " ".join(axes), ex.total(" ".join(bound), self.value(axes + bound, 2), r.choice(["sum", "max"]))
            )
        if choice < 0.5 and axes:
            scan = Scan("sum", r.choice(axes), ex.F32, self.value(axes, 1), r.random() < 0.3, r.random() < 0.3)
            return ex.let(name, " ".join(axes), scan)
        return ex.let(name, " ".join(axes), self.value(axes, 2))

    def value(self, scope: tuple[str, ...], depth: int) -> RegionExpr:
        r = self.random
        choice = r.random()
        if depth and choice < 0.4:
            return Binary(r.choice(["add", "mul", "sub"]), self.value(scope, depth - 1), self.value(scope, depth - 1))
        if depth and choice < 0.5:
            return Unary("exp", Unary("neg", Unary("abs", self.value(scope, depth - 1))))
        if self.lets and choice < 0.85:
            used = r.choice(self.lets)
            if set(used.axes) <= set(scope) and r.random() < 0.7:
                return Ref(used.name)
            entries = tuple(self.index(scope, self.axes[a], a) for a in used.axes)
            guards = tuple(Guard(e, expr(self.axes[a])) for e, a in zip(entries, used.axes))
            return Select(Within(guards), At(used.name, entries), ex.const(0.0))
        entries = tuple(self.index(scope, n, "") for n in (3, 4, 2))
        guards = tuple(Guard(e, expr(n)) for e, n in zip(entries, (3, 4, 2)))
        return Select(Within(guards), ex.read("X", *entries), ex.const(0.0))

    def index(self, scope: tuple[str, ...], size: int, own: str) -> Expr:
        r = self.random
        if own in scope and r.random() < 0.6:
            return var(own)
        if not scope or r.random() < 0.15:
            return expr(r.randrange(size))
        return var(r.choice(scope)) + (r.choice([0, 0, 1, -1]))


@pytest.mark.parametrize("seed", range(150))
def test_generated_regions(seed: int) -> None:
    check(Generator(seed).region(), {}, seed)


def test_writes_at_computed_positions_keep_their_order() -> None:
    from tatami.core.dtype import DType
    from tatami.region.ir import Cast

    index = Let("where", ("j", "i"), DType.i64, Cast(ex.read("I", "i", "j"), DType.i64))
    region = Region(
        "scatter",
        (Iter("i", expr("M")), Iter("j", expr("N"))),
        (),
        (ex.param("X", "M", "N"), ex.param("I", "M", "N", dtype=DType.i32), ex.param("T", "M", "K")),
        (ex.target("Y", "M", "K").__class__("Y", ex.target("Y", "M", "K").memref, updates="T"),),
        (ex.let("v", "j i", ex.read("X", "i", "j")), index),
        (Yield("v", "Y", map=(expr("i"), None), indices=("where",)),),
    )
    assert [str(d) for d in verify_region(region)] == []
    assert skeleton(region, {}, 1 << 20).outer == ("j", "i")
