"""The precision option."""

import ml_dtypes
import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.rewrites.precision import lower_precision
from tatami.frontend.run import run
from tatami.frontend.verify import verify
from tatami.plan.ir import CpuContraction
from tatami.runtime.machine.host import detect_host
from tatami.targets import resolve_target


def module():
    g = Graph()
    a, b, c = g.input("a", (8, 16), DType.fp32), g.input("b", (16, 4), DType.fp32), g.input("c", (4,), DType.fp32)
    g.output("y", a.gemm(b, c).relu() @ g.constant(np.ones((4, 4), np.float32)))
    return g.module()


@pytest.mark.parametrize(("precision", "eps"), [("bf16", 1e-2), ("fp16", 1e-3), ("tf32", 1e-3)])
def test_contractions_multiply_narrow(precision, eps):
    m = lower_precision(module(), precision)
    assert verify(m) == []
    rng = np.random.default_rng(1)
    args = {k: rng.standard_normal(s).astype(np.float32) for k, s in (("a", (8, 16)), ("b", (16, 4)), ("c", (4,)))}
    exact, got = run(module(), args)["y"], run(m, args)["y"]
    assert got.dtype == np.float32
    assert 0 < np.abs(got - exact).max() < eps * np.abs(exact).max() * 4


def test_unknown_precision_is_refused():
    with pytest.raises(TatamiError):
        lower_precision(module(), "fp8")


HAS_PAIRS = "bf16" in detect_host().features
WITHOUT = msgspec.structs.replace(resolve_target("cpu:avx512"), features=())
WITH = msgspec.structs.replace(WITHOUT, features=("bf16",))


def net(rows=5, k=64, n=48, turned=False):
    """A product with weights, then one of two activations, and a convolution."""
    g = Graph()
    x = g.input("x", (rows, k), DType.fp32)
    w = np.random.default_rng(2).standard_normal((n, k) if turned else (k, n)).astype(np.float32)
    y = x.linear(g.constant(w)) if turned else x @ g.constant(w)
    g.output("y", y)
    g.output("z", y @ y.permute((1, 0)))
    return g, w.T if turned else w


def multiplied(module):
    """Dtypes of the left operands of the products."""
    graph = module.main
    return [graph.tensors[n.inputs[0]].dtype for n in graph.graph if n.op in ("matmul", "linear")]


def test_on_a_cpu_only_products_with_weights_are_narrow():
    m = lower_precision(net()[0].module(), "bf16", WITH)
    assert verify(m) == [] and multiplied(m) == [DType.bf16, DType.fp32] and not m.warnings
    assert multiplied(lower_precision(net()[0].module(), "bf16!", WITH)) == [DType.bf16, DType.bf16]


def test_a_cpu_without_the_instruction_keeps_fp32_and_says_so():
    m = lower_precision(net()[0].module(), "bf16", WITHOUT)
    assert multiplied(m) == [DType.fp32, DType.fp32]
    (said,) = m.warnings
    assert said.kind == "PrecisionKept" and "cpu:avx512" in said.why
    assert multiplied(lower_precision(net()[0].module(), "bf16!", WITHOUT)) == [DType.bf16, DType.bf16]


def test_a_model_without_products_with_weights_keeps_fp32_and_says_so():
    g = Graph()
    x = g.input("x", (1, 4, 9, 9), DType.fp32)
    g.output("y", x.conv(g.constant(np.ones((8, 4, 3, 3), np.float32))))
    m = lower_precision(g.module(), "bf16", WITH)
    (said,) = m.warnings
    assert m.programs == g.module().programs and said.kind == "PrecisionKept" and "no product" in said.why


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.skipif(not HAS_PAIRS, reason="this CPU has no AVX512-BF16")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 64, 48), (5, 333, 70), (13, 256, 33), (40, 1000, 64), (3, 15, 40)])
def test_sums_are_those_of_rounded_operands(rows, k, n, turned):
    g, w = net(rows, k, n, turned)
    f = tt.compile(g, precision="bf16", threads=1)
    plans = [c.plan for r in f.stages["plan"].value.main.regions for c in r.choices]
    assert rows == 1 or k < 64 or any(isinstance(p, CpuContraction) and p.dot == "pairs_bf16" for p in plans)
    x = np.random.default_rng(3).standard_normal((rows, k)).astype(np.float32)
    wanted = rounded(x) @ rounded(w)
    error = np.abs(f(x=x)["y"] - wanted).max()
    assert error <= 1e-6 * (np.abs(rounded(x)) @ np.abs(rounded(w))).max()
    assert np.abs(wanted - x.astype(np.float64) @ w).max() > 10 * error


@pytest.mark.skipif(not HAS_PAIRS, reason="this CPU has no AVX512-BF16")
def test_infinities_and_nans_reach_their_sums_only():
    g, _ = net(4, 64, 48)
    f = tt.compile(g, precision="bf16", threads=1)
    x = np.random.default_rng(3).standard_normal((4, 64)).astype(np.float32)
    x[1, 5], x[2, 6] = np.inf, np.nan
    y = f(x=x)["y"]
    assert np.isinf(y[1]).all() and np.isnan(y[2]).all() and np.isfinite(y[[0, 3]]).all()


WITH_VNNI = msgspec.structs.replace(WITHOUT, features=("vnni",))


def in_blocks(kind="int8", block=32, depth=128, zeros=False, n=48):
    """Two products of one operand with weights in blocks, and one with floats."""
    rng = np.random.default_rng(4)
    limits = ml_dtypes.iinfo(kind)

    def numbers(columns):
        return (
            rng.integers(int(limits.min), int(limits.max) + 1, (n, columns)).astype("i2").astype(getattr(ml_dtypes, kind, kind))
        )

    g = Graph()
    x = g.input("x", ("B", 2, depth), DType.fp32)
    weights = []
    for k in range(2):
        codes, scale = numbers(depth), rng.uniform(0.001, 0.002, (n, -(-depth // block))).astype(np.float32)
        zero = numbers(scale.shape[1]) if zeros else None
        w, scales = g.constant(codes, f"w{k}"), g.constant(scale, f"s{k}")
        points = None if zero is None else g.constant(zero, f"z{k}")
        g.output(f"y{k}", x @ w.dequantize(scales, points, axis=1, block=block).transpose())
        less = 0 if zero is None else np.repeat(zero.astype("f8"), block, 1)[:, :depth]
        weights.append((codes.astype("f8") - less) * np.repeat(scale.astype("f8"), block, 1)[:, :depth])
    g.output("z", x @ g.constant(np.ones((depth, 3), np.float32)))
    return g, weights


@pytest.mark.parametrize("kind", ["int8", "int4", "uint4 with zeros"])
def test_int8_rounds_the_rows_that_narrow_weights_meet(kind):
    g, weights = in_blocks(kind.split()[0], zeros="zeros" in kind)
    made = lower_precision(g.module(), "int8", WITH_VNNI)
    assert sum(n.op == "round" for n in made.main.graph) == 1, "products of one operand share it"
    a = np.random.default_rng(1).standard_normal((7, 2, 128)).astype(np.float32)
    a[1, 1, 32:64] = 0
    blocks = a.reshape(7, 2, 4, 32)
    scale = np.abs(blocks).max(3, keepdims=True) * np.float32(1 / 127)
    rounded = (np.rint(blocks / np.where(scale == 0, np.float32(1), scale)) * scale.astype("f8")).reshape(a.shape)
    found = [run(made, {"x": a})]
    if "vnni" in detect_host().features:
        f = tt.compile(g, precision="int8")
        assert "by blocks_vnni" in f.stages["plan"].text
        assert sum("contraction" in line for line in f.stages["region"].text.splitlines()) == 2, "one for both, one for floats"
        found += [f(x=a)]
        np.testing.assert_array_equal(f(x=a[:1])["z"], found[1]["z"][:1])
    for values in found:
        for k, w in enumerate(weights):
            wanted = rounded @ w.T
            assert np.abs(values[f"y{k}"] - wanted).max() <= 2e-6 * np.abs(wanted).max()
        np.testing.assert_allclose(values["z"], a.sum(2, keepdims=True).repeat(3, 2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("why", ["floats", "bytes with zero points", "blocks that do not divide the sum", "no VNNI"])
def test_int8_that_changes_nothing_says_so(why):
    g, _ = (
        net()
        if why == "floats"
        else in_blocks("uint8" if "zero" in why else "int8", zeros="zero" in why, depth=100 if "divide" in why else 128)
    )
    made = lower_precision(g.module(), "int8", WITHOUT if why == "no VNNI" else WITH_VNNI)
    assert made.programs == g.module().programs
    assert [w.kind for w in made.warnings] == ["PrecisionKept"]


@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16!"])
def test_a_model_without_contractions_of_fp32_says_that_nothing_changes(precision):
    g = Graph()
    x = g.input("x", (4, 8), DType.fp64)
    g.output("y", x @ x.permute((1, 0)))
    m = lower_precision(g.module(), precision)
    (said,) = m.warnings
    assert m.programs == g.module().programs and said.kind == "PrecisionKept" and "no contraction of fp32" in said.why
