"""Whole programs on the emulated targets, against the reference."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.core.numbers.numerics import storage_dtype
from tatami.report.explain import explain

TARGETS = ["emulated-sm80", "emulated-sm90"]
RANDOM = 20
"""Schedules that are drawn, besides the one in which everything lands as late as it may."""


def check(g: tt.Graph, inputs: dict[str, np.ndarray], target: str, tolerance: float = 1e-5, schedules: int = 0) -> Any:
    f = tt.compile(g, target=target)
    agrees(f, inputs, tt.compile(g, target="reference")(**inputs), tolerance, schedules)
    return f


def agrees(f: Any, inputs: dict[str, np.ndarray], want: dict[str, Any], tolerance: float, schedules: int) -> None:
    """Results agree in every schedule, without a report."""
    with pytest.MonkeyPatch.context() as patch:
        for seed in range(schedules + 1):
            patch.setenv("TATAMI_EMULATED_SCHEDULE", str(seed))
            got = f(**inputs)
            for name in want:
                a, b = np.asarray(got[name], float), np.asarray(want[name], float)
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"schedule {seed}")


def eighths(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 8).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_layers_with_constants_run_on_both_architectures(target: str) -> None:
    g = tt.Graph("mlp")
    x = g.input("x", ("B", 24), tt.fp16)
    h = (x @ g.constant(eighths(24, 40, dtype=np.float16))).relu()
    g.output("y", (h @ g.constant(eighths(40, 16, dtype=np.float16))).softmax(-1))
    f = check(g, {"x": eighths(9, 24, dtype=np.float16)}, target, 4e-3)
    assert {u.symbol for u in f.stages["cu"].value.main.units}
    assert f.program.machine is not None


@pytest.mark.parametrize("target", [*TARGETS, "cpu"])
@pytest.mark.parametrize("dtype", [tt.fp16, tt.bf16])
def test_statistics_of_a_half_product_read_it_as_it_is_stored(target: str, dtype: tt.DType) -> None:
    """Rows and columns of no whole tile; the mean and the variance are those of the rounded result."""
    g = tt.Graph("statistics")
    x, w = g.input("x", ("B", 24), dtype), g.input("w", (24, 70), dtype)
    y = x @ w
    rows = y.cast(tt.fp32)
    g.output("y", y)
    g.output("mean", rows.mean(-1))
    g.output("squares", (rows * rows).sum(-1))
    given = {"x": eighths(9, 24), "w": eighths(24, 70, seed=1)}
    f = check(g, {n: a.astype(storage_dtype(dtype, "declared")) for n, a in given.items()}, target, 1e-5)
    assert "widens" in f.explain()


def test_digits_are_read() -> None:
    path = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    done = CliRunner().invoke(main, ["run", str(path), "--target", "emulated-sm80", "--check", "-D", "N=2"])
    assert done.exit_code == 0 and "agrees with the float64 reference" in done.output, done.output


def test_a_transformer_block_agrees() -> None:
    g = tt.Graph("block")
    x = g.input("x", (1, "T", 32), tt.fp32)

    def weight(*shape: int) -> Any:
        return g.constant(eighths(*shape, seed=sum(shape)) / 4)

    q, k, v = ((x @ weight(32, 32)).reshape(1, "T", 2, 16).transpose(1, 2) for _ in range(3))
    mixed = q.attention(k, v, causal=True).transpose(1, 2).reshape(1, "T", 32) @ weight(32, 32)
    h = (x + mixed).layer_norm(g.constant(np.ones(32, np.float32)))
    g.output("y", h + (h @ weight(32, 64)).gelu() @ weight(64, 32))
    check(g, {"x": eighths(1, 9, 32)}, "emulated-sm80", 1e-4, RANDOM)


@pytest.mark.parametrize("target", TARGETS)
def test_a_small_conv_net_lies_channels_last_throughout(target: str) -> None:
    """Groups, dilation, stride, a residual, a pool between, 1x1: no transpose from the first convolution to the last."""
    g = tt.Graph("net")
    h = g.input("x", ("N", 3, "H", "W"), tt.fp16)

    def conv(x: Any, to: int, size: int, **attrs: Any) -> Any:
        each = x.shape[1].as_int() // attrs.get("groups", 1)
        return x.conv(g.constant(eighths(to, each, size, size, seed=to, dtype=np.float16)), **attrs)

    h = conv(h, 16, 3, padding=1).silu() * 0.25
    h = conv(conv(h, 16, 3, padding=1, groups=2).relu() * 0.25, 16, 3, padding=2, dilation=2) * 0.25 + h
    h = conv(h.relu().max_pool(2), 24, 3, padding=1, stride=2).silu() * 0.25
    g.output("y", conv(h, 8, 1).mean((2, 3)))
    f = tt.compile(g, target=target)
    copies = explain(f.compilation).partition("\ncopies\n")[2]
    assert copies.count("is read as blocked (0, 2, 3, 1)") == copies.count("convert_") == copies.count("(setup)") == 3, copies
    reference = tt.compile(g, target="reference")
    for n, height, width, schedules in ((2, 8, 8, 0), (1, 5, 7, RANDOM), (1, 9, 13, 0), (0, 8, 8, 0)):
        x = eighths(n, 3, height, width, dtype=np.float16)
        agrees(f, {"x": x}, reference(x=x), 1e-2, schedules)


def test_a_state_is_updated_in_place() -> None:
    g = tt.Graph("state")
    s = g.input("s", (5,), tt.fp32, mutability="mutable")
    x = g.input("x", (5,), tt.fp32)
    g.update(s, s + x)
    f = tt.compile(g, target="emulated-sm80")
    state = np.arange(5, dtype=np.float32)
    f(s=state, x=np.ones(5, np.float32))
    f(s=state, x=np.ones(5, np.float32))
    assert state.tolist() == [2, 3, 4, 5, 6]


def test_sizes_0_and_1_and_a_bound_call() -> None:
    g = tt.Graph("sizes")
    x = g.input("x", ("N", 3), tt.fp32)
    g.output("y", x.exp().sum(0))
    f = tt.compile(g, target="emulated-sm80")
    assert f(x=np.zeros((0, 3), np.float32))["y"].tolist() == [0, 0, 0]
    call = f.bind(x=np.zeros((1, 3), np.float32))
    assert call()["y"].tolist() == [1, 1, 1]


def test_control_flow_runs_between_the_kernels() -> None:
    g = tt.parse("""
    graph<N=1> twice(x: f32[N]) -> (y: f32[N]) { return x + x }
    graph<N=4> main(x: f32[N]) -> (y: f32[N]) { return twice(twice(x)) }
    """)
    f = tt.compile(g, target="emulated-sm80")
    assert f(x=np.ones(4, np.float32))["y"].tolist() == [4, 4, 4, 4]


def test_a_gpu_without_one_is_refused_with_the_emulated_target_named() -> None:
    g = tt.Graph("g")
    g.output("y", g.input("x", (3,), tt.fp32).exp())
    with pytest.raises(TatamiError, match="emulated-sm80"):
        tt.compile(g, target="sm80")


def test_a_kernel_that_never_ends_can_be_interrupted() -> None:
    g = tt.Graph("g")
    x = g.input("x", (4,), tt.fp32)
    body = "for (int i = 0; input0[i % 4] > 0.0f; ++i) {} output[ridx0] = 0;"
    g.output("y", g.kernel_body(None, x, outputs=[(tt.fp32, (4,))], cuda=body, meaning=np.copy))
    f = tt.compile(g, target="emulated-sm80")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            f(x=np.ones(4, np.float32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert f(x=np.zeros(4, np.float32))["y"].tolist() == [0, 0, 0, 0]


def test_a_schedule_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_EMULATED_SCHEDULE", "soon")
    g = tt.Graph("g")
    g.output("y", g.input("x", (3,), tt.fp32).exp())
    with pytest.raises(TatamiError, match="soon"):
        tt.compile(g, target="emulated-sm80")
