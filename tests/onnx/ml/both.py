"""One node, or a few, through Tatami and through ONNX Runtime, on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from tatami.backends.onnx_api import OnnxBackend

FLOAT, DOUBLE, INT64, STRING = (getattr(onnx.TensorProto, t) for t in ("FLOAT", "DOUBLE", "INT64", "STRING"))


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "ai.onnx.ml", **attrs: Any) -> onnx.NodeProto:
    given = {k: v for k, v in attrs.items() if v is not None and not (isinstance(v, list | tuple) and not len(v))}
    return helper.make_node(op, inputs, outputs, domain=domain, **given)


def port(name: str, array: Any) -> onnx.ValueInfoProto:
    """An input of the array's dtype and rank, its sizes open."""
    if isinstance(array, Mapping):
        key, value = next(iter(array.items()), ("", 0.0))
        kinds = {str: STRING, int: INT64, float: FLOAT}
        return helper.make_value_info(
            name, helper.make_map_type_proto(kinds[type(key)], helper.make_tensor_type_proto(kinds[type(value)], []))
        )
    array = np.asarray(array)
    kind = STRING if array.dtype.kind in "OSU" else helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, [f"{name}{i}" for i in range(array.ndim)])


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    ml: int = 3,
    opset: int = 18,
    constants: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model of these nodes. `outputs`: an element type by name, its shape unknown; or a whole ValueInfoProto."""
    ports = [v if isinstance(v, onnx.ValueInfoProto) else helper.make_tensor_value_info(k, v, None) for k, v in outputs.items()]
    held = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", [port(k, v) for k, v in inputs.items()], ports, held)
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ml), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=sets, ir_version=10)
    for out, kind in zip(made.graph.output, onnx.shape_inference.infer_shapes(made).graph.output, strict=True):
        if out.type.HasField("tensor_type") and not out.type.tensor_type.HasField("shape"):
            rank = kind.type.tensor_type.shape.dim if kind.type.tensor_type.HasField("shape") else [None] * 2
            for i in range(len(rank)):
                out.type.tensor_type.shape.dim.add().dim_param = f"{out.name}_{i}"
    return made


def runtime(proto: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def same(got: Any, want: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    if isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w, rtol, atol)
    elif isinstance(want, dict):
        assert list(got) == sorted(want, key=list(got).index) and set(got) == set(want)
        np.testing.assert_allclose([got[k] for k in want], list(want.values()), rtol, atol)
    else:
        got, want = np.asarray(got), np.asarray(want)
        assert got.shape == want.shape, (got.shape, want.shape)
        if want.dtype.kind in "OSU":
            assert got.dtype.kind == "O"
            assert got.tolist() == want.tolist()
        else:
            assert got.dtype == want.dtype, (got.dtype, want.dtype)
            np.testing.assert_allclose(got, want, rtol, atol)


def compare(proto: onnx.ModelProto, *feeds: Mapping[str, Any], rtol: float = 1e-5, atol: float = 1e-6) -> list[Any]:
    """One compiled model on every feed, each as ONNX Runtime; the last results."""
    prepared = OnnxBackend.prepare(proto, threads=1)
    got: list[Any] = []
    for feed in feeds:
        got = list(prepared.run(dict(feed)))
        same(got, runtime(proto, feed), rtol, atol)
    return got
