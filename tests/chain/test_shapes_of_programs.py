"""The shapes that prove the interfaces, each from the graph API through every stage to running C."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.api import Compilation, build, prepare
from tatami.core.dtype import DType
from tatami.frontend.graph import Graph
from tatami.region.ir import Step
from tatami.report.playback import play_back

RNG = np.random.default_rng(0)


def check(g: Graph, inputs: dict[str, np.ndarray], sizes: dict[str, int] | None = None) -> tuple[Compilation, dict]:
    """Compile, run, compare with the float64 reference and every stage that computes."""
    compilation = prepare(g)
    function = build(compilation, 2, sizes)
    kept = {n: a.copy() for n, a in inputs.items()}
    results = function(inputs)
    result = play_back(compilation.values(), kept, sizes or {}, results)
    assert result.first_divergence is None, result.first_divergence
    assert [r.stage for r in result.results][-1] == "kernels"
    return compilation, results


def rows(compilation: Compilation, program: str = "main") -> list:
    return list(compilation.stages["region"].programs[program].body)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_softmax_is_one_region() -> None:
    g = Graph("g")
    g.output("y", g.input("x", ("R", "C"), DType.fp32).softmax(1))
    c, _ = check(g, {"x": f32(5, 37)})
    assert len(rows(c)) == 1


@pytest.mark.parametrize("lengths", [(33, 33), (1, 1), (4, 19)])
def test_causal_attention_is_one_region(lengths: tuple[int, int]) -> None:
    g = Graph("g")
    q = g.input("q", ("B", "H", "S", 16), DType.fp32)
    k, v = (g.input(n, ("B", "H", "T", 16), DType.fp32) for n in "kv")
    g.output("o", q.attention(k, v, causal=lengths[0] == lengths[1]))
    s, t = lengths
    c, _ = check(g, {"q": f32(2, 3, s, 16), "k": f32(2, 3, t, 16), "v": f32(2, 3, t, 16)})
    assert len(rows(c)) == 1


def test_a_gather_is_read_in_its_consumer() -> None:
    g = Graph("g")
    table, index = g.input("w", (11, 8), DType.fp32), g.input("i", ("B", "S"), DType.i64)
    g.output("y", table.take(index).exp())
    i = RNG.integers(-11, 11, (2, 5))
    c, r = check(g, {"w": (w := f32(11, 8)), "i": i})
    assert len(rows(c)) == 1
    assert np.allclose(r["y"], np.exp(w[i]), rtol=1e-5)


def test_a_scan_with_elementwise_around_it() -> None:
    g = Graph("g")
    g.output("y", (g.input("x", ("N", "M"), DType.fp32) * 0.5).cumsum(1).relu())
    check(g, {"x": f32(3, 101)})


def test_a_sort_is_an_opaque_region() -> None:
    g = Graph("g")
    values, positions = (g.input("x", ("N", 13), DType.fp32) * 2.0).op("sort", axis=1)
    g.output("v", values + 1.0)
    g.output("p", positions)
    c, _ = check(g, {"x": f32(4, 13)})
    assert any(getattr(r, "opaque", None) for r in rows(c))


def test_a_host_step_decides_a_size() -> None:
    g = Graph("g")
    x = g.input("x", ("N", 4), DType.fp32)
    g.output("y", x.op("nonzero", size="Z").cast(DType.fp32) * 2.0)
    x_value = np.maximum(f32(6, 4), 0)
    c, r = check(g, {"x": x_value})
    assert any(isinstance(s, Step) and s.kind == "host" for s in rows(c))
    assert r["y"].shape == (2, np.count_nonzero(x_value))


def test_a_step_runs_when_only_the_size_it_decides_is_wanted() -> None:
    g = Graph("g")
    x = g.input("x", ("N", 4), DType.fp32)
    x.op("nonzero", size="Z")
    g.output("count", g.size_of("Z"))
    x_value = np.maximum(f32(6, 4), 0)
    _, r = check(g, {"x": x_value})
    assert r["count"] == np.count_nonzero(x_value)


def test_a_number_of_the_data_is_a_size() -> None:
    """A size of a reshape, checked against the number of elements; of a range; of a sum's axis."""
    g = Graph("g")
    x, rows = g.input("x", ("N", 4), DType.fp32), g.input("rows", (), DType.i64)
    size = rows.as_size()
    shaped = (x * 2.0).reshape((size, 2))
    g.output("y", shaped.sum(1))
    g.output("z", g.arange(size))
    for n in (3, 0):
        _, r = check(g, {"x": f32(n, 4), "rows": np.array(2 * n)})
        assert r["y"].shape == (2 * n,) == r["z"].shape


def test_an_if_runs_one_branch() -> None:
    g = Graph("g")
    then, otherwise = g.subgraph("then"), g.subgraph("otherwise")
    a = then.input("a", ("N",), DType.fp32)
    then.output("r", a * 2.0)
    b = otherwise.input("a", ("N",), DType.fp32)
    otherwise.output("r", -b)
    p, x = g.input("p", (), DType.bool), g.input("x", ("N",), DType.fp32)
    g.output("y", g.cond(p, then, otherwise, x) + 1.0)
    for flag in (True, False):
        check(g, {"p": np.array(flag), "x": f32(9)})


def test_a_loop_carries_state() -> None:
    g = Graph("g")
    body = g.subgraph("body")
    body.input("i", (), DType.i64)
    c = body.input("c", (), DType.bool)
    s = body.input("s", ("N",), DType.fp32)
    w = body.input("w", ("N",), DType.fp32)
    body.output("c_out", c)
    body.output("s_out", s * 0.5 + w)
    x, w0 = g.input("x", ("N",), DType.fp32), g.input("w", ("N",), DType.fp32)
    g.output("y", g.loop(body, [x], [w0], trip=5) + 1.0)
    check(g, {"x": f32(7), "w": f32(7)})


def test_a_subgraph_called_twice_is_compiled_once() -> None:
    g = Graph("g")
    f = g.subgraph("f")
    a = f.input("a", ("P", "Q"), DType.fp32)
    f.output("r", a.softmax(1))
    x, z = g.input("x", ("N", 5), DType.fp32), g.input("z", ("M", 5), DType.fp32)
    g.output("y", g.call(f, x) * 2.0)
    g.output("u", g.call(f, z))
    c, _ = check(g, {"x": f32(4, 5), "z": f32(9, 5)})
    assert [p for p in c.stages["region"].programs if p not in ("main", "setup")] == ["f"]


def test_a_mutable_input_is_updated_in_place() -> None:
    g = Graph("g")
    cache = g.input("cache", ("N", 4), DType.fp32, mutability="mutable")
    x = g.input("x", ("N", 4), DType.fp32)
    g.update(cache, cache + x)
    g.output("y", cache * 2.0)
    function = build(prepare(g), 2)
    before, step = f32(3, 4), f32(3, 4)
    state = before.copy()
    y = function(cache=state, x=step)["y"]
    assert np.allclose(y, before * 2)
    assert np.allclose(state, before + step)


def test_constants_are_folded_by_setup() -> None:
    g = Graph("g")
    x, w = g.input("x", ("B", 16), DType.fp32), g.constant(f32(16, 8))
    scale = g.constant(f32(8))
    g.output("y", x @ (w * scale.expand(16, 8)))
    c, _ = check(g, {"x": f32(5, 16)})
    assert "setup" in c.stages["region"].programs


def test_a_reduce_read_twice_is_computed_once() -> None:
    g = Graph("g")
    a, b = g.input("a", ("M", "K"), DType.fp32), g.input("b", ("K", "N"), DType.fp32)
    y = a @ b
    g.output("r", y.relu())
    g.output("s", y.sigmoid())
    c, _ = check(g, {"a": f32(9, 7), "b": f32(7, 11)})
    kernels = [k for p in c.stages["loop"].programs.values() for k in p.kernels]
    assert len(rows(c)) == 1 and len(kernels) == 1


@pytest.mark.parametrize("axes", [(2,), (1,), (0,), (0, 2), (0, 1, 2)])
def test_reductions_over_any_axes(axes: tuple[int, ...]) -> None:
    g = Graph("g")
    x = g.input("x", ("A", "B", "C"), DType.fp32)
    g.output("s", x.sum(axes))
    g.output("m", x.max(axes))
    check(g, {"x": f32(5, 7, 33)})


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (130, 10)])
def test_layer_norm_of_any_size(shape: tuple[int, int]) -> None:
    g = Graph("g")
    x = g.input("x", ("N", "C"), DType.fp32)
    scale, bias = g.input("scale", ("C",), DType.fp32), g.input("bias", ("C",), DType.fp32)
    g.output("y", x.layer_norm(scale, bias))
    if shape[1] == 0:
        pytest.skip("the mean of nothing")
    check(g, {"x": f32(*shape), "scale": f32(shape[1]), "bias": f32(shape[1])})


def test_two_blurs_agree_fused_or_not() -> None:
    g = Graph("g")
    x = g.input("x", ("H", "W"), DType.fp32)
    for _ in range(2):
        x = x.pad([(1, 1), (1, 1)]).view(("H", "W", 3, 3), map=("i0 + i2", "i1 + i3")).sum((2, 3)) * (1 / 9)
    g.output("y", x)
    check(g, {"x": f32(37, 41)})
