"""Small models built with onnx.helper, compiled and compared with ONNX Runtime; torch exports compared with eager."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tatami.core.diagnostic import TatamiError

onnxruntime = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(7)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def weights(**shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array((RNG.standard_normal(s) * 0.3).astype(np.float32), n) for n, s in shapes.items()]


def ints(**values: Any) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in values.items()]


def model(nodes: list[onnx.NodeProto], inputs: Any, outputs: Any, initializers: Any = (), **more: Any) -> onnx.ModelProto:
    ports = [[helper.make_tensor_value_info(n, t, s) for n, t, s in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ports, list(initializers))
    opsets = [helper.make_opsetid("", more.pop("opset", 18)), *more.pop("opsets", [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def compare(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> None:
    """One compilation serves every feed."""
    onnx.checker.check_model(made)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    function = tt.compile(made, target="cpu", threads=1)
    for feed in feeds:
        got = function(feed)
        for port, expected in zip(made.graph.output, session.run(None, feed), strict=True):
            array = np.asarray(got[port.name])
            assert array.dtype == expected.dtype and array.shape == expected.shape
            np.testing.assert_allclose(array, expected, rtol=1e-3, atol=1e-5)


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_convolutional_net() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], group=2, auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("HardSwish", ["c2"], ["h2"]),
        helper.make_node("GlobalAveragePool", ["h2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    made = model(
        nodes,
        [("x", FLOAT, [2, 3, 12, 12])],
        [("y", FLOAT, [2, 5])],
        weights(w1=(8, 3, 3, 3), b1=(8,), w2=(4, 4, 3, 3), w3=(5, 4), b3=(5,)),
    )
    compare(made, {"x": x(2, 3, 12, 12)})


def test_a_transformer_block_of_any_batch() -> None:
    nodes = [helper.make_node("LayerNormalization", ["x", "g", "b"], ["n"])]
    for name in "qkv":
        nodes += [
            helper.make_node("MatMul", ["n", f"w{name}"], [f"{name}0"]),
            helper.make_node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            helper.make_node("Transpose", [f"{name}1"], [name], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s0"]),
        helper.make_node("Mul", ["s0", "scale"], ["s1"]),
        helper.make_node("Softmax", ["s1"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o0"]),
        helper.make_node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Reshape", ["o1", "shape"], ["o2"]),
        helper.make_node("Add", ["x", "o2"], ["y"]),
    ]
    init = [
        *weights(g=(16,), b=(16,), wq=(16, 16), wk=(16, 16), wv=(16, 16)),
        *ints(split=[0, 0, 4, 4]),
        numpy_helper.from_array(np.array(0.5, np.float32), "scale"),
    ]
    made = model(nodes, [("x", FLOAT, ["B", 6, 16])], [("y", FLOAT, ["B", 6, 16])], init)
    compare(made, {"x": x(1, 6, 16)}, {"x": x(3, 6, 16)})


def test_a_bidirectional_lstm_with_lengths() -> None:
    node = helper.make_node("LSTM", ["x", "w", "r", "b", "lengths"], ["y", "h", "c"], hidden_size=4, direction="bidirectional")
    made = model(
        [node],
        [("x", FLOAT, [5, 2, 3]), ("lengths", TensorProto.INT32, [2])],
        [("y", FLOAT, [5, 2, 2, 4]), ("h", FLOAT, [2, 2, 4]), ("c", FLOAT, [2, 2, 4])],
        weights(w=(2, 16, 3), r=(2, 16, 4), b=(2, 32)),
    )
    compare(made, {"x": x(5, 2, 3), "lengths": np.array([5, 3], np.int32)})


def test_branches_read_what_lies_around_them() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{name}_y", FLOAT, [3])
        return helper.make_graph([helper.make_node(op, ["h", "w"], [f"{name}_y"])], name, [], [out])

    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch("a", "Add"), else_branch=branch("b", "Mul")),
    ]
    made = model(nodes, [("x", FLOAT, [3]), ("flag", BOOL, [])], [("y", FLOAT, [3])], weights(w=(3,)))
    given = x(3)
    compare(made, {"x": given, "flag": np.array(True)}, {"x": given, "flag": np.array(False)})


def test_a_loop_carries_state_and_stacks_its_scans() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_out"]),
            helper.make_node("Mul", ["s", "w"], ["s_out"]),
            helper.make_node("Add", ["s_out", "x"], ["scan"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("go_out", BOOL, []),
            helper.make_tensor_value_info("s_out", FLOAT, [3]),
            helper.make_tensor_value_info("scan", FLOAT, [3]),
        ],
    )
    made = model(
        [helper.make_node("Loop", ["trip", "", "x"], ["last", "all"], body=body)],
        [("x", FLOAT, [3])],
        [("last", FLOAT, [3]), ("all", FLOAT, [4, 3])],
        [*weights(w=(3,)), *ints(trip=4)],
    )
    compare(made, {"x": x(3)})


def test_functions_of_the_model_are_expanded() -> None:
    function = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Elu", ["a"], ["t"]), helper.make_node("Add", ["t", "t"], ["b"])],
        [helper.make_opsetid("", 18)],
        ["alpha"],
    )
    reference = function.node[0].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "alpha", onnx.AttributeProto.FLOAT
    made = model(
        [helper.make_node("Twice", ["x"], ["y"], domain="own", alpha=0.5)],
        [("x", FLOAT, [4])],
        [("y", FLOAT, [4])],
        opsets=[helper.make_opsetid("own", 1)],
        functions=[function],
    )
    compare(made, {"x": x(4)})


def test_axes_from_the_shape_are_computed_while_importing() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Size", ["shape"], ["rank"]),
        helper.make_node("Range", ["zero", "rank", "one"], ["axes"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0),
    ]
    made = model(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [])], ints(zero=0, one=1))
    compare(made, {"x": x(2, 3)})


def test_an_input_that_decides_axes_is_named_and_can_be_fixed() -> None:
    made = model(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="total", keepdims=1)],
        [("x", FLOAT, [2, 3]), ("axes", INT64, [1])],
        [("y", FLOAT, [None, None])],
    )
    with pytest.raises(TatamiError) as error:
        tt.compile(made, max_specialisations=0)
    assert error.value.diagnostics[0].at == "total"
    assert error.value.diagnostics[0].details["inputs"] == '["axes"]'
    given = x(2, 3)
    function = tt.compile(made, example_inputs={"axes": np.array([1])}, threads=1)
    np.testing.assert_allclose(np.asarray(function(x=given)["y"]), given.sum(1, keepdims=True), rtol=1e-5)
    compare(made, *({"x": x(2, 3), "axes": np.array([axis])} for axis in (0, 1, 0, -1)))


def test_an_unsupported_node_says_what_would_be_needed() -> None:
    nodes = [
        helper.make_node("ImageDecoder", ["x"], ["b"]),
        helper.make_node("Nothing", ["x"], ["y"], name="own", domain="mine"),
    ]
    sets = [helper.make_opsetid("mine", 1)]
    with pytest.raises(TatamiError) as error:
        tt.compile(model(nodes, [("x", FLOAT, [2, 2])], [("y", FLOAT, [2, 2])], opset=20, opsets=sets))
    (said,) = error.value.diagnostics
    assert "ImageDecoder_0: the operator ImageDecoder is not supported" in said.why
    assert "\n  own: the operator mine.Nothing is not supported" in said.why
    assert said.suggestion.split("; ") == [
        "rewrite ImageDecoder with supported operators, or give the model a function of that name",
        "give the model a function Nothing of domain 'mine'",
    ]


def exported(module: Any, args: tuple[Any, ...], **more: Any) -> onnx.ModelProto:
    pytest.importorskip("torch")
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), args, file, dynamo=False, opset_version=17, input_names=["x"], output_names=["y"], **more
        )
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("kind", ["convolution", "attention", "gru"])
def test_a_torch_export_agrees_with_eager(kind: str) -> None:
    pytest.importorskip("torch")
    import torch

    torch.manual_seed(3)
    from torch import nn

    if kind == "convolution":
        module = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.SiLU(), nn.AvgPool2d(2), nn.Upsample(scale_factor=2)
        )
        given = torch.randn(1, 3, 8, 8)
    elif kind == "attention":

        class Attend(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.project, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

            def forward(self, value: Any) -> Any:
                batch, steps, _ = value.shape
                parts = self.project(self.norm(value)).reshape(batch, steps, 3, 2, 8).permute(2, 0, 3, 1, 4)
                scores = (parts[0] @ parts[1].transpose(-2, -1) / 8**0.5).softmax(-1)
                return value + self.out((scores @ parts[2]).transpose(1, 2).reshape(batch, steps, 16))

        module = Attend()
        given = torch.randn(2, 5, 16)
    else:

        class Last(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.gru = nn.GRU(4, 6)

            def forward(self, value: Any) -> Any:
                return self.gru(value)[0]

        module = Last()
        given = torch.randn(5, 2, 4)
    made = exported(module, (given,))
    with torch.no_grad():
        expected = module(given).numpy()
    function = tt.compile(made, threads=1)
    np.testing.assert_allclose(np.asarray(function(x=given.numpy())["y"]), expected, rtol=1e-3, atol=1e-5)
