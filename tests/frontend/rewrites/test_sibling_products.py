"""Products of one operand with several constant matrices as one product: which are joined, and the numbers."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tatami as tt
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor

DEPTH, BLOCK = 64, 32
COLUMNS = (40, 24, 8)
RNG = np.random.default_rng(3)


def blocks(kind: str, *, zeros: bool = False) -> Callable[[Graph, int, int], Tensor]:
    """Codes [N, K] with a scale, and perhaps a zero point, per block."""

    def made(g: Graph, n: int, k: int) -> Tensor:
        limits = ml_dtypes.iinfo(kind)

        def numbers(columns: int) -> np.ndarray:
            drawn = RNG.integers(int(limits.min), int(limits.max) + 1, (n, columns))
            return drawn.astype(np.int16).astype(getattr(ml_dtypes, kind, kind))

        codes = g.constant(numbers(DEPTH), f"codes{k}")
        scale = g.constant(RNG.uniform(0.0005, 0.0015, (n, DEPTH // BLOCK)).astype(np.float32), f"scale{k}")
        zero = g.constant(numbers(DEPTH // BLOCK), f"zero{k}") if zeros else None
        return codes.dequantize(scale, zero, axis=1, block=BLOCK).transpose()

    return made


def per_column(g: Graph, n: int, k: int) -> Tensor:
    codes = g.constant(RNG.integers(-127, 128, (DEPTH, n)).astype(np.int8), f"codes{k}")
    return codes.dequantize(g.constant(RNG.uniform(0.0005, 0.0015, n).astype(np.float32), f"scale{k}"), axis=1)


def per_tensor(g: Graph, n: int, k: int) -> Tensor:
    codes = g.constant(RNG.integers(-127, 128, (DEPTH, n)).astype(np.int8), f"codes{k}")
    return codes.dequantize(g.constant(np.array(0.5, np.float32), f"scale{k}"))


def floats(kind: type | np.dtype) -> Callable[[Graph, int, int], Tensor]:
    def made(g: Graph, n: int, k: int) -> Tensor:
        w = g.constant(RNG.standard_normal((DEPTH, n)).astype(kind), f"w{k}")
        return w if kind is np.float32 else w.cast(tt.fp32)

    return made


FORMS: dict[str, Callable[[Graph, int, int], Tensor]] = {
    "fp32": floats(np.float32), "fp16": floats(np.float16), "bf16": floats(np.dtype(ml_dtypes.bfloat16)),
    "int8 per column": per_column, "int8 blocks": blocks("int8"), "uint8 blocks with zeros": blocks("uint8", zeros=True),
    "int4 blocks": blocks("int4"), "uint4 blocks with zeros": blocks("uint4", zeros=True),
}  # fmt: skip


def siblings(form: Callable[[Graph, int, int], Tensor], rows: str | int = "B") -> Graph:
    g = Graph("siblings")
    x = g.input("x", (rows, 2, DEPTH), tt.fp32)
    for k, n in enumerate(COLUMNS):
        g.output(f"y{k}", (x @ form(g, n, k)).tanh())
    return g


def products(f: tt.Function, stage: str = "siblings") -> int:
    return sum(n.op in ("matmul", "linear") for n in f.compilation.stages[stage].main.graph)


@pytest.mark.parametrize("form", FORMS)
def test_siblings_of_each_form_are_one_product(form: str) -> None:
    g = siblings(FORMS[form])
    f, reference = (tt.compile(g, target=t) for t in (None, "reference"))
    assert products(f) == 1
    assert sum(bool(r.reduce_axes) for r in f.compilation.stages["region"].main.body) == 1
    for rows in (1, 9):
        x = RNG.standard_normal((rows, 2, DEPTH)).astype(np.float32)
        found, want = f(x=x), reference(x=x)
        for k, n in enumerate(COLUMNS):
            assert found[f"y{k}"].shape == (rows, 2, n)
            np.testing.assert_allclose(found[f"y{k}"], want[f"y{k}"], rtol=1e-4, atol=1e-5)


def test_only_products_of_few_or_open_rows_are_joined() -> None:
    for rows, count in ((8, 1), (9, 3), ("B", 1)):
        assert products(tt.compile(siblings(floats(np.float32), rows))) == count


@pytest.mark.parametrize(
    "why", ["a scale for the matrix", "another operand", "a constant that something else reads", "other forms"]
)
def test_other_products_stay_apart(why: str) -> None:
    g = Graph("apart")
    x, z = (g.input(n, ("B", DEPTH), tt.fp32) for n in "xz")
    form = per_tensor if why == "a scale for the matrix" else floats(np.float32)
    a, b = form(g, 16, 0), (blocks("int8") if why == "other forms" else form)(g, 16, 1)
    g.output("a", x @ a)
    g.output("b", (z if why == "another operand" else x) @ b)
    if why == "a constant that something else reads":
        g.output("c", a.sum(0))
    assert products(tt.compile(g)) == 2


def test_operands_that_are_computed_alike_are_one_operand() -> None:
    """An importer writes the rounding of an operand for each product."""
    g = Graph("alike")
    x = g.input("x", ("B", DEPTH), tt.fp32)
    for k in range(2):
        g.output(f"y{k}", (x.abs() * 2) @ floats(np.float32)(g, 16, k))
    g.output("y2", (x.abs() * 3) @ floats(np.float32)(g, 16, 2))
    f = tt.compile(g)
    assert products(f) == 2
    assert "sibling products" in str(f.explain())


def test_biases_of_linear_are_joined() -> None:
    g = Graph("biases")
    x = g.input("x", ("B", DEPTH), tt.fp32)
    for k, n in enumerate(COLUMNS):
        w, bias = (
            g.constant(RNG.standard_normal(s).astype(np.float32), f"{name}{k}") for s, name in (((n, DEPTH), "w"), ((n,), "b"))
        )
        g.output(f"y{k}", x.linear(w, bias))
    f = tt.compile(g)
    assert products(f) == 1
    a = RNG.standard_normal((3, DEPTH)).astype(np.float32)
    found, want = f(x=a), tt.compile(g, target="reference")(x=a)
    for k in range(len(COLUMNS)):
        np.testing.assert_allclose(found[f"y{k}"], want[f"y{k}"], rtol=1e-4, atol=1e-4)
