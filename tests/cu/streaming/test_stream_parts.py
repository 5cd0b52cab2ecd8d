"""Long lines over several blocks: parts of reduces and scans, joined in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.frontend.graph import Graph
from tatami.gpu.stream_ir import Fold, Running, SortKernel, StreamKernel, Write
from tatami.gpu.verify import verify_any
from tatami.plan.gpu import stream as stream_plans
from tatami.plan.verify_plan import verify_plan
from tatami.runtime.building.nvrtc import compile_cubin, has_nvrtc
from tests.cu.streaming.test_stream_numbers import check_kernels, stages_of


def totals(g: Graph) -> None:
    x = g.input("x", ("K",), DType.fp32)
    for fn in ("sum", "max", "argmax", "argmin"):
        g.output(fn, getattr(x, fn)(0))
    n = g.input("n", ("M", 50), DType.i32)
    g.output("whole", n.sum((0, 1)))
    g.output("turned", n.transpose(0, 1).prod((0, 1)))


def few_rows(g: Graph) -> None:
    x = g.input("x", (3, 160), DType.fp16)
    g.output("mean", x.mean(1))
    g.output("y", x.softmax(1))
    g.output("at", x.argmax(1))


def few_columns(g: Graph) -> None:
    x = g.input("x", ("K", 6), DType.fp32)
    g.output("y", x.max(0))
    g.output("at", x.argmin(0))
    g.output("wide", g.input("w", (130, 8), DType.fp16).sum(0))


def channels(g: Graph) -> None:
    g.output("mean", g.input("x", ("M", 2, 5, 12), DType.fp32).mean((0, 2, 3)))


def running(g: Graph) -> None:
    x = g.input("x", ("K",), DType.fp32)
    g.output("y", x.cumsum(0))
    g.output("below", x.cumsum(0, exclusive=True))
    g.output("after", x.cumsum(0, reverse=True))
    g.output("later", x.cummax(0))
    g.output("half", g.input("h", (160, 3), DType.fp16).cumsum(0, exclusive=True, reverse=True))


def orders(g: Graph) -> None:
    x = g.input("x", ("K",), DType.fp32)
    values, at = x.sort(0)
    g.output("values", values)
    g.output("at", at)
    g.output("down", x.sort(0, descending=True)[1])
    g.output("most", g.input("w", (2, 150, 3), DType.i32).topk(70, 1)[1])
    g.output("least", g.input("h", (300,), DType.fp16).sort(0)[0])


PROGRAMS = (totals, few_rows, few_columns, channels, running)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 32 or more, so that a machine of little patience has several."""
    monkeypatch.setattr(stream_plans, "SHARED", 1)
    monkeypatch.setattr(stream_plans, "SHORTEST_PART", 32)
    monkeypatch.setattr(stream_plans, "SORT_TILE", 16)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_parts_mean_what_whole_lines_mean(make: Callable[[Graph], None]) -> None:
    stages = stages_of(make)
    phases = [p for k in stages["gpu"].main.kernels if isinstance(k, StreamKernel) for p in k.phases]
    assert any(isinstance(p, Fold | Running) and p.part is not None for p in phases)
    for k in (150, 1, 0) if make is running else (150, 1):  # nothing has no extreme
        check_kernels(stages, {"M": 3, "K": k})


def test_sorted_tiles_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tile, tiles for one merge, and for two: of lines whose length is known, and of others."""
    monkeypatch.setattr(stream_plans, "SORT_TILE", 16)
    stages = stages_of(orders)
    assert {k.step for k in stages["gpu"].main.kernels if isinstance(k, SortKernel)} == {"tile", "merge", "take"}
    for k in (150, 16, 0):
        check_kernels(stages, {"K": k})


@pytest.mark.usefixtures("short_parts")
@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize("make", (few_columns, running, orders), ids=lambda f: f.__name__)
def test_parts_compile(make: Callable[[Graph], None]) -> None:
    source = stages_of(make)["cu"].main
    for u in source.units:
        cubin = compile_cubin(u.text, u.arch, source.headers)
        assert cubin.spill_bytes == 0 and cubin.warnings == ()


def sum_of(*shape: int) -> Callable[[Graph], None]:
    def make(g: Graph) -> None:
        g.output("y", g.input("x", shape, DType.fp32).sum(-1))

    return make


@pytest.mark.parametrize(
    ("shape", "part"), [((1 << 27,), 1 << 17), ((1 << 18,), 4096), ((8, 1 << 20), 8192), ((4096,), 0), ((128, 1 << 20), 0)]
)
def test_parts_are_as_long_as_the_machine_is_wide(shape: tuple[int, ...], part: int) -> None:
    """Some 1024 blocks of the longest lines, whole lines where there are many or little to read."""
    (phase,) = stages_of(sum_of(*shape))["gpu"].main.kernels[0].phases
    assert (phase.part.size if phase.part else 0) == part


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"parts": (24,)}, "parts of 24"),
        ({"parts": (64,), "groups": (1,)}, "groups of 1"),
        ({"parts": (64, 0)}, "2 parts for 1 passes"),
        ({"parts": (64,), "fused": True}, "fused"),
        ({"owners": 0}, "0 owners"),
    ],
)
def test_parts_that_make_no_sense_are_refused(changes: dict[str, Any], why: str) -> None:
    stages = stages_of(sum_of(1 << 18))
    (region,) = stages["region"].main.body
    plan = stages["plan"].main.regions[0].choices[0].plan
    assert plan.parts == (4096,) and verify_plan(plan, region, PRESETS["sm80"]) == []
    (d,) = verify_plan(msgspec.structs.replace(plan, **changes), region, PRESETS["sm80"])
    assert d.kind == "InvalidPlan" and why in d.why


def sort_of(*shape: int) -> Callable[[Graph], None]:
    def make(g: Graph) -> None:
        g.output("y", g.input("x", shape, DType.fp32).sort(0)[0])

    return make


@pytest.mark.parametrize(
    ("shape", "steps"),
    [((1 << 16,), ["tile", "merge", "merge", "merge", "take"]), ((4096,), ["line"]), ((1 << 16, 64), ["line"])],
)
def test_few_long_lines_are_sorted_by_tiles(shape: tuple[int, ...], steps: list[str]) -> None:
    gpu = stages_of(sort_of(*shape))["gpu"].main
    steps_of = {k.face.symbol: k.step for k in gpu.kernels}
    assert [steps_of[b.kernel] for b in gpu.bindings] == steps


def test_tiles_that_make_no_sense_are_refused() -> None:
    stages = stages_of(sort_of(1 << 16))
    plan = msgspec.structs.replace(stages["plan"].main.regions[0].choices[0].plan, parts=(1000,))
    (d,) = verify_plan(plan, stages["region"].main.body[0], PRESETS["sm80"])
    assert d.kind == "InvalidPlan" and "parts of 1000" in d.why


def test_only_sorts_have_tiles() -> None:
    stages = stages_of(sort_of(1 << 16))
    region = stages["region"].main.body[0]
    other = msgspec.structs.replace(region, opaque=msgspec.structs.replace(region.opaque, routine="solve"))
    (d,) = verify_plan(stages["plan"].main.regions[0].choices[0].plan, other, PRESETS["sm80"])
    assert d.kind == "InvalidPlan" and "solve in parts of 1024" in d.why


@pytest.mark.parametrize("size", [0, 10])
def test_a_kernel_of_wrong_parts_is_refused(size: int) -> None:
    k = stages_of(sum_of(1 << 18))["gpu"].main.kernels[0]
    fold = msgspec.structs.replace(k.phases[0], part=msgspec.structs.replace(k.phases[0].part, size=size))
    assert any(f"a part of {size} elements" in d.why for d in verify_any(msgspec.structs.replace(k, phases=(fold,))))


def meeting(g: Graph) -> None:
    x, index = g.input("x", (10, 6), DType.fp32), g.input("index", (160, 6), DType.i64)
    u = g.input("u", (160, 6), DType.fp32)
    for op in ("set", "add", "max"):
        g.output(op, x.scatter(0, index, u.exp(), op))
    at = g.input("at_index", (130, 2), DType.i64)
    g.output("nd", g.input("z", (3, 4, 5), DType.fp32).scatter_nd(at, g.input("v", (130, 5), DType.fp32), "add"))
    g.output(
        "count",
        g.input("h", (7,), DType.fp32).scatter(0, g.input("bin", ("K",), DType.i64), g.input("w", ("K",), DType.fp32), "add"),
    )


def test_writes_that_meet_are_shared_out_by_their_elements() -> None:
    """The machine would report two threads that write one element; the order of each element's writes is kept."""
    stages = stages_of(meeting)
    phases = [p for k in stages["gpu"].main.kernels for p in k.phases if isinstance(p, Write)]
    assert sum(p.share is not None for p in phases) == 5
    for k in (150, 0):
        check_kernels(stages, {"K": k})


def gradient(tokens: int, width: int) -> Callable[[Graph], None]:
    def make(g: Graph) -> None:
        x, index = g.input("x", (50257, width), DType.fp32), g.input("index", (tokens, 1), DType.i64)
        g.output("y", x.scatter_nd(index, g.input("u", (tokens, width), DType.fp32), "add"))

    return make


@pytest.mark.parametrize(("tokens", "width", "owners"), [(4096, 768, 32), (1 << 20, 1, 256), (16, 768, 1), (4096, 1 << 16, 1)])
def test_owners_fill_the_machine(tokens: int, width: int, owners: int) -> None:
    (plan,) = (c.plan for r in stages_of(gradient(tokens, width))["plan"].main.regions for c in r.choices)
    assert plan.owners == owners


def test_a_share_that_is_none_is_refused() -> None:
    (k,) = stages_of(gradient(4096, 768))["gpu"].main.kernels[-1:]
    (write,) = k.phases
    wrong = msgspec.structs.replace(write, share=msgspec.structs.replace(write.share, count=1))
    assert any("a share of 1" in d.why for d in verify_any(msgspec.structs.replace(k, phases=(wrong,))))
