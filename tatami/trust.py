"""Which documents carry code that a user wrote (DESIGN D2.20): bodies of custom kernels, in the stage they stand in.

A graph built in this process is its caller's own. A document is data: what would be compiled and run from it needs
`--trust` (trust=True). The stages `c` and `cu`, which are nothing but code, are refused where they are read (dump.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tatami.core.diagnostic import fail
from tatami.core.module import Module


def refuse_code(given: Mapping[str, Module[Any]], at: str) -> None:
    """Raise Untrusted, once, when a stage holds a body."""
    for stage, module in given.items():
        for name, program in module.programs.items():
            place = body_in(stage, program)
            if place:
                raise fail(
                    "Untrusted",
                    at,
                    f"{stage} {name}: {place[:80]} is a custom kernel, code that would be compiled and run",
                    "pass --trust (trust=True) if you wrote it yourself",
                )


def body_in(stage: str, program: Any) -> str:
    """Where a program of a stage holds the text of a body; empty where it holds none."""
    match stage.split("@")[0]:
        case "frontend":
            return next((n.name for n in program.graph if n.op == "kernel_body"), "")
        case "tiny":
            return next((n.id for n in program.nodes if getattr(n.op, "targets", ()) == ("custom",)), "")
        case "region":
            opaque = ((i.name, getattr(i, "opaque", None)) for i in program.body)
            return next((name for name, o in opaque if o is not None and o.routine == "custom"), "")
        case "loop":
            return next((symbol for symbol, k in program.kernels.items() if k.user is not None), "")
        case "gpu":
            return next((k.face.symbol for k in program.kernels if hasattr(k, "preamble")), "")
        case _:
            return ""
