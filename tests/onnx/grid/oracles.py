"""Results of ONNX's reference evaluator and ONNX Runtime for a case, and the comparison of two results."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tests.onnx.grid.cases import Case, model
from tests.onnx.grid.values import DTYPES

TOLERANCES = {"float64": 1e-6, "float32": 1e-4, "float16": 6e-3, "bfloat16": 5e-2}
"""Relative error by dtype, and the same part of the largest number as absolute error; other dtypes are exact."""
_TEXT = ("O", "U", "S", "T")
_NATIVE = ("b", "i", "u", "f")


@dataclass(frozen=True)
class Answer:
    """Results, or why there are none."""

    values: tuple[Any, ...] | None
    why: str = ""


def reference(case: Case) -> Answer:
    from onnx.reference import ReferenceEvaluator

    made, feeds, _ = model([case])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return Answer(tuple(ReferenceEvaluator(made).run(None, feeds)))
        except Exception as error:  # the evaluator raises whatever numpy raises
            return Answer(None, _brief(error))


def onnxruntime(case: Case) -> Answer:
    """ONNX Runtime without graph optimisations, one thread. It takes no arrays of the small types."""
    from tests.onnx.plain_session import plain_session

    made, feeds, _ = model([case])
    if any(a.dtype.kind not in _NATIVE or a.dtype == ml_dtypes.bfloat16 for a in feeds.values()):
        return Answer(None, "arrays of this type cannot be given to it")
    try:
        session = plain_session(made)
        values = session.run(None, feeds)
        types = [o.type.removeprefix("tensor(").removesuffix(")") for o in session.get_outputs()]
        return Answer(tuple(_typed(v, t) for v, t in zip(values, types, strict=True)))
    except Exception as error:  # its error types are private
        return Answer(None, _brief(error))


def _typed(value: Any, name: str) -> Any:
    """ONNX Runtime gives small types as the bytes that hold them."""
    kind = DTYPES.get(name)
    if kind is None or not isinstance(value, np.ndarray) or value.dtype == kind:
        return value
    if value.dtype.itemsize == kind.itemsize and name.startswith(("float8", "bfloat16")):
        return value.view(kind)
    raise TypeError(f"{name} is given as {value.dtype}")


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:140] if str(error) else ''}"


def difference(got: Any, wanted: Any, loosely: bool = False, floor: bool = True) -> str:
    """Empty where two lists of results are the same, else the first thing that differs. loosely: dtype and shape only.
    floor: results near zero may differ by a rounding of 1."""
    if isinstance(wanted, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(wanted):
            return f"{len(got) if isinstance(got, list | tuple) else type(got).__name__} values, not {len(wanted)}"
        return next((d for g, w in zip(got, wanted, strict=True) if (d := difference(g, w, loosely, floor))), "")
    if wanted is None or got is None:
        return "" if wanted is got else f"{got}, not {wanted}"
    a, b = np.asarray(got), np.asarray(wanted)
    if a.dtype.kind in _TEXT and b.dtype.kind in _TEXT:
        a, b = a.astype(object), b.astype(object)
    if a.dtype != b.dtype:
        return f"dtype {a.dtype}, not {b.dtype}"
    if a.shape != b.shape:
        return f"shape {a.shape}, not {b.shape}"
    if loosely or a.size == 0:
        return ""
    tolerance = TOLERANCES.get(b.dtype.name)
    if tolerance is None:
        same = (a == b) | ((a != a) & (b != b)) if b.dtype.kind not in _TEXT else a == b
    else:
        with np.errstate(all="ignore"):
            x, y = a.astype(np.float64), b.astype(np.float64)
            finite = np.abs(y[np.isfinite(y)])
            scale = float(np.median(finite[finite > 0])) if (finite > 0).any() else 0.0
            info = ml_dtypes.finfo(b.dtype)
            least = float(info.eps if floor else info.tiny)
            same = np.isclose(x, y, rtol=tolerance, atol=max(tolerance * scale * 0.1, least), equal_nan=True)
    if same.all():
        return ""
    place = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{int((~same).sum())} of {a.size} differ, at {place}: {a[place]}, not {b[place]}"


def model_text(case: Case) -> str:
    """The node of a case as text, for a report."""
    made, feeds, _ = model([case])
    return (
        onnx.printer.to_text(made.graph.node[-1])
        + "\n"
        + "\n".join(f"  {k}: {v.dtype}{list(v.shape)}" for k, v in feeds.items())
    )
