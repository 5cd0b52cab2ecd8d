"""The exchange form of gpu programs: a statement is ``{"TmaLoad": {…}}`` as in spec 3 §9.3, everything else plain.

{"stmt": "Wait", "token": […]}   <->   {"Wait": {"token": […]}}
"""

from __future__ import annotations

from typing import Any, get_args

from tatami.core.codec import from_builtins, to_builtins
from tatami.core.diagnostic import fail
from tatami.gpu.ir import Program, Stmt

NAMES = frozenset(str(s.__struct_config__.tag) for s in get_args(Stmt))
"""Names of the statements, their keys in JSON."""


def encode(program: Program) -> Any:
    """The program in plain Python values for JSON."""
    value = to_builtins(program)
    for kernel in value["kernels"]:
        if "body" in kernel:
            kernel["body"] = [_outside(s) for s in kernel["body"]]
    return value


def decode(value: Any, at: str = "gpu", *, trust: bool = False) -> Program:
    """The program. Raises TatamiError InvalidDocument, naming an unknown statement."""
    if isinstance(value, dict) and isinstance(value.get("kernels"), list):
        kernels = []
        for i, kernel in enumerate(value["kernels"]):
            if isinstance(kernel, dict) and isinstance(kernel.get("body"), list):
                kernel = {**kernel, "body": [_inside(s, f"{at}: kernel {i}") for s in kernel["body"]]}
            kernels.append(kernel)
        value = {**value, "kernels": kernels}
    return from_builtins(value, Program, at, trust=trust)


def _outside(s: dict[str, Any]) -> dict[str, Any]:
    fields = {k: v for k, v in s.items() if k != "stmt"}
    if "body" in fields:
        fields["body"] = [_outside(x) for x in fields["body"]]
    return {s["stmt"]: fields}


def _inside(s: Any, at: str) -> Any:
    if not isinstance(s, dict) or len(s) != 1:
        raise fail("InvalidDocument", at, "a statement is an object with one key, its name", 'write {"Wait": {…}}')
    ((name, fields),) = s.items()
    if name not in NAMES or not isinstance(fields, dict):
        raise fail("InvalidDocument", at, f"no statement is called {name!r}", f"statements are {', '.join(sorted(NAMES))}")
    if isinstance(fields.get("body"), list):
        fields = {**fields, "body": [_inside(x, at) for x in fields["body"]]}
    return {"stmt": name, **fields}
