"""Windows whose rows are read where they lie, and vectors joined of two lines: against the reference, and within the tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.codec import to_builtins
from tatami.core.target import PRESETS
from tatami.loop import ir
from tatami.loop.verify import verify as verify_loops
from tatami.loop.walk import nodes
from tatami.plan.choose import choose
from tatami.plan.ir import CpuWindow
from tatami.plan.verify_plan import verify_plan
from tatami.poly_core.analyse import analyse
from tests.loop.compiled import has_flags, kernel_of, run_sanitized, sanitizer_program
from tests.loop.images.test_window import WINDOWS, depthwise, graph, sample, windows_of
from tests.shares import is_whole

Make = Callable[[tt.Graph, Any], Any]
C = 5
MORE = {
    "depthwise 5x5, stride 2": depthwise((5, 5), padding=2, stride=2),
    "depthwise 3x5, dilation 3": depthwise((3, 5), padding=(3, 6), dilation=3),
    "depthwise 3x3, one side": depthwise(padding=((1, 1), (0, 2))),
    "mean": lambda g, x: x.avg_pool(3, 1, 1),
    "depthwise of a part": lambda g, x: depthwise(padding=1)(g, x[:, :, :-3, :-7]),
    "depthwise of a part, stride 2": lambda g, x: depthwise(padding=1, stride=2)(g, x[:, :, :-2, :-5]),
}
CASES = WINDOWS | MORE
APART = ("depthwise stride 3, uneven borders", "largest of 3x3")
LYING = [n for n in CASES if n not in APART]
SHAPES = [(2, C, 33, 56), (1, C, 40, 64), (1, C, 21, 45), (1, C, 9, 112)]


def planned(f: Any, rows: int = 16, **changes: Any) -> dict[str, Any]:
    """The window's plan with other fields, as a decision."""
    plan = msgspec.structs.replace(windows_of(f)[0], whole=False, rows=rows, ahead=1, **changes)
    return {"plans": {"": to_builtins(plan)}}


def shapes_of(name: str, joined: bool, width: int) -> list[tuple[int, int, int, int]]:
    """A shape for each test, in turn: each name, width and way to join has all of them. In the whole grid each test has all."""
    turn = LYING.index(name) + 2 * joined + width.bit_length()
    return SHAPES if is_whole() else [SHAPES[turn % len(SHAPES)]]


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("joined", [False, True], ids=["", "joined"])
@pytest.mark.parametrize("name", LYING)
def test_rows_that_lie_agree_with_the_reference(name: str, joined: bool, width: int) -> None:
    isa = {4: "generic", 8: "avx2", 16: "avx512"}[width]
    if not has_flags(isa):
        pytest.skip(f"this machine has no {isa}")
    for shape in shapes_of(name, joined, width):
        g = graph(CASES[name], shape)
        plain = tt.compile(g, target=f"cpu:{isa}")
        rows = 64 if (sum(shape) + width // 4 + joined) % 2 else 16  # a plane that is one block, or several
        f = tt.compile(g, target=f"cpu:{isa}", decisions=planned(plain, rows, width=width, lying=True, joined=joined))
        (plan,) = windows_of(f)
        assert plan.lying and plan.joined == joined
        assert verify_loops(f.stages["loop"].value) == []
        x = sample(shape)
        x[0, 2, 0, 0] = x[0, 3, -1, -1] = x[0, 4, 6, 7] = np.nan  # a border takes no value from a neighbouring row
        got = f(x=x)["y"]
        np.testing.assert_array_equal(got, plain(x=x)["y"])
        wanted = tt.compile(g, target="reference")(x=x)["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["depthwise 3x3", "depthwise stride 2", "depthwise with a residual", "largest", "depthwise of a part"]
)
def test_vectors_joined_of_copied_rows_are_the_same(name: str) -> None:
    for shape in SHAPES:
        g = graph(CASES[name], shape)
        plain = tt.compile(g, target="cpu:generic")
        f = tt.compile(g, target="cpu:generic", decisions=planned(plain, joined=True))
        x = sample(shape)
        np.testing.assert_array_equal(f(x=x)["y"], plain(x=x)["y"])


@pytest.mark.parametrize("joined", [False, True], ids=["", "joined"])
@pytest.mark.parametrize(
    "name",
    [
        "depthwise 3x3",
        "depthwise stride 2",
        "depthwise 5x5, stride 2",
        "depthwise 3x3, one side",
        "depthwise with a residual",
        "mean",
    ],
)
@pytest.mark.parametrize("rows", [16, 64])
def test_nothing_outside_the_tensors_is_read_or_written(name: str, joined: bool, rows: int) -> None:
    f = tt.compile(graph(CASES[name], (2, C, 18, 33)), target="cpu:avx2")
    (region,) = f.stages["region"].value.main.body
    plan = msgspec.structs.replace(windows_of(f)[0], whole=False, rows=rows, ahead=1, width=8, lying=True, joined=joined)
    finished = run_sanitized(sanitizer_program(region, kernel_of(region, plan, "avx2"), [{}]))
    if finished is None:
        pytest.skip("the compiler has no sanitizers")
    assert finished.returncode == 0, finished.stderr[-2000:]


@pytest.mark.parametrize("height", [2, 5, 9])
def test_rows_at_the_border_multiply_nothing_outside(height: int) -> None:
    """Terms of rows outside are numbers before the columns: vectors are multiplied at places inside only, from no scratch."""
    f = tt.compile(graph(depthwise((5, 5), padding=2), (1, C, height, 64)), target="cpu:generic")
    (region,) = f.stages["region"].value.main.body
    plan = msgspec.structs.replace(windows_of(f)[0], whole=False, rows=16, ahead=1, width=4, lying=True, joined=True)
    kernel = kernel_of(region, plan, "generic")
    products = [v for v in nodes(kernel.body) if isinstance(v, ir.Fma)]
    inside = sum(0 <= y + i - 2 < height for y in range(height) for i in range(5)) * 5
    assert sum(ir.type_of(v).lanes == 1 for v in products) == height * 25 - inside
    assert sum(ir.type_of(v).lanes == 4 for v in products) == 3 * inside  # the first vector, those in the middle, the last
    assert {v.buffer for v in nodes(kernel.body) if isinstance(v, ir.Load) and v.lanes == 4} == {"p0"}


def with_number_of(axis: int) -> Make:
    """The magnitudes of each window, with the number of the result's row or column added to all elements, summed up."""

    def make(g: tt.Graph, x: Any) -> Any:
        seen = x.pad(((0, 0), (1, 1), (1, 1)), 1.5).unfold((3, 3))
        number = g.iota((C, 3, 3, 6, 24), axis).cast(tt.fp32)
        return (seen + number).abs().sum((1, 2))

    return make


@pytest.mark.parametrize("axis", [3, 4], ids=["row", "column"])
def test_terms_outside_that_differ_from_column_to_column_are_no_single_number(axis: int) -> None:
    g = graph(with_number_of(axis), (C, 6, 24))
    f = tt.compile(g, target="cpu:generic", decisions=planned(tt.compile(g, target="cpu:generic"), width=4, lying=True))
    assert windows_of(f)[0].lying
    x = sample((C, 6, 24))
    np.testing.assert_allclose(f(x=x)["y"], tt.compile(g, target="reference")(x=x)["y"], rtol=1e-5)


def test_a_kernel_of_many_rows_at_a_border_is_no_longer_for_more_of_them() -> None:
    """Every row of a plane is at a border if the dilation is half its height: text of its own for each would have no bound."""
    counts = []
    for height in (64, 128):
        make = depthwise(padding=(height // 2, 1), dilation=(height // 2, 1))
        g = graph(make, (2, C, height, 24))
        decisions = planned(tt.compile(g, target="cpu:generic"), 128, width=4, lying=True)
        f = tt.compile(g, target="cpu:generic", decisions=decisions)
        (region,), (plan,) = f.stages["region"].value.main.body, windows_of(f)
        assert plan.lying
        counts.append(sum(isinstance(v, ir.Fma) for v in nodes(kernel_of(region, plan, "generic").body)))
        x = sample((2, C, height, 24))
        x[0, 2, 0, 0] = x[1, 4, -1, -1] = np.nan
        np.testing.assert_allclose(f(x=x)["y"], tt.compile(g, target="reference")(x=x)["y"], rtol=1e-5, atol=1e-5)
    assert counts[0] == counts[1]


def test_inner_rows_go_through_no_scratch() -> None:
    """All loads of the loop over the middle vectors are from the tensor, each line once for all rows that see it."""
    f = tt.compile(graph(WINDOWS["depthwise 3x3"], (1, C, 64, 64)), target="cpu:generic")
    (region,) = f.stages["region"].value.main.body
    plan = msgspec.structs.replace(windows_of(f)[0], whole=False, rows=16, ahead=1, width=4, lying=True, joined=True)
    loops = [x for x in nodes(kernel_of(region, plan, "generic").body) if isinstance(x, ir.For) and x.step == 4]
    inner = [x for x in loops if sum(isinstance(v, ir.Across) for v in nodes(x.body)) == 20]
    (middle,) = [
        x
        for x in inner
        if not any(isinstance(v, ir.LaneRange) for v in nodes(x.body))
        and {v.buffer for v in nodes(x.body) if isinstance(v, ir.Load) and v.lanes == 4} == {"p0"}
    ]
    lines = [v for v in nodes(middle.body) if isinstance(v, ir.Load) and v.lanes == 4]
    assert len(lines) == len(set(lines)) == 10 * 3  # ten rows for eight of results


@pytest.mark.runs_on("cpu:avx512")
def test_plans_that_do_not_fit_are_refused_with_the_reason() -> None:
    three = tt.compile(graph(WINDOWS["depthwise stride 3, uneven borders"], (1, C, 40, 64)), target="cpu:avx512")
    (region,) = three.stages["region"].value.main.body
    plan = windows_of(tt.compile(graph(WINDOWS["depthwise 3x3"], (1, C, 40, 64)), target="cpu:avx512"))[0]
    (found,) = verify_plan(msgspec.structs.replace(plan, whole=False, lying=True), region, PRESETS["cpu:avx512"])
    assert "stride 3" in found.why
    f = tt.compile(graph(depthwise(padding=((1, 1), (2000, 1))), (1, C, 40, 64)), target="cpu:avx512")
    (found,) = verify_plan(
        msgspec.structs.replace(windows_of(f)[0], whole=False, lying=True),
        f.stages["region"].value.main.body[0],
        PRESETS["cpu:avx512"],
    )
    assert "126 vectors of columns see the outside" in found.why
    (region,) = three.stages["region"].value.main.body
    (found,) = verify_plan(msgspec.structs.replace(plan, whole=True, joined=True), region, PRESETS["cpu:avx512"])
    assert "joined" in (found.suggestion or "")


@pytest.mark.parametrize(("cycle", "wanted"), [(1.0, (True, True)), (2.0, (True, False))])
def test_vectors_are_joined_where_a_core_reads_a_line_in_the_time_of_a_multiply_add(
    cycle: float, wanted: tuple[bool, bool]
) -> None:
    target = msgspec.structs.replace(PRESETS["cpu:avx512"], clock=3e9, flops_fp32=cycle * 2 * 16 * 3e9)
    f = tt.compile(graph(WINDOWS["depthwise 3x3"], (1, C, 112, 112)), target="cpu:generic")
    module = f.stages["region"].value
    plan = choose(module, analyse(module), target).main.regions[0].choices[0].plan
    assert isinstance(plan, CpuWindow) and (plan.lying, plan.joined) == wanted
