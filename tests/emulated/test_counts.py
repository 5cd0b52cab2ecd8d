"""Counts of launches: each input of a kernel's simulation is what the kernel's text does on the emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.api import build, prepare
from tatami.bench.counted import comparison, count, demands_of, table
from tatami.cli import main
from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.core.tensor import numpy_dtype
from tatami.emulated.tallies import roles, summed
from tatami.plan.demands import Demands, demands_at
from tests.cu.test_compile import BY8
from tests.emulated.kernels import NUMPY, Built, changed
from tests.emulated.texts import eighths
from tests.gpu.gemm_examples import gemm, sm80, sm90

SIZES = {"M": 256, "N": 256, "K": 128}
HALF, FULL = DType.fp16, DType.fp32
FMA = {"warp": "32x32", "width": 4, "inst_shape": "fma"}
PLANS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "sm80": ("sm80", {}, sm80((128, 64, 64), 2)),
    "sm80, residual": ("sm80", {"residual": True}, sm80((128, 64, 64), 3)),
    "sm80, narrow stores": ("sm80", {}, sm80((64, 64, 32), 2, warp="32x32", width=2)),
    "multiply-adds": ("sm80", {"dtype": FULL, "out": FULL}, sm80((64, 64, 16), 2, **FMA)),
    "multiply-adds, both along k": ("sm80", {"dtype": FULL, "out": FULL, "b_col": True}, sm80((64, 64, 32), 2, **FMA)),
    "multiply-adds, none along k": ("sm80", {"dtype": FULL, "out": FULL, "a_col": True}, sm80((64, 64, 32), 2, **FMA)),
    "tf32": (
        "sm80",
        {"dtype": FULL, "out": FULL, "tf32": True},
        sm80((64, 64, 32), 2, warp="32x32", width=4, inst_shape="m16n8k8"),
    ),
    "sm90": ("sm90", {}, sm90((128, 128, 64), 3)),
    "sm90, B along k": ("sm90", {"b_col": True, "residual": True}, sm90((128, 128, 64), 3)),
    "sm90, clusters": ("sm90", {}, sm90((128, 128, 64), 3, cluster=(2, 1), multicast="b", persistent=True)),
    "sm90, persistent": ("sm90", {}, sm90((128, 128, 64), 3, persistent=True)),
}


def counted(built: Built, sizes: dict[str, int] = SIZES) -> Demands:
    region = built.region
    shapes = {p.name: tuple(int(evaluate(s, sizes)) for s in p.memref.shape) for p in region.inputs}
    arrays = {p.name: eighths(*shapes[p.name], dtype=NUMPY[p.memref.dtype]) for p in region.inputs}
    report, _ = built.report(arrays, sizes, counts=True)
    assert report is None, report
    assert built.machine is not None
    return demands_of(summed(built.machine.tallies().values()))


ODD, FEW = {"M": 200, "N": 264, "K": 136}, {"M": 8, "N": 264, "K": 136}
"""Sizes that no tile divides, with rows that begin at odd sectors; fewer rows than a tile."""
NARROW = {"M": 72, "N": 8, "K": 72}
"""Rows of 16 bytes: an instruction of a warp writes several of them to one line."""
AT_EDGES = ("sm80, residual", "sm80, narrow stores", "multiply-adds", "sm90, B along k", "sm90, clusters")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [*((n, SIZES) for n in PLANS), *((n, ODD) for n in AT_EDGES), *((n, s) for s in (FEW, NARROW) for n in AT_EDGES)],
)
def test_a_plan_is_simulated_by_what_its_text_does(name: str, sizes: dict[str, int]) -> None:
    target, options, plan = PLANS[name]
    region = gemm(**options)
    found = counted(Built(region, plan, target, BY8), sizes)
    simulated = demands_at(region, plan, PRESETS[target], sizes)
    assert simulated.keys() <= found.keys() and simulated["bytes copied from L2"] > 0
    for unit, expected in simulated.items():
        assert found[unit] == pytest.approx(expected, rel=0.05), unit


def test_fragments_that_are_read_twice_are_seen() -> None:
    region, plan = gemm(), sm80((128, 64, 64), 2)
    twice = changed("read(0, a[0], b[0]);", "read(0, a[0], b[0]); read(0, a[0], b[0]);")
    found, simulated = counted(Built(region, plan, "sm80", BY8, twice)), demands_at(region, plan, PRESETS["sm80"], SIZES)
    assert found["bytes read from shared memory"] == 1.25 * simulated["bytes read from shared memory"]


def image(channels: int, stride: int, dtype: DType = HALF) -> tt.Graph:
    g = tt.Graph("image")
    x, w = g.input("x", (2, channels, 16, 16), dtype), g.input("w", (64, channels, 3, 3), dtype)
    g.output("y", x.conv(w, padding=1, stride=stride).relu())
    return g


def attention(dtype: DType, causal: bool) -> tt.Graph:
    g = tt.Graph("attention")
    q, k, v = (g.input(n, (1, 2, 128, 64), dtype) for n in "qkv")
    g.output("y", q.attention(k, v, causal=causal))
    return g


def whole(dtype: DType) -> tt.Graph:
    g = tt.Graph("whole")
    g.output("y", g.input("x", (128, 64), dtype) @ g.input("w", (64, 128), dtype))
    return g


PROGRAMS = {
    "image, sm80": (image(64, 1), "emulated-sm80"),
    "image, sm90": (image(64, 2), "emulated-sm90"),
    "attention, sm80": (attention(FULL, False), "emulated-sm80"),
    "attention, sm90": (attention(HALF, True), "emulated-sm90"),
    "synchronous": (whole(DType.fp64), "emulated-sm80"),
}
LOOSE = {"bytes copied from L2", "bytes stored", "lines stored"}
"""Simulated for whole tiles: the border of a small image is not read, rows beyond the last are not stored."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_simulated_by_what_its_kernels_do(name: str) -> None:
    graph, target = PROGRAMS[name]
    c = prepare(graph, target=target)
    inputs = {
        p.tensor: np.ones([int(evaluate(s, {})) for s in p.shape], numpy_dtype(p.dtype))
        for p in c.stages["execution"].main.signature.inputs
    }
    kernels = [k for k in count(build(c), inputs) if k.simulated]
    assert kernels
    for k in kernels:
        for unit, expected in k.simulated.items():
            own = k.counted[unit]
            assert own == pytest.approx(expected, rel=0.05) or (unit in LOOSE and own < expected), (k.region, unit)


def test_roles_are_told_apart() -> None:
    built = Built(gemm(), sm90((128, 128, 64), 3), "sm90", BY8)
    counted(built)
    assert built.machine is not None
    found = {r.name: r for r in roles(built.machine.tallies())}
    assert found["producer"].warps == (0,) and found["consumer"].warps == tuple(range(4, 12))
    assert "TMA load" in found["producer"].tallies and "TMA load" not in found["consumer"].tallies


def test_only_an_emulated_gpu_counts() -> None:
    c = prepare(whole(FULL), target="cpu")
    with pytest.raises(TatamiError, match="emulated"):
        count(build(c), {})


TEXT = "graph<B=64> main(x: f16[B, 64], w: f16[64, 64]) -> (y: f16[B, 64]) {\n    return relu(x @ w)\n}\n"


def test_the_command_prints_both_tables_and_refuses_options_of_time(tmp_path: Any) -> None:
    model = tmp_path / "layer.harp"
    model.write_text(TEXT)
    run = CliRunner().invoke(main, ["bench", str(model), "--target", "emulated-sm90", "-D", "B=128"])
    assert run.exit_code == 0, run.output
    assert "producer, warps 0" in run.output and "input of the simulation" in run.output
    refused = CliRunner().invoke(main, ["bench", str(model), "--target", "emulated-sm90", "--seconds", "2"])
    assert refused.exit_code and "leave --seconds out" in refused.output


def test_tables_name_a_kernel_once() -> None:
    c = prepare(whole(HALF), target="emulated-sm80")
    inputs = {
        p.tensor: np.ones([int(evaluate(s, {})) for s in p.shape], np.float16)
        for p in c.stages["execution"].main.signature.inputs
    }
    kernels = count(build(c), inputs)
    rows = [*table(kernels)], [*comparison(kernels)]
    assert [sum(r[0] == "r0" for r in each) for each in rows] == [1, 1]
