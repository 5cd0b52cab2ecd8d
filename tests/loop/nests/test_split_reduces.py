"""Long reduces in blocks: partial results, what is left, and first positions agree with numpy for every size."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.core.expr import expr, var
from tatami.core.target import PRESETS
from tatami.core.tensor import numpy_dtype
from tatami.loop.ir import For
from tatami.loop.walk import nodes
from tatami.plan.ir import Blocks
from tatami.region.ir import Ref, Region
from tests.loop.compiled import has_flags, kernel_of, run_kernel, run_sanitized, sanitizer_program
from tests.loop.wished import Wished
from tests.loop.zoo import C, K, N, b, i0, let, r0, r1, read, red, region, tensor, u
from tests.loop.zoo import c as const

SIZES = [(1, 3, 5), (2, 7, 4), (3, 8, 1), (1, 64, 2), (2, 131, 3), (4, 0, 3)]


def reduce(fn: str, d: DType = DType.fp32, result: DType | None = None) -> Region:
    """y[i0] = fn over r0, r1 of x[r0, i0, r1]: axes that do not join."""
    e = red(fn, "r0 r1", read("x", r0, i0, r1), d)
    out = result or d
    return region({"i0": N}, {"r0": C, "r1": K}, {"x": tensor(C, N, K, d=d)}, {"y": tensor(N, d=out)}, [let("l", "i0", e, out)])


def place(fn: str, d: DType) -> Region:
    e = red(fn, "r0", read("x", i0, r0), DType.i64)
    return region({"i0": N}, {"r0": C}, {"x": tensor(N, C, d=d)}, {"y": tensor(N, d=DType.i64)}, [let("l", "i0", e, DType.i64)])


def plan(size: int, vector: str = "r1", own: tuple[str, ...] = ()) -> Wished:
    """A plan of a split reduce. `own`: axes of the lines that each thread takes for itself; none: threads share the blocks of all."""
    return Wished(own, vector, 8, Blocks("r0", size, 0 if own else 4))


@pytest.fixture(autouse=True)
def needs_avx2() -> None:
    if not has_flags("avx2"):
        pytest.skip("this machine has no avx2")


@pytest.mark.parametrize("own", [(), ("i0",)])
@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize(
    ("fn", "d"),
    [("sum", "i32"), ("sum", "fp32"), ("sum", "fp16"), ("prod", "i64"), ("max", "fp32"), ("min", "i8"), ("or", "bool"), ("and", "bool")],
)  # fmt: skip
def test_partial_results_join_to_the_whole(fn: str, d: str, size: int, own: tuple[str, ...]) -> None:
    dtype = DType(d)
    of = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "or": np.logical_or, "and": np.logical_and}[
        fn
    ]
    for n, c, k in SIZES:
        if c == 0 and fn in ("max", "min"):
            continue
        x = np.random.default_rng(0).integers(0, 2 if d == "bool" else 3, (c, n, k)).astype(numpy_dtype(dtype))
        fault, got = run_kernel(reduce(fn, dtype), {"x": x}, {"N": n, "C": c, "K": k}, plan(size, own=own), "avx2")
        assert fault == 0
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(got["y"], of.reduce(x, axis=(0, 2), dtype=x.dtype))


@pytest.mark.parametrize("size", [1, 5, 16, 1000])
@pytest.mark.parametrize("fn", ["argmax", "argmin"])
@pytest.mark.parametrize("d", [DType.fp32, DType.i32, DType.u8, DType.bool])
def test_the_first_of_equal_extremes_is_found_across_blocks(d: DType, fn: str, size: int) -> None:
    rng = np.random.default_rng(1)
    for n, c in ((1, 1), (2, 7), (3, 16), (2, 131), (1, 32)):
        draws = [rng.integers(0, high, (n, c)) for high in (1, 2, 4, 100)]
        for x in draws:
            a = x.astype(numpy_dtype(d))
            got = run_kernel(place(fn, d), {"x": a}, {"N": n, "C": c}, plan(size, "r0"), "avx2")[1]["y"]
            np.testing.assert_array_equal(got, getattr(np, fn)(a, axis=1))
            if d == DType.fp32 and c > 2:
                a[:, [1, c - 1]] = np.nan
                got = run_kernel(place(fn, d), {"x": a}, {"N": n, "C": c}, plan(size, "r0"), "avx2")[1]["y"]
                np.testing.assert_array_equal(got, getattr(np, fn)(a, axis=1))


def test_reduces_that_read_one_another_are_split_in_turn() -> None:
    """log sum exp: the sum reads the maximum of all blocks."""
    top = red("max", "r0", read("x", r0))
    e = u("exp", b("sub", read("x", r0), Ref("m")))
    r = region(
        {}, {"r0": N}, {"x": tensor(N)}, {"y": tensor()},
        [let("m", "", top), let("s", "", red("sum", "r0", e)), let("y", "", b("add", Ref("m"), u("log", Ref("s"))))],
    )  # fmt: skip
    x = (100 * np.random.default_rng(0).standard_normal(1000)).astype(np.float32)
    got = run_kernel(r, {"x": x}, {"N": 1000}, plan(48, "r0"), "avx2")[1]["y"]
    x64 = x.astype(np.float64)
    np.testing.assert_allclose(got, np.log(np.exp(x64 - x64.max()).sum()) + x64.max(), rtol=1e-6)


def test_a_variance_has_the_blocks_of_its_mean() -> None:
    """Along an axis of another name; whoever takes the blocks, the sums are the same."""
    n, c = 4, 1000
    mean = red("sum", "r0", read("x", i0, r0))
    off = b("sub", read("x", i0, var("j0")), b("mul", Ref("m"), const(1 / c)))
    r = region(
        {"i0": N}, {"r0": C, "j0": C}, {"x": tensor(N, C)}, {"y": tensor(N)},
        [let("m", "i0", mean), let("v", "i0", red("sum", "j0", b("mul", off, off)))],
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((n, c)).astype(np.float32) + 7
    shared, alone = (run_kernel(r, {"x": x}, {"N": n, "C": c}, plan(48, "r0", own), "avx2")[1]["y"] for own in ((), ("i0",)))
    np.testing.assert_array_equal(shared, alone)
    np.testing.assert_allclose(shared, x.astype(np.float64).var(axis=1) * c, rtol=1e-6)
    body = kernel_of(r, plan(48, "r0", ("i0",)), "avx2").body
    assert sum(isinstance(x, For) and x.stop == expr(48) for x in nodes(body)) == 2


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((4, 300000), (1,)), ((300000, 8), (0,)), ((6, 300, 500), (1, 2)), ((2, 3, 400, 300), (0, 3)), ((999983,), (0,))],
)
@pytest.mark.parametrize("fn", ["sum", "variance"])
def test_additions_are_in_one_order_whatever_the_cores_are(fn: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """The plan may give threads whole lines or blocks of all: the bits of the same Regions are the same."""
    x = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32) + 1
    found: dict[str, set[bytes]] = {}
    for cores in (1, 2, 3, 8):
        g = tt.Graph("reduced")
        v = g.input("x", shape, tt.fp32)
        if fn == "variance":
            v = v - v.mean(axes, keepdims=True).expand(shape)
            v = v * v
        g.output("y", v.sum(axes))
        f = tt.compile(g, target=msgspec.structs.replace(PRESETS["cpu:avx2"], cores=cores))
        found.setdefault(f.stages["region"].text, set()).add(np.asarray(f(x=x)["y"]).tobytes())
    assert all(len(bits) == 1 for bits in found.values())


def test_no_fault_under_sanitizers() -> None:
    for r in (reduce("sum"), place("argmax", DType.fp32)):
        kernel = kernel_of(r, plan(16, "r0"), "avx2")
        done = run_sanitized(sanitizer_program(r, kernel, [{"N": n, "C": c, "K": k} for n, c, k in SIZES if c]))
        if done is None:
            pytest.skip("the compiler has no sanitizers")
        assert done.returncode == 0, done.stderr[-2000:]
