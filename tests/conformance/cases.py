"""The node cases of onnx.backend.test and what Tatami makes of one: pass, or the reason why not.

A case passes when every output has exactly the expected dtype and shape and lies within the suite's own tolerance
(rtol 1e-3, atol 1e-7; bf16 rtol 2^-6). A case whose axes, shapes or counts are inputs of its model is compiled for
the values of these inputs and told apart as specialised.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tatami.api import build, prepare
from tatami.core.diagnostic import TatamiError

VERSION = "1.23.2"
TOTAL = 1884
"""The number of node cases of that version."""
BF16_RTOL = 2.0**-6


@dataclass(frozen=True)
class Outcome:
    passed: bool
    specialised: bool = False
    reason: str = ""


def load_cases() -> list[Any]:
    """Every node case, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return sorted(load_model_tests(kind="node"), key=lambda c: str(c.name))


def operator_of(case: Any) -> str:
    """The operator a case is about: its first node, or the operator whose expansion it is."""
    node = case.model.graph.node[0]
    name = str(case.name)
    if "_expanded" in name:
        return "function bodies"
    prefix = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return f"{prefix}{node.op_type}"


def run_case(case: Any, target: str = "cpu") -> Outcome:
    """Compile the case's model, run it on each of its data sets, compare."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _run(case, target, specialise=False)
        except TatamiError as error:
            first = error.diagnostics[0]
            if "inputs" not in first.details:
                return Outcome(False, reason=_words(first))
        try:
            return _run(case, target, specialise=True)
        except TatamiError as error:
            return Outcome(False, reason=_words(error.diagnostics[0]))


def _words(d: Any) -> str:
    return f"{d.kind}: {d.why.splitlines()[0][:160]}"


def _run(case: Any, target: str, specialise: bool) -> Outcome:
    names = [i.name for i in case.model.graph.input]
    function: Any = None
    for inputs, outputs in case.data_sets:
        arrays = {n: _array(x) for n, x in zip(names, inputs, strict=False)}
        try:
            if function is None or specialise:
                function = build(prepare(case.model, example_inputs=arrays if specialise else None, target=target), threads=1)
            got = function({a.tensor: arrays[a.tensor] for a in function.arguments})
        except TatamiError:
            raise
        except Exception as error:  # a fault of ours, reported with its words
            return Outcome(
                False, specialise, f"fault: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
            )
        for port, expected in zip(case.model.graph.output, outputs, strict=True):
            why = difference(np.asarray(got[port.name]), np.asarray(_array(expected)), case.rtol, case.atol)
            if why:
                return Outcome(False, specialise, f"{port.name}: {why}")
    return Outcome(True, specialise)


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value if isinstance(value, list) or value is None else np.asarray(value)


def difference(got: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    """Empty when the arrays agree."""
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if got.dtype.name == "bfloat16":
        rtol = max(rtol, BF16_RTOL)
    if got.dtype.kind in "fV":
        a, b = got.astype(np.float64), expected.astype(np.float64)
        close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    else:
        close = got == expected
    wrong = int(close.size - np.count_nonzero(close))
    return f"{wrong} of {close.size} elements differ" if wrong else ""
