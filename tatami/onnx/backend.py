"""The ONNX Backend API of this package: `prepare`, `run_model`, `run_node`, `supports_device`, `Backend`.

They are built on the compiler, in `tatami.backends.onnx_api`; this module imports them on first access.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = ["Backend", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(name)
    backend = import_module("tatami.backends.onnx_api").OnnxBackend
    return backend if name == "Backend" else getattr(backend, name)
