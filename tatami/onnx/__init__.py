"""ONNX to frontend. Made from: a ModelProto; depends on `core` and `frontend` only.

    repair        the file as it is: order, open axes, names, attributes and operands repaired or refused (order, definitions,
                  repair_node, attribute_values, schemas, text); nothing here asks onnx.checker
    load          the model: inputs, initialisers, outputs (tensors: their arrays, external data from the model's folder only;
                  declared: what the model says of its results)
    old_forms     nodes of old versions in the newest form; preconditions: what operands and attributes have to be together
    check         `tatami check`: what onnx.checker finds, and what an import repairs
    import_node   one node: its handler (registry, ops_*.py), else the body of its function
    support       which operators have an import; one diagnostic of all that have none
    control       If, Loop, Scan: graphs of the module; what they read from outside becomes operands
    fold          nodes of small constants are computed while importing
    importer      the state: values by ONNX name, frontend nodes so far
    data_sizes    integers of the data as sizes
    ports         sequences and optional values in the flat signature of a program
    arithmetic    tensors with numbers beside them, for handlers that compute
    backend       the ONNX Backend API, which stands above the compiler (tatami/backends/onnx_api.py)
    InferenceSession, SessionOptions, …   a drop-in session; it stands there too (tatami/backends/onnx_session.py)

What an ONNX value is while importing (`values.Value`): a tensor of the graph, a constant, integers that say sizes
(Shape, Gather, Concat, … are followed as size expressions and never become tensors), or a sequence. Sizes that data
decide are read by Host steps; axes and other structure have to be known, and where a small input decides them, the
diagnostic names it and `example_inputs` fixes it.
User names stay in the signature and in origins. Scores: docs/conformance.md.
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
"""Names of the drop-in session by the module of `tatami.backends` that has them: found when they are asked for."""


def __getattr__(name: str) -> Any:
    for module, names in _ABOVE.items():
        if name in names:
            return getattr(import_module(f"tatami.backends.{module}"), name)
    raise AttributeError(f"module 'tatami.onnx' has no attribute {name!r}")
