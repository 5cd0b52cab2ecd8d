"""The drop-in session against ONNX Runtime's: description of a model, results, and errors of a wrong feed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tatami.onnx as tatami_onnx
from tatami.backends import onnx_session_options
from tatami.backends.onnx_session import with_shapes
from tatami.core.diagnostic import TatamiError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CPU = ["CPUExecutionProvider"]
info = helper.make_tensor_value_info


def made(
    nodes: list[onnx.NodeProto],
    inputs: list[Any],
    outputs: list[Any],
    initializers: list[onnx.TensorProto] | None = None,
    opset: int = 18,
) -> bytes:
    graph = helper.make_graph(nodes, "the graph", inputs, outputs, initializers or [], doc_string="sums")
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=9, producer_name="tests")
    return bytes(model.SerializeToString())


def affine() -> bytes:
    """y = x + w, z = relu(y); w has a value and may be given another."""
    nodes = [helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    w = helper.make_tensor("w", FLOAT, [3], [1.0, -2.0, 3.0])
    inputs = [info("x", FLOAT, ["rows", 3]), info("w", FLOAT, [3])]
    return made(nodes, inputs, [info("y", FLOAT, ["rows", 3]), info("z", FLOAT, ["rows", 3])], [w])


def scaled() -> bytes:
    """y = x * s, of a scalar s."""
    return made(
        [helper.make_node("Mul", ["x", "s"], ["y"])],
        [info("x", FLOAT, [None, "N", 2]), info("s", FLOAT, [])],
        [info("y", FLOAT, [None, "N", 2])],
    )


def both(model: bytes) -> tuple[Any, Any]:
    ours = tatami_onnx.SessionOptions()
    ours.intra_op_num_threads = 1
    theirs = onnxruntime.SessionOptions()
    theirs.intra_op_num_threads = 1
    theirs.log_severity_level = 4
    return (
        tatami_onnx.InferenceSession(model, ours, providers=CPU),
        onnxruntime.InferenceSession(model, theirs, providers=CPU),
    )


def about(args: list[Any]) -> list[tuple[str, str, list[Any]]]:
    return [(a.name, a.type, a.shape) for a in args]


@pytest.mark.parametrize("model", [affine, scaled])
def test_a_session_says_of_a_model_what_onnx_runtime_says(model: Callable[[], bytes]) -> None:
    ours, theirs = both(model())
    for asked in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        assert about(getattr(ours, asked)()) == about(getattr(theirs, asked)())
    words = ("producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map")
    for word in words:
        assert getattr(ours.get_modelmeta(), word) == getattr(theirs.get_modelmeta(), word)
    assert ours.get_providers() == theirs.get_providers()
    assert ours.get_provider_options() == theirs.get_provider_options()


def test_an_output_without_shape_has_the_shape_that_follows_from_its_nodes() -> None:
    model = onnx.ModelProto.FromString(affine())
    model.graph.output[1].type.tensor_type.ClearField("shape")
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=CPU)
    assert about([tatami_onnx.NodeArg.of(p) for p in with_shapes(model)]) == about(theirs.get_outputs())


def test_types_are_written_as_onnx_runtime_writes_them() -> None:
    kinds = [
        info("a", TensorProto.FLOAT16, [1]),
        info("b", TensorProto.DOUBLE, []),
        info("c", TensorProto.UINT8, ["n"]),
        info("d", TensorProto.BOOL, [None]),
        info("e", TensorProto.STRING, [2]),
        helper.make_tensor_sequence_value_info("f", INT64, ["m"]),
    ]
    nodes = [helper.make_node("Identity", [k.name], [f"{k.name}{k.name}"]) for k in kinds]
    outputs = [onnx.ValueInfoProto.FromString(k.SerializeToString()) for k in kinds]
    for output in outputs:
        output.name *= 2
    model = onnx.ModelProto.FromString(made(nodes, kinds, outputs))
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=CPU)
    ours = [tatami_onnx.NodeArg.of(p) for p in model.graph.input]
    assert [(a.name, a.type) for a in ours] == [(a.name, a.type) for a in theirs.get_inputs()]
    assert [a.shape for a in ours[:5]] == [a.shape for a in theirs.get_inputs()[:5]]


def test_runs_give_the_outputs_that_are_asked_for_in_that_order() -> None:
    ours, theirs = both(affine())
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 3
    for names in (None, [], ["z"], ["z", "y"], ["y", "y"]):
        for a, b in zip(ours.run(names, {"x": x}), theirs.run(names, {"x": x}), strict=True):
            assert a.dtype == b.dtype and np.array_equal(a, b)


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2, 3]],
        [[1.5, 2, 3], [4, 5, 6]],
        np.ones((2, 3), ">f4"),
        np.ones((3, 2), np.float32).T,
        np.ones((4, 6), np.float32)[:, ::2],
    ],
    ids=["list of integers", "list of floats", "other byte order", "transposed", "strided"],
)
def test_a_feed_may_hold_what_numpy_makes_arrays_of(value: Any) -> None:
    ours, theirs = both(affine())
    expected = np.maximum(np.asarray(value, np.float32) + np.array([1, -2, 3], np.float32), 0)
    assert np.array_equal(ours.run(["z"], {"x": value})[0], expected)
    if getattr(value, "dtype", np.dtype("f4")).isnative:  # ONNX Runtime reads the bytes of the others as they lie
        assert np.array_equal(theirs.run(["z"], {"x": value})[0], expected)


def test_an_input_without_axes_takes_one_number_in_any_shape() -> None:
    ours, theirs = both(scaled())
    x = np.ones((1, 2, 2), np.float32)
    for s in (np.array(3, np.float32), np.array([3], np.float32)):
        assert np.array_equal(ours.run(None, {"x": x, "s": s})[0], theirs.run(None, {"x": x, "s": s})[0])


def test_a_feed_of_arrays_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed, of rank 0 too, is checked and left as it is, so the next one of its kind goes straight to the program."""
    session, _ = both(scaled())
    feed = {"x": np.ones((1, 2, 2), np.float32), "s": np.array(3, np.float32)}
    want = session.run(None, feed)
    monkeypatch.setattr(session, "_feed", lambda given: pytest.fail("the feed is looked at again"))
    for a, b in zip(session.run(None, {n: a.copy() for n, a in feed.items()}), want, strict=True):
        np.testing.assert_array_equal(a, b)


X = np.zeros((2, 3), np.float32)
WRONG = {
    "nothing": lambda s: s.run(None, {}),
    "no such input": lambda s: s.run(None, {"x": X, "q": X}),
    "no such output": lambda s: s.run(["q"], {"x": X}),
    "float64": lambda s: s.run(None, {"x": X.astype(np.float64)}),
    "float16": lambda s: s.run(None, {"x": X.astype(np.float16)}),
    "words": lambda s: s.run(None, {"x": np.array([["a", "b", "c"]])}),
    "rank": lambda s: s.run(None, {"x": X[0]}),
    "size": lambda s: s.run(None, {"x": np.zeros((2, 4), np.float32)}),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_errors_have_the_names_and_words_of_onnx_runtime(wrong: Callable[[Any], Any]) -> None:
    ours, theirs = both(affine())
    with pytest.raises(Exception) as expected:
        wrong(theirs)
    with pytest.raises(TatamiError) as found:
        wrong(ours)
    names = {c.__name__ for c in type(found.value).__mro__}
    assert type(expected.value).__name__ in names
    assert str(found.value) == str(expected.value).replace("[ONNXRuntimeError]", "[Tatami]")
    assert found.value.diagnostics[0].kind == "InputMismatch"


def test_models_that_cannot_be_run_are_refused_by_class(tmp_path: Path) -> None:
    with pytest.raises(tatami_onnx.NoSuchFile, match="File doesn't exist"):
        tatami_onnx.InferenceSession(tmp_path / "none.onnx")
    os.mkfifo(tmp_path / "pipe.onnx")  # nobody writes: opening it must not wait
    with pytest.raises(tatami_onnx.NoSuchFile, match="Load model"):
        tatami_onnx.InferenceSession(tmp_path / "pipe.onnx")
    with pytest.raises(tatami_onnx.InvalidProtobuf, match="protobuf parsing failed"):
        tatami_onnx.InferenceSession(b"not a model")
    unknown = made([helper.make_node("Nope", ["x"], ["y"])], [info("x", FLOAT, [2])], [info("y", FLOAT, [2])])
    with pytest.raises(tatami_onnx.NotImplemented, match="Nope"):
        tatami_onnx.InferenceSession(unknown)
    loose = made([helper.make_node("Add", ["x", "q"], ["y"])], [info("x", FLOAT, [2])], [info("y", FLOAT, [2])])
    with pytest.raises(tatami_onnx.InvalidGraph, match="q"):
        tatami_onnx.InferenceSession(loose)
    with pytest.raises(TypeError):
        tatami_onnx.InferenceSession(3)


def test_sizes_that_the_model_has_no_number_for_are_checked_at_the_run() -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    session, _ = both(made(nodes, [info("x", FLOAT, ["n"]), info("w", FLOAT, ["n"])], [info("y", FLOAT, ["n"])]))
    with pytest.raises(tatami_onnx.InvalidArgument):
        session.run(None, {"x": np.zeros(3, np.float32), "w": np.zeros(4, np.float32)})


def test_another_value_of_an_initialiser_is_taken() -> None:
    ours, theirs = both(affine())
    for feed in ({"x": X, "w": np.array([5, 6, 7], np.float32)}, {"x": X}, {"x": X, "w": np.array([8, 9, 1], np.float32)}):
        assert np.array_equal(ours.run(["y"], feed)[0], theirs.run(["y"], feed)[0])


def test_before_ir_version_4_no_initialiser_takes_another_value() -> None:
    model = onnx.ModelProto.FromString(affine())
    model.ir_version = 3
    ours, theirs = both(model.SerializeToString())
    assert ours.get_overridable_initializers() == theirs.get_overridable_initializers() == []
    with pytest.raises(tatami_onnx.InvalidArgument):
        ours.run(["y"], {"x": X, "w": np.array([5, 6, 7], np.float32)})


def test_an_initialiser_that_is_an_input_may_have_another_value() -> None:
    ours, theirs = both(affine())
    x = np.ones((2, 3), np.float32)
    for feed in ({"x": x, "w": np.array([5, 6, 7], np.float32)}, {"x": x}):
        assert np.array_equal(ours.run(["y"], feed)[0], theirs.run(["y"], feed)[0])
    with pytest.raises(tatami_onnx.InvalidArgument, match="Got: 2 Expected: 3"):
        ours.run(["y"], {"x": x, "w": np.zeros(2, np.float32)})


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_arrays_go_in_and_out(dtype: Any) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    session = tatami_onnx.InferenceSession(
        made([helper.make_node("Neg", ["x"], ["y"])], [info("x", code, ["n"])], [info("y", code, ["n"])])
    )
    x = np.array([1, -2.5, 3], dtype)
    (y,) = session.run(None, {"x": x})
    assert y.dtype == x.dtype and np.array_equal(y, -x)
    assert session.get_inputs()[0].type == f"tensor({np.dtype(dtype).name})"


def test_lists_stand_for_sequences() -> None:
    parts = helper.make_tensor_sequence_value_info("parts", FLOAT, [2])
    session, theirs = both(
        made([helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=0)], [parts], [info("y", FLOAT, [None])])
    )
    feed = {"parts": [np.array([1, 2], np.float32), np.array([3, 4], np.float32)]}
    assert np.array_equal(session.run(None, feed)[0], theirs.run(None, feed)[0])
    with pytest.raises(tatami_onnx.InvalidArgument, match=r"seq\(tensor\(float\)\)"):
        session.run(None, {"parts": np.zeros((2, 2), np.float32)})
    with pytest.raises(tatami_onnx.InvalidArgument, match="Unexpected input data type"):
        session.run(None, {"parts": [np.zeros(2, np.int64)]})


def test_words_and_maps_go_in_and_out() -> None:
    n = ["n"]
    words = [info("a", TensorProto.STRING, n), info("b", TensorProto.STRING, n)]
    model = made([helper.make_node("StringConcat", ["a", "b"], ["y"])], words, [info("y", TensorProto.STRING, n)], opset=20)
    ours, theirs = both(model)
    for a in (np.array(["x", "yy"], object), np.array(["x", "yy"]), ["x", "yy"]):
        feed = {"a": a, "b": np.array(["1", "2"], object)}
        (found,), (expected,) = ours.run(None, feed), theirs.run(None, feed)
        assert found.dtype == expected.dtype and found.tolist() == expected.tolist()
    zipped = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["p", "q"])
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(FLOAT, []))
    port = helper.make_value_info("y", helper.make_sequence_type_proto(kind))
    ours, theirs = both(made([zipped], [info("x", FLOAT, ["n", 2])], [port]))
    x = np.array([[0.25, 0.75], [1, 0]], np.float32)
    assert ours.run(None, {"x": x}) == theirs.run(None, {"x": x})
    assert about(ours.get_outputs()) == about(theirs.get_outputs())


def test_values_as_objects_and_bound_outputs() -> None:
    ours, _ = both(affine())
    value = tatami_onnx.OrtValue.ortvalue_from_numpy(X)
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", FLOAT)
    expected = ours.run(["z"], {"x": X})[0]
    (z,) = ours.run_with_ort_values(["z"], {"x": value})
    assert np.array_equal(z.numpy(), expected)
    binding = ours.io_binding()
    binding.bind_cpu_input("x", X)
    place = tatami_onnx.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_output("z", place)
    binding.bind_output("y")
    ours.run_with_iobinding(binding)
    assert np.array_equal(place.numpy(), expected)
    assert [v.shape() for v in binding.get_outputs()] == [[2, 3], [2, 3]]
    with pytest.raises(tatami_onnx.InvalidArgument):
        binding.bind_cpu_input("nothing", X)
    with pytest.raises(tatami_onnx.InvalidArgument):
        tatami_onnx.OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32).update_inplace(expected)


def test_a_named_axis_may_be_given_a_number() -> None:
    options = tatami_onnx.SessionOptions()
    options.add_free_dimension_override_by_name("rows", 2)
    session = tatami_onnx.InferenceSession(affine(), options)
    assert session.get_inputs()[0].shape == [2, 3]
    with pytest.raises(tatami_onnx.InvalidArgument, match="Got: 5 Expected: 2"):
        session.run(None, {"x": np.zeros((5, 3), np.float32)})


def test_options_without_effect_are_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_session_options, "_said", set())
    options = tatami_onnx.SessionOptions()
    options.graph_optimization_level = tatami_onnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = "out.onnx"
    options.intra_op_num_threads = 1
    with caplog.at_level(logging.WARNING, logger="tatami.onnx"):
        for _ in range(2):
            tatami_onnx.InferenceSession(affine(), options)
    said = [r.getMessage().split(" ")[0] for r in caplog.records]
    assert said == ["SessionOptions.graph_optimization_level", "SessionOptions.optimized_model_filepath"]
    with pytest.raises(AttributeError):
        options.no_such_option = 1
    with pytest.raises(tatami_onnx.InvalidArgument):
        options.intra_op_num_threads = -1
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        session = tatami_onnx.InferenceSession(affine(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == CPU == tatami_onnx.get_available_providers()


def test_external_data_is_found_beside_the_file(tmp_path: Path) -> None:
    model = onnx.ModelProto.FromString(affine())
    del model.graph.input[1]
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    (y, _) = tatami_onnx.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": X})
    assert np.array_equal(y, np.tile(np.array([1, -2, 3], np.float32), (2, 1)))


def test_the_session_computes_without_onnx_runtime() -> None:
    """Shipped code never loads ONNX Runtime."""
    code = "import sys, tatami.onnx as t; t.InferenceSession; t.SessionOptions; assert 'onnxruntime' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_session_does_not_keep_the_model_in_memory() -> None:
    """Descriptions of inputs are copies: a part of a protobuf message would keep the weights in memory a second time."""
    model = onnx.ModelProto.FromString(affine())
    arg = tatami_onnx.NodeArg.of(model.graph.input[0])
    model.graph.input[0].type.tensor_type.elem_type = INT64
    assert arg.proto.tensor_type.elem_type == FLOAT
