"""Verification of a C Source before it is written to files and called. The text itself is trusted or not (D2.20), never
checked."""

from __future__ import annotations

import re

from tatami.c.abi import abi
from tatami.c.ir import Source
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.module import Module

_FILE = re.compile(r"[A-Za-z0-9_]{1,120}\.c")


def verify(module: Module[Source]) -> list[Diagnostic]:
    """Faults of unit names that are not plain file names, and of text made for another calling convention."""
    out: list[Diagnostic] = []
    for name, source in module.programs.items():
        for unit in source.units:
            if _FILE.fullmatch(unit) is None:
                why = "the name of a unit is letters, digits and _, then .c"
                out.append(diagnostic("InvalidDocument", f"{name}: {unit[:80]!r}", why, "rename the unit"))
        if source.abi != abi():
            out.append(
                diagnostic(
                    "InvalidDocument",
                    f"{name}: abi",
                    f"the text was made for the calling convention {source.abi or 'unknown'}, not for {abi()}",
                    f"restart from the execution document; if you adapted the text by hand, write abi {abi()}",
                )
            )
    return out
