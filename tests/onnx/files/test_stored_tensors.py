"""Tensors that a file holds: sparse, outside the file, and such that a caller may replace."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tatami as tt
import tatami.onnx.backend as onnx_backend
from tatami.onnx.load import load_model
from tests.onnx.small_models import (
    FLOAT,
    INT64,
    X,
    bare,
    branch,
    conditional,
    model,
    node,
    port,
    refused,
    run,
)

# -- tensors -----------------------------------------------------------------------------------------------


def sparse(name: str, places: list[Any]) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([5, 7], np.float32), name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(places)), [1, 3])


@pytest.mark.parametrize("places", [[0, 2], [[0, 0], [0, 2]]])
def test_sparse_tensors_are_read_wherever_they_stand(places: list[Any]) -> None:
    made = model([node("Add", ["x", "w"], ["y"])])
    made.graph.sparse_initializer.append(sparse("w", places))
    assert run(made)[0].tolist() == [[6, -2, 10]]
    made = model([node("Constant", [], ["w"], sparse_value=sparse("", places)), node("Add", ["x", "w"], ["y"])])
    assert run(made)[0].tolist() == [[6, -2, 10]]
    inside = branch(node("Add", ["x", "w"], ["a"]))
    inside.sparse_initializer.append(sparse("w", places))
    assert run(conditional(inside, branch(node("Abs", ["x"], ["a"]))), x=X, c=np.array(True))[0].tolist() == [[6, -2, 10]]


def test_a_place_outside_a_sparse_tensor_is_refused() -> None:
    for places in ([0, 3], [-1, 0], [[0, 0], [1, 0]], [0]):
        made = model([node("Add", ["x", "w"], ["y"])])
        made.graph.sparse_initializer.append(sparse("w", [0, 2]))
        made.graph.sparse_initializer[0].indices.CopyFrom(numpy_helper.from_array(np.array(places)))
        assert (refused(made).kind, refused(made).at) == ("InvalidDocument", "w")


def test_external_data_is_read_wherever_it_stands(tmp_path: Any) -> None:
    """External data of an initialiser, a Constant node, a branch's initialiser and a branch's Constant, with the same guards everywhere."""
    data = np.arange(12, dtype=np.float32)
    (tmp_path / "m.data").write_bytes(data.tobytes())

    def outside(name: str, part: int, location: str = "m.data") -> onnx.TensorProto:
        tensor = onnx.TensorProto(name=name, data_type=FLOAT, dims=[1, 3], data_location=onnx.TensorProto.EXTERNAL)
        for key, value in {"location": location, "offset": str(12 * part), "length": "12"}.items():
            tensor.external_data.add(key=key, value=value)
        return tensor

    def made(location: str) -> onnx.ModelProto:
        then = branch(
            node("Constant", [], ["d"], value=outside("", 3, location)),
            node("Add", ["w", "d"], ["e"]),
            node("Add", ["e", "s"], ["a"]),
        )
        then.initializer.append(outside("w", 2))
        whole = conditional(
            then, branch(node("Identity", ["s"], ["a"])), node("Add", ["x", "v"], ["r"]), node("Add", ["r", "k"], ["s"])
        )
        whole.graph.node.append(node("Constant", [], ["k"], value=outside("", 1)))
        whole.graph.initializer.append(outside("v", 0))
        return whole

    path = tmp_path / "m.onnx"
    path.write_bytes(made("m.data").SerializeToString())
    f = tt.compile(path, target="reference")
    parts = data.reshape(4, 1, 3)
    assert f(x=X, c=np.array(True))["y"].tolist() == (X + parts.sum(0)).tolist()
    assert f(x=X, c=np.array(False))["y"].tolist() == (X + parts[:2].sum(0)).tolist()
    path.write_bytes(made("../m.data").SerializeToString())  # external data of the Constant in the branch
    with pytest.raises(tt.TatamiError, match="outside the model's folder"):
        tt.compile(path, target="reference")
    with pytest.raises(tt.TatamiError, match="no folder"):
        tt.compile(made("m.data"), target="reference")


# -- initialisers that are inputs too ------------------------------------------------------------------------


def with_default(ir: int = 8, shape: Any = (1, 3)) -> onnx.ModelProto:
    made = model(
        [node("Mul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["y"])], [port("x"), port("w", FLOAT, shape), port("b")], ir=ir
    )
    for name, values in (("w", [[2, 2, 2]]), ("b", [[1, 0, 1]])):
        made.graph.initializer.append(numpy_helper.from_array(np.array(values, np.float32), name))
    return made


@pytest.mark.parametrize("batch", [1, "N"])
def test_an_initialiser_that_is_an_input_may_be_passed(batch: Any) -> None:
    made = with_default()
    made.graph.input[0].CopyFrom(port("x", FLOAT, (batch, 3)))
    made.graph.output[0].CopyFrom(bare("y"))
    f = tt.compile(made, target="reference")
    w, b = np.array([[1, 2, 3]], np.float32), np.array([[5, 5, 5]], np.float32)
    assert f(x=X)["y"].tolist() == (X * 2 + [1, 0, 1]).tolist()
    assert f(x=X, w=w)["y"].tolist() == (X * w + [1, 0, 1]).tolist()
    assert f({"x": X, "b": b})["y"].tolist() == (X * 2 + b).tolist()
    assert f(X, b=b, w=w)["y"].tolist() == (X * w + b).tolist()
    assert f(x=X)["y"].tolist() == (X * 2 + [1, 0, 1]).tolist()
    with pytest.raises(tt.TatamiError, match="E1801 InputMismatch at v"):
        f(x=X, w=w, v=w)
    (y,) = onnx_backend.prepare(made, threads=1).run({"x": X, "w": w})
    assert y.tolist() == (X * w + [1, 0, 1]).tolist()


def test_before_ir_version_4_initialisers_are_constants() -> None:
    f = tt.compile(with_default(ir=3), target="reference")
    assert f(x=X)["y"].tolist() == (X * 2 + [1, 0, 1]).tolist()
    with pytest.raises(tt.TatamiError, match="InputMismatch"):
        f(x=X, w=X)


def test_an_initialiser_that_contradicts_its_input_is_refused() -> None:
    found = refused(with_default(shape=(2, 3)))
    assert (found.kind, found.at) == ("AxisSizeMismatch", "w")
    made = with_default()
    made.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros((1, 3)), "b"))
    assert (refused(made).kind, refused(made).at) == ("DTypeMismatch", "b")


def test_an_overridden_shape_decides_the_program() -> None:
    """The shape of a Reshape, given by the caller: sizes that data decide."""
    made = model([node("Reshape", ["x", "s"], ["y"])], [port("x", FLOAT, (2, 6)), port("s", INT64, (2,))], [bare("y")])
    made.graph.initializer.append(numpy_helper.from_array(np.array([3, 4]), "s"))
    f = tt.compile(made, target="reference")
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert f(x=x)["y"].shape == (3, 4)
    assert f(x=x, s=np.array([6, 2]))["y"].shape == (6, 2)
    assert f(x=x, s=np.array([-1, 1]))["y"].shape == (12, 1)


# -- the cache of imports ------------------------------------------------------------------------------------


def test_an_import_from_the_cache_warns_and_can_be_overridden_too(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    (tmp_path / "cache").mkdir(mode=0o700)
    made = with_default()
    made.graph.node[0].attribute.append(helper.make_attribute("colour", "red"))
    onnx.save(made, tmp_path / "m.onnx")
    imports: list[Any] = []

    def counted(*a: Any, **k: Any) -> Any:
        imports.append(a)
        return load_model(*a, **k)

    monkeypatch.setattr("tatami.onnx.load.load_model", counted)
    for _ in range(2):
        f = tt.compile(tmp_path / "m.onnx", threads=1)
        assert [d.kind for d in f.compilation.warnings] == ["ModelRepaired"]
        assert f(x=X, w=X)["y"].tolist() == (X * X + [1, 0, 1]).tolist()
    assert len(imports) == 1


def test_an_axis_without_a_name_is_not_one_that_is_called_as_we_call_it() -> None:
    made = model([node("Neg", ["x"], ["y"])], [port("x", FLOAT, ("", "x_0"))], [bare("y")])
    f = tt.compile(made, target="reference", max_specialisations=0)
    assert f(x=np.ones((2, 5), np.float32))["y"].shape == (2, 5)
