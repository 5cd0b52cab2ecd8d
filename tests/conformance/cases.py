"""ONNX's own backend test suite, run through `tatami.onnx.backend`: what each case comes to, and why.

The cases and the comparison are those of `onnx.backend.test.runner` as they stand: equal dtypes and shapes, values
within the suite's tolerance (rtol 1e-3, atol 1e-7 unless a case says otherwise). Nothing is excluded; the backend calls
every model compatible.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import onnx

from tatami.backends.onnx_api import OnnxBackend, Prepared
from tatami.core.diagnostic import TatamiError

VERSION = "1.23.2"
TOTALS = {"node": 1884, "simple": 23, "real": 9, "pytorch-converted": 82, "pytorch-operator": 35}
"""The number of cases of that version by group."""
_CATEGORIES = {
    "node": "NodeModel",
    "simple": "SimpleModel",
    "real": "RealModel",
    "pytorch-converted": "PyTorchConvertedModel",
    "pytorch-operator": "PyTorchOperatorModel",
}


class Recorded(OnnxBackend):
    """The backend, keeping what it prepared last: its path is part of the report."""

    last: Prepared | None = None

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        Recorded.last = None
        Recorded.last = Prepared(model, threads=1)
        return Recorded.last


@dataclass(frozen=True)
class Case:
    group: str
    name: str
    run: Callable[..., Any]
    operator: str = ""


@dataclass(frozen=True)
class Outcome:
    passed: bool
    path: str = ""
    reason: str = ""
    host_steps: tuple[str, ...] = ()


def load_cases(*groups: str) -> list[Case]:
    """The cases of these groups (all when none is named), by group and name."""
    os.environ.setdefault("ONNX_MODELS", os.path.join(tempfile.mkdtemp(prefix="tatami-onnx-"), "light"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest
        from onnx.backend.test.loader import load_model_tests

        items = BackendTest(Recorded, __name__)._test_items
        operators = {c.name: operator_of(c.name, c.model) for c in load_model_tests(kind="node")}
    out: list[Case] = []
    for group in groups or TOTALS:
        for name, item in sorted(items[_CATEGORIES[group]].items()):
            if name.endswith("_cpu"):
                short = name.removesuffix("_cpu")
                out.append(Case(group, short, item.func, operators.get(short, "")))
    return out


def operator_of(name: str, model: onnx.ModelProto) -> str:
    """The operator a node case is about: its first node, or the operator whose expansion it is."""
    node = model.graph.node[0]
    if "_expanded" in name:
        return "function bodies"
    prefix = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return f"{prefix}{node.op_type}"


def run_case(case: Case) -> Outcome:
    """The suite's own function of the case."""
    Recorded.last = None
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        try:
            case.run(None)
            reason = ""
        except TatamiError as error:
            reason = "; ".join(f"{d.kind}: {d.why.splitlines()[0][:160]}" for d in error.diagnostics[:1])
        except AssertionError as error:
            reason = _difference(str(error))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            first = str(error).splitlines()[0][:120] if str(error) else ""
            reason = f"fault: {type(error).__name__}: {first}"
    made: Prepared | None = getattr(Recorded, "last")  # noqa: B009  the run sets it
    if reason or made is None:
        return Outcome(False, reason=reason or "nothing was prepared: the suite skipped it")
    steps = tuple(sorted({s for p in made.programs.values() for s in p.host_steps}))
    return Outcome(True, made.path, host_steps=steps)


def _difference(message: str) -> str:
    """The telling line of numpy's report."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("Mismatched", "Output", "(shapes", "x and y"))]
    return (telling or lines or ["differs"])[0][:160]
