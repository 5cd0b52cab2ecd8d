from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.c.kernels.print_kernel import print_kernel
from tatami.c.products.dots import dot_text
from tatami.c.routines import routine_units
from tatami.core.algebra.visit import evaluate
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.layout import MemRef, packed_layout
from tatami.core.target import PRESETS
from tatami.core.tensor import numpy_dtype
from tatami.loop import ir as loop
from tatami.plan.ir import CpuContraction
from tatami.region.ir import Binary, Cast, Const, Param, Reduce, Region, Yield
from tatami.region.ir import Target as Output
from tatami.runtime.machine.host import check_runs_here, runs_here
from tests.loop.compiled import kernel_of as rows_kernel_of
from tests.loop.products.contraction_harness import (
    HOST,
    TILES,
    assert_close,
    conv,
    conv_reference,
    e,
    kernel_of,
    matmul,
    plan,
    run,
)

RNG = np.random.default_rng(7)


def arrays(region: Region, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    out = {}
    for p in region.inputs:
        shape = tuple(int(evaluate(s, sizes)) for s in p.memref.shape)
        values = RNG.integers(0, 9, shape) if p.memref.dtype.is_int else RNG.standard_normal(shape)
        out[p.name] = np.asarray(values).astype(numpy_dtype(p.memref.dtype))
    return out


SHAPES = [
    (1, 1, 1), (1, 33, 17), (33, 1, 17), (5, 7, 1), (0, 5, 3), (5, 0, 3), (5, 6, 0), (12, 32, 16), (13, 31, 17), (24, 64, 48),
    (25, 65, 33), (47, 97, 101), (127, 129, 131), (3, 300, 40), (300, 3, 40),
]  # fmt: skip


@pytest.mark.parametrize("split", ["m", "n", "k", "batch"])
@pytest.mark.parametrize("swap", [False, True])
def test_any_size_agrees_with_numpy(split: str, swap: bool) -> None:
    region = matmul("M", "N", "K", epilogue=True)
    for m, n, k in SHAPES:
        sizes = {"M": m, "N": n, "K": k}
        x = arrays(region, sizes)
        got = run(region, plan(region, split=split, swap=swap), x, sizes)["y"]
        assert_close(got, np.maximum(x["a"].astype(np.float64) @ x["b"] * 2 + x["bias"], 0))


@pytest.mark.parametrize("split", ["m", "n", "k", "batch"])
@pytest.mark.parametrize("sides", [("m",), ("n",), ("m", "n")])
def test_operands_and_sums_in_place(split: str, sides: tuple[str, ...]) -> None:
    for epilogue in (False, True):
        region = matmul("M", "N", "K", epilogue=epilogue)
        chosen = plan(region, split=split, in_place=sides)
        assert ("tatami_lies_" in str(kernel_of(region, chosen)[0].body)) == ("m" in sides)
        for m, n, k in SHAPES:
            sizes = {"M": m, "N": n, "K": k}
            x = arrays(region, sizes)
            wanted = x["a"].astype(np.float64) @ x["b"]
            got = run(region, chosen, x, sizes)["y"]
            assert_close(got, np.maximum(wanted * 2 + x["bias"], 0) if epilogue else wanted)


@pytest.mark.parametrize("dtype", [DType.fp64, DType.i64])
def test_parts_of_a_long_k(dtype: DType) -> None:
    """Each part has several blocks, and k divides evenly by none; results lie along rows, and along columns."""
    region = matmul(29, 40, 331, dtype=dtype, acc=dtype, epilogue=dtype.is_float)
    x = arrays(region, {})
    wanted = x["a"] @ x["b"]
    if dtype.is_float:
        wanted = np.maximum(wanted * 2 + x["bias"], 0)
    for swap in (False, True):
        np.testing.assert_allclose(run(region, plan(region, split="k", swap=swap), x)["y"], wanted, rtol=1e-11)


def test_in_place_the_bits_are_those_of_copies() -> None:
    region = matmul(61, 96, 100, batch=(3,))
    x = arrays(region, {})
    copies = run(region, plan(region), x)["y"]
    for sides in (("m",), ("n",), ("m", "n")):
        np.testing.assert_array_equal(run(region, plan(region, in_place=sides), x)["y"], copies)


@pytest.mark.parametrize("split", ["m", "n", "batch"])
@pytest.mark.parametrize(("m", "k"), [(4, 45), (2, 0)])
def test_few_rows_meet_long_rows_of_columns_as_they_lie(m: int, k: int, split: str) -> None:
    for epilogue in (False, True):
        region = matmul(m, 1333, k, batch=(2,), epilogue=epilogue)
        chosen = plan(region, split=split, in_place=("n",), nc=768)
        assert "tatami_wide_" in str(kernel_of(region, chosen)[0].body)
        x = arrays(region, {})
        wanted = x["a"].astype(np.float64) @ x["b"]
        assert_close(run(region, chosen, x)["y"], np.maximum(wanted * 2 + x["bias"], 0) if epilogue else wanted)


@pytest.mark.parametrize(("m", "k", "nc"), [(4, 45, 1344), (1, 333, 768), (3, 3, 512), (2, 1000, 1024), (2, 2, 768)])
def test_threads_share_long_rows_by_parts_of_k(m: int, k: int, nc: int) -> None:
    for epilogue in (False, True):
        region = matmul(m, 1333, k, epilogue=epilogue)
        chosen = plan(region, split="k", in_place=("n",), nc=nc, kc=64)
        assert "tatami_wide_" in str(kernel_of(region, chosen)[0].body)
        x = arrays(region, {})
        wanted = x["a"].astype(np.float64) @ x["b"]
        assert_close(run(region, chosen, x)["y"], np.maximum(wanted * 2 + x["bias"], 0) if epilogue else wanted)


@pytest.mark.parametrize("side", ["m", "n"])
def test_what_lies_otherwise_is_not_used_in_place(side: str) -> None:
    region = matmul(45, 70, 53, transpose_a=side == "m", transpose_b=side == "n")
    with pytest.raises(TatamiError, match="contiguous rows"):
        kernel_of(region, plan(region, in_place=(side,)))


def test_columns_by_heads_are_stored_by_whole_vectors() -> None:
    region = matmul(45, 192, 53, epilogue=True)
    heads = Output("y", MemRef(DType.fp32, e(3, 45, 64)))
    by_head = Yield("z", "y", map=e("n//64", "m", "n - 64*(n//64)"))
    region = msgspec.structs.replace(region, outputs=(heads,), yields=(by_head,))
    x = arrays(region, {})
    wanted = np.maximum(x["a"].astype(np.float64) @ x["b"] * 2 + x["bias"], 0).reshape(45, 3, 64).transpose(1, 0, 2)
    for split in ("m", "n"):
        assert_close(run(region, plan(region, split=split), x)["y"], wanted)
        assert "Lane(" not in str(kernel_of(region, plan(region, split=split))[0].body)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_transposed_operands(transpose_a: bool, transpose_b: bool) -> None:
    region = matmul(45, 70, 53, transpose_a=transpose_a, transpose_b=transpose_b)
    x = arrays(region, {})
    a = x["a"].T if transpose_a else x["a"]
    b = x["b"].T if transpose_b else x["b"]
    for split in ("m", "n", "k"):
        assert_close(run(region, plan(region, split=split), x)["y"], a.astype(np.float64) @ b)


@pytest.mark.parametrize("batch", [("B",), ("B", 3), (2, 1, "B")])
def test_batches(batch: tuple[str | int, ...]) -> None:
    region = matmul("M", 37, 29, batch=batch, transpose_b=True)
    for b, m in ((0, 4), (1, 30), (5, 61)):
        sizes = {"B": b, "M": m}
        x = arrays(region, sizes)
        got = run(region, plan(region), x, sizes)["y"]
        assert_close(got, x["a"].astype(np.float64) @ np.swapaxes(x["b"], -1, -2))


@pytest.mark.parametrize("threads", [2, 5])
def test_answers_do_not_depend_on_threads(threads: int) -> None:
    region = matmul(150, 130, 200)
    x = arrays(region, {})
    for split in ("m", "n", "k", "batch"):
        one = run(region, plan(region, split=split), x, threads=1)["y"]
        np.testing.assert_array_equal(run(region, plan(region, split=split), x, threads=threads)["y"], one)


@pytest.mark.parametrize("dtype", [DType.fp16, DType.bf16])
def test_narrow_operands_accumulate_in_fp32(dtype: DType) -> None:
    region = matmul(40, 50, 60, dtype=dtype, out=dtype, epilogue=True)
    x = arrays(region, {})
    wanted = np.maximum(x["a"].astype(np.float64) @ x["b"].astype(np.float64) * 2 + x["bias"], 0)
    got = run(region, plan(region), x)["y"]
    assert got.dtype == numpy_dtype(dtype)
    epsilon = 2.0**-10 if dtype == DType.fp16 else 2.0**-7
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=epsilon, atol=1e-4)


def test_doubles() -> None:
    region = matmul(33, 44, 55, dtype=DType.fp64, acc=DType.fp64)
    x = arrays(region, {})
    np.testing.assert_allclose(run(region, plan(region), x)["y"], x["a"] @ x["b"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "acc"), [(DType.i8, DType.i32), (DType.u8, DType.i32), (DType.i32, DType.i32), (DType.i64, DType.i64)]
)
def test_integers_are_exact(dtype: DType, acc: DType) -> None:
    region = matmul(31, 40, 50, dtype=dtype, acc=acc)
    x = arrays(region, {})
    wanted = x["a"].astype(numpy_dtype(acc)) @ x["b"].astype(numpy_dtype(acc))
    np.testing.assert_array_equal(run(region, plan(region), x)["y"], wanted)


FULL = {t: (np.iinfo(numpy_dtype(t)).min, np.iinfo(numpy_dtype(t)).max + 1) for t in (DType.i8, DType.u8, DType.i16)}


def narrow(k: int | str, a: DType, b: DType, *, transpose_b: bool, wide: bool) -> Region:
    """A product of a and b with sums of i32; `wide`: operands cast first."""
    region = matmul(31, 77, k, dtype=a, acc=DType.i32, transpose_b=transpose_b)
    (acc,) = region.lets
    assert isinstance(acc.expr, Reduce) and isinstance(acc.expr.body, Binary)
    body = acc.expr.body
    if not wide:
        assert isinstance(body.x, Cast) and isinstance(body.y, Cast)
        body = Binary("mul", body.x.x, body.y.x)
    acc = msgspec.structs.replace(acc, expr=msgspec.structs.replace(acc.expr, body=body))
    second = msgspec.structs.replace(region.inputs[1], memref=msgspec.structs.replace(region.inputs[1].memref, dtype=b))
    return msgspec.structs.replace(region, lets=(acc,), inputs=(region.inputs[0], second))


DOTS = [
    ("avx512", ("vnni",), "quads_vnni"), ("avx512", ("vnni",), "pairs_vnni"), ("avx512", (), "pairs"), ("avx2", ("vnni",), "quads_vnni"),
    ("avx2", ("vnni",), "pairs_vnni"), ("avx2", (), "pairs"), ("generic", (), "pairs"), ("avx512", ("amx_int8",), "quads_amx"),
    ("avx512", (), "quads"), ("avx2", (), "quads"), ("generic", (), "quads"),
]  # fmt: skip


def test_the_encoding_of_narrow_products_is_that_of_the_machine() -> None:
    """Whatever the width of vectors: of 32 bytes a machine with AVX-512 has them without AVX-VNNI."""
    for lanes in (4, 8, 16):
        for element in ("i16x2vnni", "u8x4vnni", "i8x4vnni"):
            known, _, other = dot_text(element, lanes).partition("#else")
            assert "__AVX512VL__" in known and "vpdp" in known and "%{vex%}" not in known and "%{vex%} vpdp" in other


@pytest.mark.parametrize(("isa", "features", "dot"), DOTS, ids=lambda v: str(v))
def test_narrow_integers_are_multiplied_in_groups(isa: str, features: tuple[str, ...], dot: str) -> None:
    """The whole range of each type, pairs of the smallest numbers; k of whole groups, with a rest, of any size."""
    target = msgspec.structs.replace(PRESETS[f"cpu:{isa}"], features=features)
    if not runs_here(target):
        pytest.skip(f"this machine has no {isa} {features}")
    pairs = [(DType.u8, DType.i8), (DType.i8, DType.u8)]
    if dot != "quads_vnni":
        pairs += [(DType.i8, DType.i8), (DType.u8, DType.u8)]
    if "pairs" in dot:
        pairs.append((DType.i16, DType.i16))
    for a, b in pairs:
        for k, swap, transpose_b in ((68, False, True), (68, True, False), (51, False, False), ("K", True, True)):
            region = narrow(k, a, b, transpose_b=transpose_b, wide=a != b)
            chosen = plan(region, isa=isa, dot=dot, swap=swap, split="n" if swap else "m")
            rows, columns = (b, a) if swap else (a, b)
            names = {"quads_vnni": "x4vnni_", "quads": f"_{rows}x4{str(columns)[0]}_", "quads_amx": f"tiles_{rows}{columns}"}
            called = names.get(dot, "i16x2")
            if dot == "quads_amx":
                lies: tuple[Literal["m"], ...] = ("m",) if transpose_b and k == 68 else ()
                chosen = msgspec.structs.replace(chosen, mr=32, nr=32, mc=64, nc=64 if swap else 32, in_place=lies)
            assert called in str(kernel_of(region, chosen, target)[0].body)
            sizes = {"K": 7} if k == "K" else {}
            shapes = [tuple(int(evaluate(s, sizes)) for s in p.memref.shape) for p in region.inputs]
            x = {n: RNG.integers(*FULL[t], s).astype(numpy_dtype(t)) for n, t, s in zip("ab", (a, b), shapes)}
            for n, t in (("a", a), ("b", b)):
                x[n].reshape(-1)[:200] = FULL[t][0] if t.is_signed else FULL[t][1] - 1
            wanted = x["a"].astype(np.int64) @ (x["b"].T if transpose_b else x["b"]).astype(np.int64)
            got = run(region, chosen, x, sizes, target=target)["y"]
            np.testing.assert_array_equal(got, wanted.astype(np.int32))


def test_other_operands_are_not_taken_in_groups() -> None:
    for dot, dtype in (("pairs", DType.u16), ("quads_vnni", DType.i8)):
        region = matmul(31, 40, 50, dtype=dtype, acc=DType.i32)
        with pytest.raises(TatamiError, match="not numbers that"):
            kernel_of(region, plan(region, dot=dot))


def test_a_prologue_runs_while_packing() -> None:
    region = matmul(40, 50, 60, prologue=True)
    x = arrays(region, {})
    assert_close(run(region, plan(region), x)["y"], (np.abs(x["a"]) * 0.5).astype(np.float64) @ x["b"])


def test_a_start_value_is_added_once() -> None:
    region = matmul(20, 40, 100)
    acc = region.lets[0]
    assert isinstance(acc.expr, Reduce)
    started = msgspec.structs.replace(acc, expr=msgspec.structs.replace(acc.expr, init=3.0))
    region = msgspec.structs.replace(region, lets=(started,))
    x = arrays(region, {})
    assert_close(run(region, plan(region), x)["y"], x["a"].astype(np.float64) @ x["b"] + 3)


@pytest.mark.parametrize("split", ["m", "n", "batch"])
def test_slivers_made_by_setup_are_used_in_place(split: str) -> None:
    nr = plan(matmul(1, 1, 1)).nr
    region = matmul("M", 70, 53, batch=("B",) if split == "batch" else ())
    rank = len(region.inputs[1].memref.shape)
    layout = packed_layout(rank, nr)
    packed = Param("b", msgspec.structs.replace(region.inputs[1].memref, layout=layout))
    region = msgspec.structs.replace(region, inputs=(region.inputs[0], packed))
    kernel, _ = kernel_of(region, plan(region, split=split))
    assert "tatami_gemm" in str(kernel.body)
    sizes = {"M": 50, "B": 3}
    x = arrays(region, sizes)
    slivers = np.full((*x["b"].shape[:-2], -(-70 // nr), 53, nr), np.nan, np.float32)
    for s in range(slivers.shape[-3]):
        part = x["b"][..., s * nr : (s + 1) * nr]
        slivers[..., s, :, : part.shape[-1]] = part
    got = run(region, plan(region, split=split), {"a": x["a"], "b": slivers}, sizes)["y"]
    assert_close(got, x["a"].astype(np.float64) @ x["b"])


CONVOLUTIONS = [
    # batch, groups, cin, cout, image, kernel, stride, pad, dilation
    (1, 1, 3, 8, (9, 11), (3, 3), 1, 1, 1),
    (2, 1, 5, 13, (8, 8), (3, 3), 2, 1, 1),
    (1, 1, 4, 6, (14, 10), (1, 1), 1, 0, 1),
    (3, 1, 4, 6, (7, 5), (1, 1), 2, 0, 1),
    (2, 3, 4, 5, (9, 9), (3, 3), 1, 2, 2),
    (1, 8, 1, 1, (10, 10), (3, 3), 1, 1, 1),
    (2, 1, 3, 4, (21,), (5,), 2, 2, 1),
    (1, 2, 3, 4, (30,), (3,), 1, 4, 3),
    (2, 1, 2, 3, (5, 6, 7), (3, 3, 3), 1, 1, 1),
    (1, 1, 3, 7, (6, 6, 6), (2, 2, 2), 2, 0, 1),
    (1, 1, 3, 16, (20, 20), (7, 7), 2, 3, 1),
    (1, 1, 2, 3, (4, 4), (3, 3), 1, 5, 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda c: "-".join(str(x) for x in c))
@pytest.mark.parametrize(("swap", "split"), [(True, "m"), (True, "n"), (False, "m"), (True, "k")])
def test_a_convolution_is_an_implicit_gemm(case: tuple, swap: bool, split: str) -> None:
    _, groups, _, _, _, _, stride, pad, dilation = case
    region = conv(*case)
    x = arrays(region, {})
    got = run(region, plan(region, swap=swap, split=split), x)["y"]
    assert_close(got, conv_reference(x["x"], x["w"], groups, stride, pad, dilation))


@pytest.mark.parametrize("isa", ["avx2", "generic"])
def test_other_vector_widths(isa: str) -> None:
    target = PRESETS[f"cpu:{isa}"]
    try:
        check_runs_here(target)
    except TatamiError:
        pytest.skip(f"this machine has no {isa}")
    region = matmul(29, 53, 67, epilogue=True)
    x = arrays(region, {})
    got = run(region, plan(region, isa=isa), x, target=target)["y"]
    assert_close(got, np.maximum(x["a"].astype(np.float64) @ x["b"] * 2 + x["bias"], 0))


def test_results_are_asked_for_ahead_where_a_sliver_has_a_part_of_each_row() -> None:
    region = matmul(45, 70, 53)
    rows, columns = (str(kernel_of(region, plan(region, swap=swap))[0].body) for swap in (False, True))
    asked = rows.index("Prefetch(buffer='p2'")
    assert "write=True" in rows[asked : rows.index("tatami_gemm")]
    assert "Prefetch" not in columns


def test_equal_contractions_make_one_kernel() -> None:
    first, _ = kernel_of(matmul(8, 9, 10), plan(matmul(8, 9, 10)))
    second, _ = kernel_of(matmul(8, 9, 10), plan(matmul(8, 9, 10)))
    other, _ = kernel_of(matmul(8, 9, 11), plan(matmul(8, 9, 11)))
    assert first.face.key == second.face.key != other.face.key


def test_what_is_no_contraction_is_refused_by_name() -> None:
    region = matmul(8, 9, 10)
    chosen = plan(region)
    wrong = msgspec.structs.replace(region.lets[0], expr=Const(1.0, DType.fp32))
    with pytest.raises(TatamiError, match="cpu_contraction does not fit"):
        kernel_of(msgspec.structs.replace(region, lets=(wrong,)), chosen)


@pytest.mark.parametrize("split", ["m", "n"])
def test_results_follow_panel_by_panel(split: str) -> None:
    """A product of 90 rows by short slivers, the last of them narrow."""
    region = matmul(90, 70, 53, epilogue=True)
    chosen = plan(region, split=split, kc=64, mc=48)
    x = arrays(region, {})
    wanted = np.maximum(x["a"].astype(np.float64) @ x["b"] * 2 + x["bias"], 0)
    assert_close(run(region, chosen, x)["y"], wanted)


@pytest.mark.parametrize("columns", [1070, "N"])
def test_panels_go_along_bands_of_slivers(columns: int | str) -> None:
    """A product of 45 rows and 53 steps of k, three at a time, the last band shorter, the last sliver narrow."""
    for epilogue in (False, True):
        region = matmul(45, columns, 53, epilogue=epilogue)
        chosen = plan(region, split="n", kc=24, nc=3 * TILES[HOST.isa][1])
        kernel, _ = kernel_of(region, chosen)
        (*_, bands) = (s for s in kernel.body if isinstance(s, loop.Parallel))
        (copies,) = (s for s in bands.body if isinstance(s, loop.Call))
        (panels,) = (s for s in bands.body if isinstance(s, loop.For))
        tile = "_f32_{}x{}_{}".format(*TILES[HOST.isa])
        assert tile in str(panels) and copies.function.startswith("tatami_slivers_f32_")
        sizes = {"N": 1070}
        x = arrays(region, sizes)
        wanted = x["a"].astype(np.float64) @ x["b"]
        assert_close(run(region, chosen, x, sizes)["y"], np.maximum(wanted * 2 + x["bias"], 0) if epilogue else wanted)


def test_results_that_follow_each_other_down_the_sums_are_turned() -> None:
    """Weights are the wide side of a small image: vectors of the epilogue go along its pixels."""
    rng = np.random.default_rng(5)
    w, b = rng.standard_normal((64, 24, 1, 1)).astype(np.float32), rng.standard_normal(64).astype(np.float32)

    def graph() -> tt.Graph:
        g = tt.Graph("turned")
        x, r = g.input("x", (2, 24, 9, 7), tt.fp32), g.input("r", (2, 64, 9, 7), tt.fp32)
        g.output("y", (x.conv(g.constant(w), g.constant(b)) + r).relu())
        return g

    f = tt.compile(graph())
    (chosen,) = (r.choices[-1].plan for r in f.stages["plan"].value.main.regions)
    assert isinstance(chosen, CpuContraction) and not chosen.swap
    assert "tatami_pack" in f.stages["loop"].text
    x = {n: rng.standard_normal((2, c, 9, 7)).astype(np.float32) for n, c in (("x", 24), ("r", 64))}
    assert_close(f(**x)["y"], tt.compile(graph(), target="reference")(**x)["y"].astype(np.float64))


@pytest.mark.parametrize(("split", "sides"), [("m", ()), ("n", ()), ("batch", ("m",)), ("m", ("n",))])
def test_a_kernel_of_known_rows_comes_with_the_panels_for_them(split: str, sides: tuple[str, ...]) -> None:
    def micro_kernels(rows: int | str) -> int:
        region = matmul(rows, 96, 100)
        units = routine_units([kernel_of(region, plan(region, split=split, in_place=sides))[0]])
        return sum(unit.contract for unit in units.values())

    assert 2 <= micro_kernels(61) <= 4
    assert micro_kernels("M") == 1


def test_a_kernel_is_light_where_routines_do_its_work() -> None:
    region = matmul(61, 96, 100)
    assert print_kernel(kernel_of(region, plan(region))[0]).light
    assert not print_kernel(rows_kernel_of(region)).light
