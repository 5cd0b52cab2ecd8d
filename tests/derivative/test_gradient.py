"""`tt.gradient`: of a model by names, between tensors of a graph, twice, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tatami.cli import main as command
from tatami.core.diagnostic import TatamiError
from tatami.derivative.api import gradient
from tatami.frontend.graph import Graph
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.run import run
from tatami.harp.decompile import decompiled
from tatami.report.playback import play_back
from tatami.storage.dump import write_dump
from tests.derivative.differences import along, error, with_loss


def mlp() -> Graph:
    g = Graph("mlp")
    x = g.input("x", ("B", 8), tt.fp32)
    w = g.constant(np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), name="w", role="param")
    h = (x @ w).gelu().softmax(axis=1)
    g.output("p", h)
    g.output("loss", h.square().sum())
    return g


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def test_a_model_keeps_its_outputs_and_gets_one_for_each_variable() -> None:
    made = gradient(mlp(), of="loss", wrt=["x", "w"])
    assert [o.tensor for o in made.main.signature.outputs] == ["p", "loss", "x.gradient", "w.gradient"]
    shapes = {o.tensor: o.shape for o in made.main.signature.outputs}
    assert [str(s) for s in shapes["x.gradient"]] == ["B", "8"]
    x = draw(3, 8)
    given = run(made, {"x": x}, mode="float64")
    loss = gradient(mlp(), of="loss", wrt=["x"])
    assert along(lambda at: float(run(loss, at, mode="float64")["loss"]), {"x": given["x.gradient"]}, {"x": x}) < 1e-6


def test_kernels_serve_every_batch() -> None:
    made = gradient(mlp(), of="loss", wrt=["x", "w"])
    f = tt.compile(made, target="cpu")
    for batch in (1, 16, 37):
        x = draw(batch, 8).astype(np.float32)
        for name, value in run(made, {"x": x}, mode="float64").items():
            np.testing.assert_allclose(f(x=x)[name], value, rtol=1e-4, atol=1e-5)


def test_a_derivative_is_a_document_like_any_other(tmp_path: Path) -> None:
    made = gradient(mlp(), of="loss", wrt=["x", "w"])
    x = draw(16, 8).astype(np.float32)
    want = run(made, {"x": x})["w.gradient"]
    f = tt.compile(made, target="cpu")
    write_dump(tmp_path / "dump", f.compilation.values(), ["frontend"], f.compilation.target)
    again = tt.compile(tmp_path / "dump" / "0_frontend.json", target="cpu")
    np.testing.assert_allclose(again(x=x)["w.gradient"], want, rtol=1e-4, atol=1e-5)
    f.save(tmp_path / "step.tatami")
    np.testing.assert_allclose(tt.load(tmp_path / "step.tatami")(x=x)["w.gradient"], want, rtol=1e-4, atol=1e-5)
    found = decompiled(made)
    parsed = tt.parse(found.text, found.constants)
    np.testing.assert_allclose(list(run(parsed, {"x": x}).values())[3], want, rtol=1e-5, atol=1e-6)
    played = play_back(f.compilation.values(), {"x": x}, {"B": 16}, f(x=x))
    assert played.first_divergence is None and len(played.results) >= 4


SECOND: dict[str, Callable[[Tensor], Tensor]] = {
    "products and tanh": lambda x: (x @ x.transpose()).tanh(),
    "softmax": lambda x: x.softmax(1),
    "layer_norm": lambda x: x.layer_norm(axis=1) * x,
    "convolution": lambda x: (
        x.reshape((1, 1, 4, 4)).conv(x.reshape((1, 1, 4, 4))[:, :, :3, :3], padding=[(1, 1), (1, 1)]).sigmoid()
    ),
    "maximum and running product": lambda x: x.cumprod(1).max(0) * x.sum(0),
    "taken rows": lambda x: x.one("take", x.graph.constant(np.array([0, 2, 2]))).square() * x[:3].exp(),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_are_derivatives_of_first_ones(name: str) -> None:
    g = Graph("second")
    x = g.input("x", (4, 4), tt.fp32)
    g.output("y", SECOND[name](x))
    first = gradient(with_loss(g.module()), of="loss_", wrt=["x"])
    assert error(with_loss(first, "second_"), {"x": draw(4, 4)}, {}, of="second_") < 1e-5


def test_tensors_of_a_graph_have_derivatives_in_that_graph() -> None:
    g = Graph("step")
    x = g.input("x", (4, 4), tt.fp32)
    w = g.input("w", (4, 4), tt.fp32)
    loss = (x @ w).square().sum()
    (dw,) = tt.gradient(g, loss, [w])
    g.output("next", w - dw * 0.5)
    x_, w_ = draw(4, 4), np.eye(4)
    np.testing.assert_allclose(run(g.module(), {"x": x_, "w": w_}, mode="float64")["next"], w_ - x_.T @ x_ @ w_, rtol=1e-12)


def test_a_fault_of_tensors_names_the_line_of_the_caller() -> None:
    g, other = Graph("g"), Graph("other")
    y = g.input("x", (4,), tt.fp32).exp()
    with pytest.raises(TatamiError) as info:
        tt.gradient(g, y, [other.input("z", (4,), tt.fp32)])
    (found,) = info.value.diagnostics
    assert found.at.startswith("test_gradient.py:") and found.why == "'z' belongs to graph 'other'"


def test_what_a_derivative_does_not_need_is_left_out() -> None:
    g = Graph("lean")
    x = g.input("x", (4,), tt.fp32)
    w = g.input("w", (4,), tt.fp32)
    (dw,) = tt.gradient(g, (x.exp() * w).sum(), [w])
    g.output("dw", dw)
    assert sum(n.op == "exp" for n in g.module().main.graph) == 1 and len(g.module().main.graph) <= 6


def test_equal_initialisers_of_a_model_have_derivatives_of_their_own(tmp_path: Path) -> None:
    eye = np.eye(4, dtype=np.float32)
    nodes = [helper.make_node("MatMul", ["x", "a.weight"], ["h"]), helper.make_node("MatMul", ["h", "b.weight"], ["y"])]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in ("x", "y")]
    weights = [numpy_helper.from_array(eye, n) for n in ("a.weight", "b.weight")]
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)), path)
    made = gradient(path, wrt=["a.weight", "b.weight"])
    x = draw(2, 4)
    got = run(made, {"x": x}, mode="float64")
    want = np.tile(x.sum(0)[:, None], 4)
    np.testing.assert_allclose(got["a.weight.gradient"], want, rtol=1e-12)
    np.testing.assert_allclose(got["b.weight.gradient"], want, rtol=1e-12)


def test_the_command_writes_a_text_or_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.harp").write_text("graph main(x: f32[4]) -> (y: f32[4]) { return x.exp() }\n")
    for output in ("out.harp", "out.json"):
        result = CliRunner().invoke(command, ["gradient", "m.harp", "--wrt", "x", "-o", output])
        assert result.exit_code == 0, result.output
        module = tt.open_model(output)["frontend"]
        got = list(run(module, {"x": np.ones(4)}, mode="float64").values())
        np.testing.assert_allclose(got[1], np.full(4, np.e))


def test_the_language_has_grad() -> None:
    module = tt.parse(
        """graph main(x: f32[4], w: f32[4]) -> (a: f32[4], b: f32[4], c: f32[4]) {
             loss = sum((x * w).tanh())
             (dx, dw) = grad(loss, [x, w])
             return dx, dw, grad(dw, [w]) }"""
    )
    x, w = draw(4), draw(4) + 1
    got = run(module, {"x": x, "w": w}, mode="float64")
    t = np.tanh(x * w)
    np.testing.assert_allclose(got["a"], (1 - t * t) * w)
    np.testing.assert_allclose(got["b"], (1 - t * t) * x)
    np.testing.assert_allclose(got["c"], -2 * t * (1 - t * t) * x * x)


def refused(of: object, wrt: object, make: Callable[[Graph, Tensor], Tensor] = lambda g, x: x.exp()) -> str:
    g = Graph("refused")
    x = g.input("x", (4,), tt.fp32)
    g.input("n", (4,), tt.i64)
    g.input("other", (4,), tt.fp32)
    g.output("y", make(g, x))
    with pytest.raises(TatamiError) as info:
        gradient(g, of=of, wrt=wrt)  # type: ignore[call-overload]
    (found,) = info.value.diagnostics
    return found.why


@pytest.mark.parametrize(
    ("of", "wrt", "words"),
    [
        ("z", ["x"], "'z' is not an output"),
        (3, ["x"], "3 is not an output"),
        ("y", ["z"], "'z' is neither an input nor a constant"),
        ("y", ["n"], "'n' is i64"),
        ("y", ["other"], "'y' does not depend on 'other' through floats"),
        ("y", ["x", "x"], "a name stands twice"),
        ("y", [], "wrt is []"),
        ("y", "x", "wrt is 'x'"),
        ("y", [3], "wrt is [3]"),
    ],
)
def test_names_that_do_not_fit_are_refused(of: object, wrt: object, words: str) -> None:
    assert words in refused(of, wrt)


def test_an_output_of_several_has_to_be_named() -> None:
    with pytest.raises(TatamiError) as info:
        gradient(mlp(), wrt=["x"])
    (found,) = info.value.diagnostics
    assert found.why == "the model has 2 outputs" and found.at == "of"


def test_the_operation_that_leaves_the_floats_is_named() -> None:
    assert "argsort (argsort) gives i64" in refused("y", ["x"], lambda g, x: x.argsort().cast(tt.fp32))


@pytest.mark.parametrize(
    ("words", "make"),
    [
        ("bitcast has no derivative", lambda g, x: x.bitcast(tt.fp32)),
        ("unique has no derivative", lambda g, x: x.op("unique", size="S")[0].sum()),
    ],
)
def test_an_operation_without_a_derivative_is_named(words: str, make: Callable[[Graph, Tensor], Tensor]) -> None:
    assert words in refused("y", ["x"], make)


def test_a_constant_that_another_graph_reads_itself_is_refused() -> None:
    g = Graph("main")
    f = g.subgraph("f")
    w = np.ones(4, np.float32)
    a = f.input("a", (4,), tt.fp32)
    f.output("b", a * f.constant(w, name="w"))
    x = g.input("x", (4,), tt.fp32)
    g.output("y", g.call(f, x))
    module = g.module()
    main = module.main
    port = module.programs["f"].signature.inputs[1]
    signature = msgspec.structs.replace(main.signature, inputs=(*main.signature.inputs, port))
    tensors = {**main.tensors, "w": module.programs["f"].tensors["w"]}
    module = replace(
        module, programs={**module.programs, "main": msgspec.structs.replace(main, signature=signature, tensors=tensors)}
    )
    with pytest.raises(TatamiError) as info:
        gradient(module, of="y", wrt=["w"])
    assert "graph 'f' reads the constant 'w' itself" in info.value.diagnostics[0].why
