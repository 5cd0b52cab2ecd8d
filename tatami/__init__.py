"""Tatami: a deep-learning compiler whose every stage is a document.

    import tatami as tt
    g = tt.Graph("mlp")
    x = g.input("x", ("B", 784), tt.fp32)
    ...
    f = tt.compile(g)
    f(x=array)["y"]

Names load on first use, so ``import tatami`` stays cheap.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def _check_whole() -> None:
    """Raise ImportError in a zip or an executable that was packed without the texts that programs are made from."""
    from importlib.resources import files

    texts = (
        "c/runtime_text/tatami.h",
        "c/pages/chunk.c",
        "cu/header/tatami_ptx.cuh",
        "cu/pages/kernel.cu",
        "harp/grammar.lark",
    )
    try:
        missing = [name for name in texts if not files("tatami").joinpath(*name.split("/")).is_file()]
    except (ImportError, OSError) as error:
        missing = [str(error)]
    if missing:
        raise ImportError(
            f"tatami is packed without {', '.join(missing)}: pack all its files (PyInstaller: --collect-all tatami; "
            "a zip: every file of the folder, not the modules alone)"
        )


if getattr(sys, "frozen", False) or type(getattr(__spec__, "loader", None)).__name__ != "SourceFileLoader":
    _check_whole()

_WHERE: dict[str, str] = {
    "Graph": "tatami.frontend.graph",
    "compile": "tatami.api",
    "gradient": "tatami.derivative.api",
    "quantize": "tatami.quantization.api",
    "load": "tatami.api",
    "open_model": "tatami.models",
    "parse": "tatami.harp.load",
    "decompile": "tatami.harp.decompile",
    "Function": "tatami.api",
    "ExecutionPlan": "tatami.execution_plan",
    "Target": "tatami.core.target",
    "Diagnostic": "tatami.core.diagnostic",
    "TatamiError": "tatami.core.diagnostic",
    "DType": "tatami.core.dtype",
}
_MODULES: dict[str, str] = {"view": "tatami.core.view", "generation": "tatami.generation", "runtime": "tatami.runtime"}
_DTYPES = frozenset([
    "bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "fp16", "bf16", "fp32", "fp64",
    "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f4e2m1", "i4", "u4", "i2", "u2",
])  # fmt: skip
__all__ = [*_WHERE, *_MODULES, *sorted(_DTYPES)]


def __getattr__(name: str) -> Any:
    if name in _DTYPES:
        return getattr(import_module("tatami.core.dtype").DType, name)
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'tatami' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_WHERE, *_DTYPES})
