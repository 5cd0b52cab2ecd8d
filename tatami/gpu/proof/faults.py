"""The two kinds of faults of a kernel: of its order, and of its facts."""

from __future__ import annotations

from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.gpu.ir import AnyKernel, Kernel


def hazardous(kernel: Kernel, statement: str, why: str) -> Diagnostic:
    """TokenHazard at `statement`."""
    return diagnostic(
        "TokenHazard",
        f"{kernel.face.symbol or 'kernel'}: {statement}",
        why,
        "restore the statement order that the template gives: load, commit or expect, Wait, use, free",
    )


def invalid(kernel: AnyKernel, at: str, why: str) -> Diagnostic:
    """InvalidDocument at a name of the kernel."""
    return diagnostic("InvalidDocument", f"{kernel.face.symbol or 'kernel'}: {at}", why, "repair the kernel's memory plan")
