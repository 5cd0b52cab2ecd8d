"""ONNX Runtime as an oracle: one thread, and the model's own nodes."""

from __future__ import annotations

import onnx
import onnxruntime


def plain_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session without graph optimisations. Raises ONNX Runtime's own types of errors."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
