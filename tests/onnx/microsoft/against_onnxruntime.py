"""One node, or a few, of ONNX Runtime's own domains: Tatami against ONNX Runtime without graph optimisations.

A size that is to stay open is written as a name in `open`: {"x": ("B", "T", 8)} declares x so and runs it at every set of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tatami as tt
from tests.onnx.plain_session import plain_session

Arrays = Mapping[str, np.ndarray]
MS = "com.microsoft"
DOMAINS = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
KINDS = {
    np.dtype(t): k
    for t, k in (
        ("u1", TensorProto.UINT8), ("i1", TensorProto.INT8), ("i2", TensorProto.INT16), ("u2", TensorProto.UINT16),
        ("i4", TensorProto.INT32), ("u4", TensorProto.UINT32), ("i8", TensorProto.INT64), ("u8", TensorProto.UINT64), ("f2", TensorProto.FLOAT16),
        ("f4", TensorProto.FLOAT), ("f8", TensorProto.DOUBLE), ("?", TensorProto.BOOL), (ml_dtypes.bfloat16, TensorProto.BFLOAT16),
    )
}  # fmt: skip
TOLERANCE = {np.dtype("f2"): (4e-3, 4e-3), np.dtype("f4"): (2e-5, 2e-5), np.dtype("f8"): (1e-9, 1e-9)}


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), domain: str = MS, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, [*inputs], [*outputs], domain=domain, **attrs)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    feed: Arrays,
    outputs: Mapping[str, tuple[int, Sequence[Any] | None]],
    weights: Arrays | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, KINDS[a.dtype], (shapes or {}).get(n, a.shape)) for n, a in feed.items()]
    results = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in outputs.items()]
    constants = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", ports, results, constants)
    sets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in DOMAINS)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def run_onnxruntime(model: onnx.ModelProto, feed: Arrays) -> list[np.ndarray]:
    return list(plain_session(model).run(None, dict(feed)))


def close(got: np.ndarray, wanted: np.ndarray, what: str, tolerance: tuple[float, float] | None = None, apart: int = 0) -> None:
    """Assert that results are close. `apart`: how far integers may differ, in one element of fifty and one of any tensor; a value between two numbers rounds either way."""
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (what, got.shape, wanted.shape, got.dtype, wanted.dtype)
    if wanted.dtype.kind in "iub":
        far = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
        differ = int((far > 0).sum())
        assert far.size == 0 or (far.max() <= apart and differ <= max(1, 0.02 * far.size)), (
            f"{what}: {differ} of {far.size} differ, by {far.max()} at most"
        )
        return
    rtol, atol = tolerance or TOLERANCE[wanted.dtype]
    np.testing.assert_allclose(got.astype("f8"), wanted.astype("f8"), rtol, atol, err_msg=what)


def agree(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto],
    *feeds: Arrays,
    weights: Arrays | None = None,
    open: Mapping[str, Sequence[int | str]] | None = None,
    opset: int = 17,
    outputs: Sequence[str] | None = None,
    wanted: Sequence[Sequence[np.ndarray]] | None = None,
    tolerance: tuple[float, float] | None = None,
    apart: int = 0,
    like: onnx.NodeProto | None = None,
    like_feeds: Sequence[Arrays] = (),
    typed: Mapping[str, int] | None = None,
    drop: Mapping[str, tuple[slice, ...]] | None = None,
) -> None:
    """Both give the same at every feed. `wanted` are the results where ONNX Runtime's CPU has no kernel, or those of the node
    `like` at `like_feeds` are; `typed` are results whose type ONNX Runtime has to be told; `drop` keeps only that part of a
    result, since the rest is unspecified."""
    nodes = [nodes] if isinstance(nodes, onnx.NodeProto) else list(nodes)
    names = list(outputs or [o for o in nodes[-1].output if o])
    if wanted is None:
        given = like_feeds or feeds
        untyped = dict.fromkeys(names, (TensorProto.UNDEFINED, None))
        loose = model_of([like] if like is not None else nodes, given[0], untyped, weights, None if like else open, opset)
        for port in loose.graph.output:
            port.ClearField("type")
            if port.name in (typed or {}):
                port.type.tensor_type.elem_type = (typed or {})[port.name]
        wanted = [run_onnxruntime(loose, feed) for feed in given]
    # every axis of a result is declared open: what the importer infers is what counts
    kinds = {n: (KINDS[w.dtype], [f"{n}_{i}" for i in range(w.ndim)]) for n, w in zip(names, wanted[0], strict=True)}
    program = tt.compile(model_of(nodes, feeds[0], kinds, weights, open, opset), threads=1)
    for turn, (feed, results) in enumerate(zip(feeds, wanted, strict=True)):
        got = program(dict(feed))
        for name, result in zip(names, results, strict=True):
            part = (drop or {}).get(name, ())
            close(np.asarray(got[name])[part], np.asarray(result)[part], f"{name} of feed {turn}", tolerance, apart)
