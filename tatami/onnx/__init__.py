"""Import of ONNX models. Made from: a ModelProto; depends on `core` and `frontend` only.

    files/        the file: order, open axes, names, attributes and operands repaired or refused (repair, order, definitions,
                  repair_node, attribute_values, schemas, text), without onnx.checker; tensors, external: arrays of initialisers
    load          the model: inputs, initialisers, outputs (external data from the model's folder only; declared: the model's
                  declarations of its results)
    nodes/        one node: old_forms (nodes of old versions in the newest form), preconditions (requirements on operands and
                  attributes together), import_node (its handler, else the body of its function), fold (nodes of small
                  constants are computed while importing)
    registry      the handlers, from the families of operators/, images/, sequences/, strings/, microsoft/ and ml/
    check         `tatami check`: the findings of onnx.checker, and the repairs of an import
    support       operators that have an import; one diagnostic of all that have none
    subgraphs/    If, Loop, Scan: graphs of the module; values they read from outside become operands
    importer      the state: values by ONNX name, frontend nodes made before
    data_sizes    integers of the data as sizes
    sequences/    sequences and optional values; ports: their place in the flat signature of a program
    arithmetic    tensors with Python's operators, for handlers that compute
    backend       the ONNX Backend API, which is built on the compiler (tatami/backends/onnx_api.py)
    InferenceSession, SessionOptions, …   a drop-in session, also built on the compiler (tatami/backends/onnx_session.py)

An ONNX value while importing (`values.Value`) is a tensor of the graph, a constant, integers that are sizes (Shape, Gather,
Concat, … are followed as size expressions and never become tensors), or a sequence. Sizes that data decide are read by Host
steps. Axes and other structure must be known; if a small input decides them, the diagnostic names it and `example_inputs`
fixes it. User names stay in the signature and in origins. Scores: docs/conformance.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_ABOVE = {
    "onnx_session": (
        "InferenceSession",
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_all_providers",
        "get_available_providers",
        "get_device",
        "set_default_logger_severity",
    ),
    "onnx_session_options": ("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "RunOptions", "SessionOptions"),
    "onnx_session_values": ("ModelMetadata", "NodeArg", "OrtValue"),
    "onnx_session_errors": ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NotImplemented"),
    "onnx_binding": ("IOBinding",),
}
"""Names of the drop-in session, by the module of `tatami.backends` that has them; imported on first access."""


def __getattr__(name: str) -> Any:
    for module, names in _ABOVE.items():
        if name in names:
            return getattr(import_module(f"tatami.backends.{module}"), name)
    raise AttributeError(f"module 'tatami.onnx' has no attribute {name!r}")
