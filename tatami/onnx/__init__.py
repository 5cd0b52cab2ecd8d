"""Import of ONNX models. Made from: a ModelProto; depends on `core` and `frontend` only.

    files/        the file before any node is imported: `repair` puts order, open axes, names, attributes and operands right or
                  refuses them, without onnx.checker; `tensors` reads arrays, external data from the model's folder only
    load          the model: inputs, initialisers, outputs (declared: the model's declarations of its results)
    nodes/        one node: `import_node` asks its handler (registry), else the body of its function; `old_forms` has the
                  newest form of nodes of old versions, `preconditions` the requirements on operands and attributes
                  together, `fold` computes nodes of small constants
    registry      operator -> handler, joined from operators/, images/, strings/, sequences/, subgraphs/, ml/, microsoft/
    support       operators that have an import; one diagnostic of all that have none
    check         `tatami check`: the findings of onnx.checker, and the repairs of an import
    subgraphs/    If, Loop, Scan: graphs of the module; values they read from outside become operands
    sequences/    sequences and optional values; `ports` puts them into the flat signature of a program
    importer      the state: values by ONNX name, frontend nodes made before
    data_sizes    integers of the data as sizes
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
