"""The ONNX Backend API: prepared once, run with arrays, sequences and optional values; specialised where values decide."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tatami.onnx.backend as backend
from tatami.core.diagnostic import TatamiError
from tatami.specialised.specialisation import MAX_SPECIALISATIONS

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[str]) -> onnx.ModelProto:
    ports = [onnx.ValueInfoProto(name=n) for n in outputs]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, ports), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )


def tensor(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def test_a_model_runs_through_the_api_of_onnx() -> None:
    made = model([helper.make_node("Add", ["a", "b"], ["y"])], [tensor("a", FLOAT, "N"), tensor("b", FLOAT, "N")], ["y"])
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0") and not backend.supports_device("CUDA")
    assert issubclass(backend.Backend, onnx.backend.base.Backend)
    prepared = backend.prepare(made, "CPU", threads=1)
    for n in (3, 5):
        (y,) = prepared.run([np.ones(n, np.float32), np.arange(n, dtype=np.float32)])
        assert np.array_equal(y, np.arange(n) + 1)
    assert prepared.path == "kernels only" and len(prepared.programs) == 1
    (y,) = backend.run_model(made, {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}, threads=1)
    assert np.array_equal(y, [2, 2])


def test_a_node_runs_by_itself() -> None:
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"])
    values, places = backend.run_node(node, [np.array([3, 1, 2], np.float32), np.array([2])], threads=1)
    assert values.tolist() == [3, 2] and places.tolist() == [0, 2]


def test_a_program_is_compiled_once_for_each_structure() -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    prepared = backend.prepare(model([node], [tensor("x", FLOAT, 2, "N"), tensor("axes", INT64, 1)], ["y"]), threads=1)
    assert not prepared.programs
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axis in (0, 1, 0):
        (y,) = prepared.run([x, np.array([axis])])
        assert np.array_equal(y, x.sum(axis))
    (y,) = prepared.run([np.ones((2, 7), np.float32), np.array([1])])
    assert np.array_equal(y, [7, 7])
    assert len(prepared.programs) == 2 and prepared.path == "specialised at run time"
    assert "specialised on axes = [1]" in prepared.explain()
    for axis in range(-1, -3, -1):
        prepared.run([x, np.array([axis])])
    assert len(prepared.programs) == 4 <= MAX_SPECIALISATIONS


def test_sequences_and_optional_values_are_lists_and_none() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, ["N"])
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    prepared = backend.prepare(model(nodes, [sequence, tensor("x", FLOAT, "M")], ["y"]), threads=1)
    one, two = np.ones(1, np.float32), np.arange(2, dtype=np.float32)
    assert prepared.run([[one, two], one])[0].tolist() == [1, 0, 1, 1]
    assert prepared.run([[], two])[0].tolist() == [0, 1]
    optional = helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["N"])))
    has = backend.prepare(model([helper.make_node("OptionalHasElement", ["o"], ["y"])], [optional], ["y"]), threads=1)
    assert [bool(has.run([v])[0]) for v in (None, one)] == [False, True]


def test_a_sequence_among_the_outputs_comes_back_as_a_list() -> None:
    out = helper.make_tensor_sequence_value_info("y", FLOAT, ["N"])
    node = helper.make_node("SequenceConstruct", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "g", [tensor("x", FLOAT, "N")], [out])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (y,) = backend.run_model(made, [np.arange(3, dtype=np.float32)], threads=1)
    assert [part.tolist() for part in y] == [[0, 1, 2], [0, 1, 2]]


def test_bad_calls_get_a_diagnostic() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", FLOAT, "N")], ["y"])
    with pytest.raises(TatamiError, match="UnknownTarget"):
        backend.prepare(made, "CUDA")
    prepared = backend.prepare(made, threads=1)
    for inputs in ([], [np.ones(1, np.float32)] * 2, {"z": 1}):
        with pytest.raises(TatamiError, match="InputMismatch"):
            prepared.run(inputs)
    with pytest.raises(TatamiError, match="InputMismatch"):
        backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [])
    with pytest.raises(AttributeError):
        _ = backend.nothing


def test_a_gather_by_the_result_of_a_reduce_takes_its_lane() -> None:
    """The index of the second gather is a choice made by a reduce, kept in a vector register."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["x1"]),
        helper.make_node("Equal", ["x1", "keys"], ["hit"]),
        helper.make_node("Cast", ["hit"], ["hit1"], to=TensorProto.INT32),
        helper.make_node("ReduceMax", ["hit1", "last"], ["any"], keepdims=0),
        helper.make_node("Cast", ["any"], ["at"], to=INT64),
        helper.make_node("Gather", ["first", "at"], ["at1"]),
        helper.make_node("Gather", ["second", "at1"], ["table"]),
        helper.make_node("Equal", ["x1", "table"], ["hit2"]),
        helper.make_node("Cast", ["hit2"], ["hit3"], to=TensorProto.INT32),
        helper.make_node("ReduceMax", ["hit3", "last"], ["y"], keepdims=0),
    ]
    made = model(nodes, [tensor("x", FLOAT, 21)], ["y"])
    second = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
    constants = {"keys": np.array([1, 2], np.float32), "first": np.array([2, 0]), "second": second, "last": np.array([-1])}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items())
    x = np.arange(21, dtype=np.float32) % 10
    at = np.where(np.isin(x, [1, 2]), 0, 2)
    (y,) = backend.run_model(made, [x], threads=1)
    assert np.array_equal(y, [v in second[a] for v, a in zip(x, at, strict=True)])
