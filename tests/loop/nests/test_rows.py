"""Compiled row kernels against the meaning of Regions, for every Region of the zoo, width and size."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.region.ir import Opaque
from tatami.region.run import run_region
from tatami.tiny.meaning.routines import ROUTINES
from tests.c.kernels.test_scalar_ops import samples
from tests.loop.agreement import assert_agree
from tests.loop.compiled import TARGETS, WIDEST, has_flags, kernel_of, run_kernel, run_sanitized, sanitizer_program
from tests.loop.zoo import SIZES, ZOO, C, N, bind, draw, tensor
from tests.loop.zoo import region as make_region


def check(name: str, width: str) -> None:
    region = ZOO[name]()
    for values in SIZES[name]:
        sizes = bind(region, values)
        inputs = draw(region, sizes)
        with np.errstate(all="ignore"):
            want = run_region(region, inputs, sizes)
        fault, got = run_kernel(region, inputs, sizes, width=width)
        assert fault == 0, (name, values)
        assert_agree(region, got, want, sizes, f"{name} {values}")


@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize("name", list(ZOO))
def test_kernel_means_what_the_region_means(name: str, width: str) -> None:
    check(name, width)


@pytest.mark.parametrize("policy", ["error", "wrap"])
@pytest.mark.parametrize("bad", [7, -8, 2**40])
def test_an_index_out_of_range_is_a_fault_and_reads_nothing(policy: str, bad: int) -> None:
    region = ZOO[f"gather_{policy}"]()
    sizes = {"N": 3, "C": 20, "K": 7}
    inputs = {"t": np.ones((7, 20), np.float32), "ids": np.array([0, bad, 1])}
    fault, got = run_kernel(region, inputs, sizes)
    assert fault == 1
    assert (got["y"][[0, 2]] == 1).all() and (got["y"][1] == 0).all()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("d", [t for t in DType if t != DType.unknown and not t.is_small])
def test_sort_is_stable_and_puts_nan_above(d: DType, axis: int, descending: bool) -> None:
    two = {"x": tensor(N, C, d=d)}
    region = msgspec.structs.replace(
        make_region({}, {}, two, {"y": tensor(N, C, d=d), "z": tensor(N, C, d=DType.i64)}, [], []),
        opaque=Opaque("sort", {"axis": axis, "descending": descending}),
    )
    for shape in ((5, 33), (1, 1), (0, 3), (100, 2)):
        x = samples(d, 1, shape[0] * shape[1]).reshape(shape)
        if x.size:
            x.flat[::3] = x.flat[0]
        fault, got = run_kernel(region, {"x": x}, {"N": shape[0], "C": shape[1]})
        values, order = ROUTINES["sort"]([x], {"axis": axis, "descending": descending})
        assert fault == 0
        np.testing.assert_array_equal(got["z"], order)
        np.testing.assert_array_equal(got["y"].view(np.uint8), np.ascontiguousarray(values).view(np.uint8))


@pytest.mark.parametrize(
    "name", ["softmax", "pad", "gather_wrap", "gather_elements", "scatter_add", "attention", "scan_sum_i1_11"]
)
def test_sanitizers_find_nothing(name: str) -> None:
    """Address and undefined-behaviour sanitizers, in a process of its own."""
    region = ZOO[name]()
    kernel = kernel_of(region, None, "avx2")
    main = sanitizer_program(region, kernel, [bind(region, v) for v in SIZES[name]])
    finished = run_sanitized(main)
    if finished is None:
        pytest.skip("the compiler has no sanitizers")
    assert finished.returncode == 0, finished.stderr[-2000:]


@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize("fn", ["argmax", "argmin"])
@pytest.mark.parametrize("special", [None, np.nan, np.inf, -np.inf])
def test_the_first_extreme_counts_and_nan_wins(fn: str, width: str, special: float | None) -> None:
    rng = np.random.default_rng(3)
    for columns in (1, 5, 16, 33, 150, 200, 2500):
        region = ZOO[f"{fn}_of_150" if columns == 150 else f"{fn}_1"]()
        x = rng.integers(-3, 4, (20, columns)).astype(np.float32)
        x[::3] = np.sort(x[::3])
        x[1] = -np.inf if fn == "argmax" else np.inf
        if special is not None:
            x[np.arange(0, 20, 2), rng.integers(0, columns, 10)] = special
            x[np.arange(0, 20, 4), rng.integers(0, columns, 5)] = special
        _, got = run_kernel(region, {"x": x}, {"N": 20, "C": columns}, width=width)
        np.testing.assert_array_equal(got["y"], getattr(np, fn)(x, axis=1), err_msg=f"{columns}")


@pytest.mark.parametrize("fn", ["argmax", "argmin"])
def test_the_first_of_equal_extremes_counts_in_every_lane_and_step(fn: str) -> None:
    """Two extremes anywhere in a row of several steps, vectors and single elements."""
    rng = np.random.default_rng(5)
    for columns in (64, 129, 203, 256):
        x = rng.standard_normal((400, columns)).astype(np.float32)
        for row, places in enumerate(rng.integers(0, columns, (400, 2))):
            x[row, places] = (9, -9)[fn == "argmin"] if row % 4 else np.nan
        _, got = run_kernel(ZOO[f"{fn}_1"](), {"x": x}, {"N": 400, "C": columns}, width=WIDEST)
        np.testing.assert_array_equal(got["y"], getattr(np, fn)(x, axis=1), err_msg=f"{columns}")


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "fp16", "i32", "i64", "u8"])
@pytest.mark.parametrize("target", ["cpu:generic", "cpu:avx2", "cpu:avx512"])
def test_rows_of_every_length_up_to_some_looks_have_their_first_extreme(target: str, dtype: str) -> None:
    """Lengths around the lanes of a vector, the bits of a number and what is looked through whole, with ties everywhere."""
    if not has_flags(target.removeprefix("cpu:")):
        pytest.skip(f"this machine has no {target}")
    rng = np.random.default_rng(7)
    kind = {"fp32": np.float32, "fp64": np.float64, "fp16": np.float16, "i32": np.int32, "i64": np.int64, "u8": np.uint8}[dtype]
    g = tt.Graph("lengths")
    arrays: dict[str, np.ndarray] = {}
    for columns in (1, 2, 7, 8, 10, 17, 31, 40, 63, 64, 65, 100, 129, 161, 330):
        name = f"x{columns}"
        x = g.input(name, (60, columns), getattr(tt, dtype))
        g.output(f"most{columns}", x.argmax(1))
        g.output(f"least{columns}", x.argmin(1))
        given = rng.integers(0, 4, (60, columns)).astype(kind)
        given[40:] = (rng.random((20, columns)) < 1.5 / columns) * 3
        if given.dtype.kind == "f":
            given[rng.random(given.shape) < 0.5 / columns] = np.nan
            given[::7] = -np.inf
            given[1::7] = np.inf
        arrays[name] = given
    found = tt.compile(g, target=target)(**arrays)
    for name, given in arrays.items():
        for fn, output in ((np.argmax, "most"), (np.argmin, "least")):
            np.testing.assert_array_equal(
                found[f"{output}{name[1:]}"].ravel(), fn(given, axis=1), err_msg=f"{output} of {name}"
            )


@pytest.mark.parametrize("special", [None, np.nan])
def test_places_are_found_in_rows_of_several_parts(special: float | None) -> None:
    """Rows longer than what lanes count."""
    x = np.zeros((1, (1 << 20) + 70), np.float32)
    for at in (0, 3, (1 << 20) - 1, 1 << 20, (1 << 20) + 66):
        x[0, at:] = 1.0 if special is None else special
        _, got = run_kernel(ZOO["argmax_1"](), {"x": x}, {"N": 1, "C": x.shape[1]}, width=WIDEST)
        assert got["y"][0] == at
        x[0, at:] = 0.0
