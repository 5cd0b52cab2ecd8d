"""Products of dequantised integers: sums of integers, exact, for every kind of product, scale and zero point."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import Node
from tatami.frontend.rewrites.dequantised import FILTERS_OF_WINDOWS, LONGEST_SUM, multiply_integers
from tatami.targets import resolve_target
from tests.shares import share

F, U8, I8 = DType.fp32, DType.u8, DType.i8
RNG = np.random.default_rng(5)


def codes(kind: DType, *shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype("u1") if kind == U8 else RNG.integers(-128, 128, shape).astype("i1")


def scales(*shape: int) -> np.ndarray:
    return RNG.uniform(0.001, 0.02, shape).astype("f4")


def real(x: np.ndarray, scale: np.ndarray, zero: np.ndarray | int, axis: int) -> np.ndarray:
    """(x - zero) * scale in float64."""
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    by, point = (np.asarray(t, np.float64).reshape(shape) if np.ndim(t) else np.float64(t) for t in (scale, zero))
    return np.asarray((x.astype(np.float64) - point) * by)


class Operand:
    """Codes, scale and zero point of one operand. axis: where the scale has a number for each element; None: one for all."""

    def __init__(self, kind: DType, shape: tuple[int, ...], axis: int | None, zero: str) -> None:
        self.codes, self.axis = codes(kind, *shape), 0 if axis is None else axis
        own = () if axis is None else (shape[axis],)
        middle = 131 if kind == U8 else -7
        self.scale = scales(*own)
        self.zero = None if zero == "none" else np.full(own, 0 if zero == "0" else middle, self.codes.dtype)

    @property
    def real(self) -> np.ndarray:
        return real(self.codes, self.scale, 0 if self.zero is None else self.zero, self.axis)

    def put(self, g: Graph, name: str, is_constant: bool) -> Tensor:
        kind = U8 if self.codes.dtype == np.uint8 else I8
        x = g.constant(self.codes, name) if is_constant else g.input(name, self.codes.shape, kind)
        zero = None if self.zero is None else g.constant(self.zero, f"{name}_zero")
        return x.dequantize(g.constant(self.scale, f"{name}_scale"), zero, to=F, axis=self.axis)


def nodes(f: tt.CompiledFunction) -> tuple[Node, ...]:
    return f.compilation.stages["integers"].main.graph


def is_integer(f: tt.CompiledFunction) -> bool:
    """True if every product sums integers."""
    products = [n for n in nodes(f) if n.op in ("matmul", "linear", "gemm", "conv")]
    return all(n.attrs.get("acc_dtype") == "i32" for n in products)


def check(a: Operand, b: Operand, product: Callable[[Tensor, Tensor], Tensor], wanted: np.ndarray, target: str = "cpu") -> None:
    g = Graph("g")
    g.output("y", product(a.put(g, "a", False), b.put(g, "b", True)))
    f = tt.compile(g, target=target, threads=1)
    assert is_integer(f)
    np.testing.assert_allclose(f(a=a.codes)["y"], wanted, rtol=3e-7, atol=3e-7 * np.abs(wanted).max())


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
@pytest.mark.parametrize(("left", "right"), [(U8, I8), (I8, I8), (U8, U8), (I8, U8)])
@pytest.mark.parametrize("zero", ["none", "0", "middle"])
@pytest.mark.parametrize("shape", [(1, 64, 48), (7, 33, 19)])
def test_matrices(shape: tuple[int, int, int], zero: str, left: DType, right: DType, target: str) -> None:
    m, k, n = shape
    a, b = Operand(left, (m, k), None, zero), Operand(right, (k, n), 1, zero)
    check(a, b, lambda x, y: x @ y, a.real @ b.real, target)


def test_a_scale_for_each_row_and_column() -> None:
    a, b = Operand(U8, (9, 40), 0, "middle"), Operand(I8, (40, 21), 1, "middle")
    check(a, b, lambda x, y: x @ y, a.real @ b.real)


def test_batches_of_both_operands() -> None:
    a, b = Operand(U8, (3, 2, 5, 24), None, "middle"), Operand(I8, (3, 2, 24, 11), None, "0")
    check(a, b, lambda x, y: x @ y, a.real @ b.real)


def test_movement_before_the_product() -> None:
    """A tied weight is turned round after its dequantisation; a scale for each column follows its axis."""
    a, b = Operand(U8, (6, 2, 12), None, "middle"), Operand(I8, (21, 24), 0, "middle")
    check(a, b, lambda x, y: x.reshape((6, 24)) @ y.permute((1, 0)), a.real.reshape(6, 24) @ b.real.T)


@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_gemm_with_factors_and_an_addend(turned: tuple[bool, bool]) -> None:
    a, b = (
        Operand(U8, (24, 6) if turned[0] else (6, 24), None, "middle"),
        Operand(I8, (11, 24) if turned[1] else (24, 11), None, "0"),
    )
    more = RNG.standard_normal(11).astype("f4")
    left, right = (v.real.T if t else v.real for v, t in zip((a, b), turned, strict=True))

    def product(x: Tensor, y: Tensor) -> Tensor:
        return x.op("gemm", y, x.graph.constant(more, "c"), trans_a=turned[0], trans_b=turned[1], alpha=0.5, beta=2.0)

    check(a, b, product, 0.5 * (left @ right) + 2.0 * more)


def convolved(x: np.ndarray, w: np.ndarray, pad: int, stride: int, groups: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", a, b) for a, b in parts], 1)


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
@pytest.mark.parametrize("kind", [U8, I8])
@pytest.mark.parametrize("zero", ["0", "middle"])
@pytest.mark.parametrize(
    ("filters", "size", "pad", "stride", "groups"),
    [(12, 3, 1, 1, 4), (12, 3, 2, 2, 2), (12, 1, 0, 1, 1), (12, 1, 1, 2, 1), (144, 3, 1, 1, 1), (12, 3, 1, 1, 1)],
)
def test_convolutions(filters: int, size: int, pad: int, stride: int, groups: int, zero: str, kind: DType, target: str) -> None:
    """Windows of integers are quicker by dot-product units, and by tiles with many filters."""
    x, w = Operand(kind, (2, 8, 9, 7), None, zero), Operand(I8, (filters, 8 // groups, size, size), 0, "0")
    more = RNG.standard_normal(filters).astype("f4")
    g = Graph("g")
    attrs = {"padding": ((pad, pad),) * 2, "stride": (stride, stride), "groups": groups}
    g.output("y", x.put(g, "x", False).op("conv", w.put(g, "w", True), g.constant(more, "c"), **attrs))
    f = tt.compile(g, target=target, threads=1)
    wanted = convolved(x.real, w.real, pad, stride, groups) + more[:, None, None]
    features = f.compilation.target.features
    gains = size == 1 or groups > 1 or "vnni" in features or (filters >= FILTERS_OF_WINDOWS and "amx_int8" in features)
    assert is_integer(f) == gains
    tolerance = 3e-7 if gains else 2e-5
    np.testing.assert_allclose(f(x=x.codes)["y"], wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


VNNI = msgspec.structs.replace(resolve_target("cpu:avx512"), features=("vnni",))


@pytest.mark.parametrize(
    ("kind", "zero", "channels", "gains"),
    [(I8, "0", 8, True), (I8, "middle", 8, False), (U8, "0", 8, False), (I8, "0", 2, False)],
)
def test_windows_are_integers_where_four_channels_meet_signed_weights(
    kind: DType, zero: str, channels: int, gains: bool
) -> None:
    x, w = Operand(U8, (1, channels, 9, 7), None, "middle"), Operand(kind, (12, channels, 3, 3), None, zero)
    g = Graph("g")
    g.output("y", x.put(g, "x", False).op("conv", w.put(g, "w", True)))
    module = multiply_integers(g.module(), VNNI)
    (conv,) = (n for n in module.main.graph if n.op == "conv")
    assert (conv.attrs.get("acc_dtype") == "i32") == gains


def requantised(g: Graph, x: Tensor, scale: float, zero: int) -> Tensor:
    return x.quantize(g.number(scale, F), g.constant(np.array(zero, np.uint8)), to=U8)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("kind", [U8, I8])
def test_a_layer_from_codes_to_codes(kind: DType, size: int) -> None:
    """A bias of the sums' own scale is added to them; the codes differ from float64's where it is near the middle of two alone."""
    x, w = Operand(kind, (2, 8, 9, 7), None, "middle"), Operand(I8, (12, 8, size, size), 0, "0")
    bias = RNG.integers(-5000, 5000, 12).astype("i4")
    g = Graph("g")
    factor = (x.scale * w.scale).astype("f4")
    made = g.constant(bias, "bias").dequantize(g.constant(factor, "factor"), to=F, axis=0)
    y = x.put(g, "x", False).op("conv", w.put(g, "w", True), made, padding=((size // 2,) * 2,) * 2)
    g.output("y", requantised(g, y, 0.05, 9))
    f = tt.compile(g, threads=1)
    real = convolved(x.real, w.real, size // 2, 1, 1) + (bias * factor.astype(np.float64))[:, None, None]
    exact = real / np.float32(0.05)
    wanted = np.clip(np.rint(exact) + 9, 0, 255)
    got = f(x=x.codes)["y"].astype(np.float64)
    is_near = np.abs(exact - np.floor(exact) - 0.5) < 1e-4
    assert (np.abs(got - wanted) <= is_near).all() and (wanted % 255 != 0).sum() > 0
    assert not any(n.op == "quantize" for n in nodes(f))


def test_a_bias_of_another_scale_stays_a_float() -> None:
    x, w = Operand(U8, (1, 8, 5, 5), None, "0"), Operand(I8, (12, 8, 1, 1), None, "0")
    bias = np.arange(12, dtype="i4")
    g = Graph("g")
    made = g.constant(bias, "bias").dequantize(g.number(0.25, F), to=F)
    g.output("y", x.put(g, "x", False).op("conv", w.put(g, "w", True), made))
    wanted = convolved(x.real, w.real, 0, 1, 1) + (bias * 0.25)[:, None, None]
    np.testing.assert_allclose(tt.compile(g, threads=1)(x=x.codes)["y"], wanted, rtol=3e-7, atol=1e-5)


@pytest.mark.parametrize("kind", [U8, I8])
def test_a_maximum_of_dequantised_values_is_one_of_codes(kind: DType) -> None:
    x = Operand(kind, (2, 6, 11, 13), None, "middle")
    g = Graph("g")
    g.output("y", x.put(g, "x", False).op("max_pool", kernel=(3, 3), stride=(2, 2), padding=((1, 1), (1, 1))))
    f = tt.compile(g, threads=1)
    (pool,) = (n for n in nodes(f) if n.op == "max_pool")
    assert f.compilation.stages["integers"].main.tensors[pool.inputs[0]].dtype == DType.i32
    padded = np.pad(x.real, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    wanted = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2].max((-2, -1))
    np.testing.assert_allclose(f(x=x.codes)["y"], wanted, rtol=2e-7)


def test_a_sum_of_dequantised_values_is_quantised_by_factors() -> None:
    a, b = Operand(U8, (2, 6, 8, 8), None, "middle"), Operand(I8, (2, 6, 8, 8), None, "0")
    g = Graph("g")
    g.output("y", requantised(g, a.put(g, "a", False) + b.put(g, "b", False), 0.02, 100))
    f = tt.compile(g, threads=1)
    exact = (a.real + b.real) / np.float32(0.02)
    is_near = np.abs(exact - np.floor(exact) - 0.5) < 1e-4
    got = f(a=a.codes, b=b.codes)["y"].astype(np.float64)
    assert (np.abs(got - np.clip(np.rint(exact) + 100, 0, 255)) <= is_near).all()
    assert not any(n.op == "quantize" for n in nodes(f))


def test_a_scale_along_the_sum_stays() -> None:
    a, b = Operand(U8, (4, 12), 1, "0"), Operand(I8, (12, 5), None, "0")
    g = Graph("g")
    g.output("y", a.put(g, "a", False) @ b.put(g, "b", True))
    f = tt.compile(g, threads=1)
    assert not is_integer(f)
    np.testing.assert_allclose(f(a=a.codes)["y"], a.real @ b.real, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("depth", "fits"), [(LONGEST_SUM, True), (LONGEST_SUM + 1, False)])
def test_the_longest_sum(depth: int, fits: bool) -> None:
    """All terms at their greatest: 32 bits hold the sum, or it is not made of integers."""
    g = Graph("g")
    x = g.input("a", (1, depth), U8).dequantize(g.number(1.0, F), to=F)
    y = g.input("b", (depth, 1), U8).dequantize(g.number(1.0, F), to=F)
    g.output("y", x @ y)
    f = tt.compile(g, threads=1)
    assert is_integer(f) == fits
    ones = np.full((1, depth), 255, "u1")
    np.testing.assert_allclose(f(a=ones, b=ones.T)["y"], [[depth * 255.0**2]], rtol=1e-7 if fits else 1e-4)


def test_an_open_sum_stays() -> None:
    g = Graph("g")
    x, y = (g.input(n, s, U8).dequantize(g.number(0.5, F), to=F) for n, s in (("a", (2, "K")), ("b", ("K", 3))))
    g.output("y", x @ y)
    assert not is_integer(tt.compile(g, threads=1))


@pytest.mark.parametrize("apart", [False, True])
def test_quantised_as_it_was_is_the_codes(apart: bool) -> None:
    """Movement between stays; with another scale it is computed."""
    x = codes(U8, 6, 40)
    g = Graph("g")
    scale, zero = g.number(0.037, F), g.constant(np.array(131, "u1"), "z")
    real_x = g.input("x", (6, 40), U8).dequantize(scale, zero, to=F, axis=0)
    again = g.number(0.036, F) if apart else scale
    g.output("y", real_x.permute((1, 0)).quantize(again, zero, to=U8, axis=0))
    f = tt.compile(g, threads=1)
    assert any(n.op == "identity" and n.outputs == (f.signature.outputs[0].tensor,) for n in nodes(f)) != apart
    wanted = np.clip(
        np.rint((x.T.astype("f4") - 131) * np.float32(0.037) / np.float32(0.036 if apart else 0.037)) + 131, 0, 255
    )
    np.testing.assert_array_equal(f(x=x)["y"], wanted)


def test_every_code_and_scale_comes_back() -> None:
    """round((q * s) / s) is q for every q of 8 bits, whatever the scale."""
    q = np.arange(-255, 256, dtype=np.float32)[:, None]
    s = np.concatenate([RNG.uniform(1e-6, 10, 2000), 2.0 ** RNG.uniform(-60, 60, 2000)]).astype(np.float32)
    np.testing.assert_array_equal(np.rint((q * s) / s), np.broadcast_to(q, (511, 4000)))


def test_explain_names_the_model_nodes() -> None:
    a, b = Operand(U8, (6, 24), None, "middle"), Operand(I8, (24, 11), None, "0")
    g = Graph("g")
    g.output("y", a.put(g, "a", False) @ b.put(g, "b", True))
    f = tt.compile(g, threads=1)
    assert "matmul of integers, sums of i32" in f.explain()


WEIGHTS = ((128, 256, 1), (67, 90, 1), (96, 64, None))
KINDS_OF_WEIGHTS = ((I8, "none"), (I8, "0"), (U8, "0"), (U8, "128"))


@pytest.mark.parametrize(
    ("depth", "columns", "axis", "kind", "zero", "rows", "target"),
    [(*w, *k, r, t) for w, k, r, t in share(WEIGHTS, KINDS_OF_WEIGHTS, (1, 3, 16, 40), ("cpu", "cpu:avx2"), of=4)],
)
def test_floats_and_constant_integers(
    depth: int, columns: int, axis: int | None, kind: DType, zero: str, rows: int, target: str
) -> None:
    """The weights are the only constant of their size, and 8 bits wide."""
    w = Operand(kind, (depth, columns), axis, "none" if zero == "none" else "0")
    if zero == "128":
        w.zero = np.full(np.shape(w.scale), 128, "u1")
    x = RNG.standard_normal((rows, depth)).astype("f4")
    more = RNG.standard_normal(columns).astype("f4")
    g = Graph("g")
    g.output("y", g.input("x", x.shape, F) @ w.put(g, "w", True) + g.constant(more, "c").expand((rows, columns)))
    f = tt.compile(g, target=target, threads=1)
    wanted = x.astype(np.float64) @ w.real + more
    np.testing.assert_allclose(f(x=x)["y"], wanted, rtol=1e-5, atol=2e-6 * np.abs(wanted).max())
    assert f.memory["constants"] < 2 * depth * columns + 16 * columns + 4096


@pytest.mark.parametrize("op", ["linear", "gemm"])
def test_layers_of_floats_and_constant_integers(op: str) -> None:
    """Weights [out, in], a scale for each output, a bias; gemm with factors of both."""
    w, x, more = Operand(I8, (48, 64), 0, "0"), RNG.standard_normal((5, 64)).astype("f4"), RNG.standard_normal(48).astype("f4")
    attrs = {"trans_b": True, "alpha": 0.5, "beta": 3.0} if op == "gemm" else {}
    g = Graph("g")
    g.output("y", g.input("x", x.shape, F).op(op, w.put(g, "w", True), g.constant(more, "c"), **attrs))
    f = tt.compile(g, threads=1)
    wanted = attrs.get("alpha", 1.0) * (x.astype(np.float64) @ w.real.T) + attrs.get("beta", 1.0) * more
    np.testing.assert_allclose(f(x=x)["y"], wanted, rtol=1e-5, atol=2e-6 * np.abs(wanted).max())
    assert "widened in registers" in f.explain()


@pytest.mark.parametrize("zero", [7, -3])
def test_floats_and_integers_with_another_zero_point(zero: int) -> None:
    w = Operand(I8, (64, 48), 1, "0")
    w.zero = np.full(48, zero, "i1")
    x = RNG.standard_normal((2, 64)).astype("f4")
    g = Graph("g")
    g.output("y", g.input("x", x.shape, F) @ w.put(g, "w", True))
    wanted = x.astype(np.float64) @ w.real
    np.testing.assert_allclose(tt.compile(g, threads=1)(x=x)["y"], wanted, rtol=1e-5, atol=2e-6 * np.abs(wanted).max())


def test_a_vector_is_quantised_before_its_product() -> None:
    """One row whose range its scale follows: fused, the product would quantise it again for each column."""
    w = codes(I8, 128, 256)
    g = Graph("g")
    x = g.input("x", (1, 128), F)
    scale = x.abs().max() / 127.0
    q = x.quantize(scale, to=I8).cast(DType.i16)
    sums = q.op("matmul", g.constant(w, "w").cast(DType.i16), acc_dtype=DType.i32, out_dtype=DType.i32)
    g.output("y", sums.cast(F) * scale)
    f = tt.compile(g, threads=1)
    *_, product = f.stages["region"].text.split("  region ")
    assert " = sum over " in product and "round(" not in product
    rows = RNG.standard_normal((1, 128)).astype("f4")
    step = np.abs(rows).max() / np.float32(127)
    np.testing.assert_allclose(f(x=rows)["y"], (np.rint(rows / step) @ w.astype("f8")) * step, rtol=1e-6)


def test_a_layer_that_stays_fp32_reads_dequantised_values_from_memory() -> None:
    """A 3x3 convolution left out of the quantisation, after a quantised one: its image is not computed at each place."""
    x, w, v = Operand(U8, (1, 8, 9, 9), None, "mid"), Operand(I8, (16, 8, 3, 3), 0, "0"), RNG.standard_normal((9, 16, 3, 3))
    kernel, scale, zero = v.astype("f4"), np.array(0.01, "f4"), np.array(100, "u1")
    g = Graph("g")
    y = x.put(g, "x", False).conv(w.put(g, "w", True), padding=1)
    step, point = g.constant(scale, "scale"), g.constant(zero, "zero")
    between = y.quantize(step, point, to=U8).dequantize(step, point, to=F)
    g.output("q", between)
    g.output("y", between.conv(g.constant(kernel, "kernel")))
    f = tt.compile(g, threads=1)
    found = f(x=x.codes)
    seen = found["q"].astype("f8")
    wanted = sum(
        np.einsum("oc,ncij->noij", v[:, :, a, b], seen[:, :, a : a + 7, b : b + 7]) for a in range(3) for b in range(3)
    )
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    g = Graph("alone")
    codes_ = g.input("x", (1, 16, 9, 9), F).quantize(g.constant(scale, "scale"), g.constant(zero, "zero"), to=U8)
    g.output("codes", codes_)
    values = codes_.dequantize(g.constant(scale, "scale2"), g.constant(zero, "zero2"), to=F)
    g.output("y", values.conv(g.constant(kernel, "kernel")))
    got = tt.compile(g, threads=1)(x=seen.astype("f4"))
    np.testing.assert_allclose(got["y"], wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
