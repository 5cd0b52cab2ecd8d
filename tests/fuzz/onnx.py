"""Random ONNX models against ONNX Runtime and onnx.reference: the kernels agree with one of them, or all refuse.

    python -m tests.fuzz.onnx --seeds 0-500
    python -m tests.fuzz.onnx --seeds 0-5000 --seconds 3600

A difference counts where ONNX Runtime and the reference evaluator agree with each other and not with the kernels; where the two
differ, the kernels have to agree with one of them. A model that ONNX Runtime runs has to be taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tests.fuzz.campaign import run_campaign
from tests.fuzz.onnx_steps import random_model
from tests.onnx.plain_session import plain_session

Arrays = list[np.ndarray]


def by_runtime(model: onnx.ModelProto, calls: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays | None]:
    """The outputs of each call; None where ONNX Runtime has no answer."""
    try:
        session = plain_session(model)
    except Exception:
        return [None for _ in calls]
    return [_tried(lambda given=given: session.run(None, dict(given))) for given in calls]


def by_reference(model: onnx.ModelProto, calls: Sequence[Mapping[str, np.ndarray]]) -> list[Arrays | None]:
    evaluator = ReferenceEvaluator(model)
    return [_tried(lambda given=given: evaluator.run(None, dict(given))) for given in calls]


def _tried(call: Any) -> Arrays | None:
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            return [np.asarray(a) for a in call()]
    except Exception:
        return None


def agree(a: np.ndarray, b: np.ndarray) -> bool:
    """True if both have the same shape and the same values up to rounding."""
    if a.shape != b.shape:
        return False
    if a.dtype.kind not in "f":
        return bool((a == b).all())
    with np.errstate(all="ignore"):
        size = np.abs(b[np.isfinite(b)]).max(initial=0.0) if a.size else 0.0
        return bool(np.allclose(a, b, rtol=2e-3, atol=1e-5 + 1e-5 * min(float(size), 1e30), equal_nan=True))


def check(seed: int) -> str:
    """The fault of one model; "" if there is none."""
    model, calls = random_model(seed)
    operators = " ".join(n.op_type for n in model.graph.node)
    expected, other = by_runtime(model, calls), by_reference(model, calls)
    try:
        f: Any = tt.compile(model, target="cpu", threads=1)
    except TatamiError as error:
        if expected[0] is None or _is_empty_window(error, model, calls[0]):
            return ""
        return f"refused {str(error).splitlines()[0][:200]} in {operators}"
    names = [o.name for o in model.graph.output]
    for given, wanted, also in zip(calls, expected, other, strict=True):
        try:
            out = f({n: a.copy() for n, a in given.items()})
        except TatamiError as error:
            if wanted is None or _is_empty_window(error, model, given):
                continue
            return f"refused at the call {str(error).splitlines()[0][:200]} in {operators}"
        for k, name in enumerate(names):
            got = np.asarray(out[name])
            answers = [a[k] for a in (wanted, also) if a is not None]
            if answers and not any(agree(got, a) for a in answers):
                return f"{name} {got.dtype}{list(got.shape)} differs, expected {list(answers[0].shape)}: {_first(got, answers[0])} in {operators}"
    return ""


def _is_empty_window(error: TatamiError, model: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> bool:
    """True if a window longer than its line is refused here (E1304), and gives the reference evaluator no element.

    For a stride of 2 or more ONNX Runtime has one: it divides -1 by the stride to 0, and reads a part of a window.
    """
    if error.diagnostics[0].code != "E1304":
        return False
    values = _tried(lambda: ReferenceEvaluator(model).run(None, dict(given), intermediate=True).values())
    return any(not a.size for a in values or ())


def _first(got: np.ndarray, wanted: np.ndarray) -> str:
    if got.shape != wanted.shape:
        return "another shape"
    a, b = got.reshape(-1), wanted.reshape(-1)
    at = next((k for k in range(a.size) if not agree(a[k : k + 1], b[k : k + 1])), 0)
    return f"[{at}] {a[at]} for {b[at]}"


if __name__ == "__main__":
    raise SystemExit(run_campaign(__doc__, check))
