"""Verification of a CUDA Source before it is written to files. The text itself is trusted or not (D2.20), never checked."""

from __future__ import annotations

import re

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.module import Module
from tatami.cu.ir import Source

_NAME = re.compile(r"[A-Za-z0-9_]{1,120}(\.cuh)?")


def verify(module: Module[Source]) -> list[Diagnostic]:
    """Faults of names of units and headers that are not plain file names."""
    return [
        diagnostic("InvalidDocument", f"{name}: {word[:80]!r}", "a file name is letters, digits and _", "rename it")
        for name, source in module.programs.items()
        for word in (*(u.symbol for u in source.units), *source.headers)
        if _NAME.fullmatch(word) is None
    ]
