"""ONNX Runtime as an oracle: one thread, and nodes as the model has them."""

from __future__ import annotations

import onnx
import onnxruntime


def plain_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Without graph optimisations. Raises what ONNX Runtime raises, errors of its own types."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
