"""Scales of channels inside filters: what is folded, what stays, the meaning of both, and subnormal numbers among filters."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping

import numpy as np
import pytest

import tatami as tt
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.numbers.numerics import Array
from tatami.core.target import PRESETS
from tatami.core.tensor import Tensor as Payload
from tatami.core.tensor import without_subnormals
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.ir import Graph as Ir
from tatami.frontend.rewrites.folded_scales import fold_scales
from tatami.frontend.run import run
from tatami.tiny.lower import lower
from tatami.tiny.normalize import normalize
from tatami.tiny.run import run as run_tiny

CPU, GPU = (PRESETS[name] for name in ("cpu:avx512", "sm80"))
C, F = 6, 8
"""Channels of the image, and filters."""
LEAST = float(np.finfo(np.float32).tiny)


class Model:
    """A graph under construction, with constants drawn in order."""

    def __init__(self, dtype: DType = tt.fp32) -> None:
        self.graph, self.dtype, self.rng = Graph("g"), dtype, np.random.default_rng(7)

    def constant(self, *shape: int, positive: bool = False) -> Tensor:
        values = self.rng.uniform(0.5, 2, shape) if positive else self.rng.standard_normal(shape)
        return self.graph.constant(values.astype("f2" if self.dtype == tt.fp16 else "f4"))

    def image(self, *shape: int) -> Tensor:
        return self.graph.input("x", shape or (2, C, 9, 10), self.dtype)

    def normalised(self, y: Tensor, channels: int = F) -> Tensor:
        s = [self.constant(channels, positive=True) for _ in range(4)]
        return y.batch_norm(*s, eps=1e-3)

    def beside(self, y: Tensor, *shape: int) -> Tensor:
        """A constant spread over y."""
        return self.constant(*shape).expand(y.shape)


def normalised(m: Model) -> Tensor:
    return m.normalised(m.image().conv(m.constant(F, C, 3, 3), padding=1))


def biased(m: Model) -> Tensor:
    return m.normalised(m.image().conv(m.constant(F, C, 3, 3), m.constant(F), stride=2)).relu()


def shifted_before(m: Model) -> Tensor:
    """A transposed convolution in the form of PaddlePaddle: its bias is an addition of its own."""
    y = m.image().conv_transpose(m.constant(C, F, 2, 2), stride=2)
    return m.normalised(y + m.beside(y, 1, F, 1, 1))


def by_steps(m: Model) -> Tensor:
    """A normalisation as decomposed by PyTorch's exporter."""
    y = m.image().conv(m.constant(F, C, 1, 1))
    y = y - m.constant(F).expand(y.shape, dims=(1,))
    return y * m.beside(y, F, 1, 1) + m.beside(y, 1, F, 1, 1)


def of_groups(m: Model) -> Tensor:
    return m.normalised(m.image().conv(m.constant(2 * C, 1, 3, 3), groups=C), 2 * C)


def by_a_number(m: Model) -> Tensor:
    y = m.image().conv(m.constant(F, C, 3, 3), m.constant(F))
    return (y + m.beside(y, 1)) * 0.25


def of_one_channel(m: Model) -> Tensor:
    return m.normalised(m.image().conv(m.constant(1, C, 3, 3)), 1)


def of_sound(m: Model) -> Tensor:
    return m.normalised(m.image(3, C, 40).conv(m.constant(F, C, 5)))


def without_batch(m: Model) -> Tensor:
    y = m.image(C, 9, 10).conv(m.constant(F, C, 3, 3))
    return y * m.beside(y, F, 1, 1)


def of_computed_filters(m: Model) -> Tensor:
    return m.normalised(m.image().conv(m.constant(F, C, 3, 3).tanh() * 2.0))


def shifted_only(m: Model) -> Tensor:
    y = m.image().conv(m.constant(F, C, 3, 3))
    return y + m.beside(y, F, 1, 1)


def read_twice(m: Model) -> Tensor:
    y = m.image().conv(m.constant(F, C, 3, 3))
    return m.normalised(y) + y


def seen_outside(m: Model) -> Tensor:
    y = m.image().conv(m.constant(F, C, 3, 3))
    m.graph.output("between", y)
    return m.normalised(y)


def with_shared_filters(m: Model) -> Tensor:
    w = m.constant(C, C, 3, 3)
    return m.normalised(m.normalised(m.image().conv(w), C).conv(w), C)


def by_pixels(m: Model) -> Tensor:
    y = m.image().conv(m.constant(F, C, 3, 3))
    return y * m.beside(y, 1, F, 7, 8)


def by_the_image(m: Model) -> Tensor:
    x = m.image()
    y = x.conv(m.constant(F, C, 3, 3), padding=1)
    return y * x.sum((1,), keepdims=True).expand(y.shape)


def with_filters_of_a_call(m: Model) -> Tensor:
    return m.normalised(m.image().conv(m.graph.input("w", (F, C, 3, 3), tt.fp32)))


def of_half_floats(m: Model) -> Tensor:
    return m.normalised(m.image().conv(m.constant(F, C, 3, 3)))


FOLDED = [normalised, biased, shifted_before, by_steps, of_groups, by_a_number, of_one_channel, of_sound, without_batch]
FOLDED += [of_computed_filters]
KEPT = [shifted_only, read_twice, seen_outside, with_shared_filters, by_pixels, by_the_image, with_filters_of_a_call]
KEPT += [of_half_floats]
Make = Callable[[Model], Tensor]


def module_of(make: Make, dtype: DType = tt.fp32) -> Module[Ir]:
    m = Model(dtype)
    m.graph.output("y", make(m))
    return m.graph.module()


def inputs_of(module: Module[Ir]) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    ports = [p for p in module.main.signature.inputs if p.storage == "argument"]
    shapes = {p.tensor: [s.as_int() or 0 for s in p.shape] for p in ports}
    kinds = {p.tensor: "f2" if p.dtype == tt.fp16 else "f4" for p in ports}
    return {n: rng.standard_normal(shape).astype(kinds[n]) for n, shape in shapes.items()}


def check_same(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    for name, w in wanted.items():
        np.testing.assert_allclose(found[name], w, rtol=1e-5, atol=1e-5 * np.sqrt(np.mean(np.square(w))))


@pytest.mark.parametrize("make", FOLDED, ids=lambda m: m.__name__)
@pytest.mark.runs_on("cpu:avx512")
def test_scales_become_a_part_of_filters(make: Make) -> None:
    """Nothing but the convolution and what is not a scale computes with the image, and results are the model's."""
    module = module_of(make)
    folded = fold_scales(module, CPU)
    inputs = inputs_of(module)
    wanted = run(module, inputs, mode="float64")
    check_same(run(folded, inputs, mode="float64"), wanted)
    main = normalize(lower(folded)).main
    assert not {n.op.fn for n in main.nodes if hasattr(n.op, "fn")} - {"mul", "add", "relu"}
    products = [n for n in main.nodes if getattr(n.op, "fn", "") == "mul"]
    assert len(products) == 1, "the product of the convolution alone"
    check_same(tt.compile(folded, target="cpu:avx512", threads=1)(**inputs), wanted)


@pytest.mark.parametrize("make", KEPT, ids=lambda m: m.__name__)
def test_other_scales_stay(make: Make) -> None:
    module = module_of(make, tt.fp16 if make is of_half_floats else tt.fp32)
    assert fold_scales(module, CPU).main.graph == module.main.graph


def test_a_gpu_keeps_the_model() -> None:
    module = module_of(normalised)
    assert fold_scales(module, GPU) is module


def test_kernels_name_the_nodes_that_were_folded() -> None:
    module = module_of(biased)
    names = {op: next(n.name for n in module.main.graph if n.op == op) for op in ("conv", "batch_norm", "relu")}
    origins = {"main": {n: (f"the model's {n}",) for n in names.values()}}
    folded = fold_scales(Module(module.programs, module.constants, origins), CPU)
    made = next(n for n in folded.main.graph if n.op == "conv")
    assert folded.origins["main"][made.name] == tuple(f"the model's {names[op]}" for op in ("conv", "batch_norm"))


# -- subnormal numbers ---------------------------------------------------------------------------


def faint(shape: tuple[int, ...]) -> Array:
    """Filters of which every third is subnormal, as weights are that decayed for long."""
    w = np.random.default_rng(4).standard_normal(shape).astype("f4")
    w[::3] *= np.float32(1e-40)
    return w


def normalised_faint(x: Tensor, w: Tensor) -> Tensor:
    """A third of the scales is as faint as the filters."""
    vectors = [faint((F,)), np.ones(F, "f4"), np.zeros(F, "f4"), np.ones(F, "f4")]
    return x.conv(w).batch_norm(*(x.graph.constant(v) for v in vectors))


PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Callable[[Tensor, Tensor], Tensor]]] = {
    "windows": ((1, C, 9, 9), (F, C, 3, 3), lambda x, w: x.conv(w)),
    "of one channel": ((1, F, 9, 9), (F, 1, 5, 5), lambda x, w: x.conv(w, groups=F)),
    "pixels": ((1, C, 9, 9), (F, C, 1, 1), lambda x, w: x.conv(w)),
    "transposed": ((1, C, 9, 9), (C, F, 2, 2), lambda x, w: x.conv_transpose(w, stride=2)),
    "matrices": ((7, C), (C, F), lambda x, w: x @ w),
    "linear": ((7, C), (F, C), lambda x, w: x.linear(w)),
    "normalised": ((1, C, 9, 9), (F, C, 3, 3), normalised_faint),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.runs_on("cpu:avx512")
def test_filters_are_normal_numbers(name: str) -> None:
    """Factors of kernels have no subnormal number, and results stay within the tolerance."""
    shape, filters, product = PRODUCTS[name]
    g = Graph("g")
    x, w = g.input("x", shape, tt.fp32), g.constant(faint(filters), "w")
    g.output("y", product(x, w))
    module = g.module()
    assert np.any(subnormal(faint(filters)))
    f = tt.compile(module, target="cpu:avx512", threads=1)
    inputs = {"x": np.random.default_rng(5).standard_normal(shape).astype("f4")}
    wanted, y = run(module, inputs, mode="float64")["y"], f(**inputs)["y"]
    assert np.abs(y - wanted).max() <= 1e-5 * np.sqrt(np.mean(np.square(wanted))) and np.isfinite(y).all()
    assert not any(subnormal(a).any() for a in kept(f))


def kept(f: tt.CompiledFunction) -> list[Array]:
    """Constants that main multiplies by: payloads that it reads, and results of setup in the numpy run of tiny."""
    tiny = f.compilation.stages["tiny"]
    setup = tiny.programs.get("setup")
    made = [] if setup is None else list(run_tiny(Module({"main": setup}, tiny.constants), {}).values())
    read = {p.tensor for p in tiny.main.signature.inputs}
    return [*made, *(t.array for n, t in tiny.constants.items() if n in read)]


def subnormal(a: Array) -> Array:
    return (a != 0) & (np.abs(a) < LEAST)


def test_payloads_without_subnormal_numbers_stay() -> None:
    module = module_of(shifted_only)
    assert fold_scales(module, CPU).constants == module.constants


def test_a_look_for_subnormal_numbers_takes_little_memory() -> None:
    """Weights may be as large as half of the memory."""
    payload = Payload(np.ones(1 << 20, np.float32))
    tracemalloc.start()
    assert without_subnormals(payload) is payload
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < payload.array.nbytes // 4
