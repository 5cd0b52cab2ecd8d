"""Checks of kernels: token edges, barrier models, memory, and the protocol of roles, slots and phases (D2.13).

`prove.explore` walks the states of the abstract machine to a fixpoint, with every trip count and number of tiles;
`prove.simulate` runs the trip counts 0, 1 and 2 in two orders.
"""

from __future__ import annotations

import re
from typing import assert_never

import msgspec

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import Diagnostic, diagnostic
from tatami.core.module import Module
from tatami.gpu.ir import AnyKernel, BodyKernel, Kernel, Program
from tatami.gpu.proof.faults import hazardous, invalid
from tatami.gpu.proof.protocol import protocol_hazard
from tatami.gpu.proof.state import Hazard
from tatami.gpu.proof.values import check_values
from tatami.gpu.proof.verify_blocks import check_blocks, check_dependency
from tatami.gpu.proof.verify_memory import check_memory
from tatami.gpu.proof.verify_stream import verify_sort, verify_stream
from tatami.gpu.proof.verify_stream_k import check_rows, check_units
from tatami.gpu.proof.verify_tokens import check_tokens
from tatami.gpu.statement_ir import GridDependency
from tatami.gpu.stream_ir import SortKernel, StreamKernel


def verify(module: Module[Program]) -> list[Diagnostic]:
    """All faults of all kernels; for the protocol, the first hazard of each kernel."""
    out: list[Diagnostic] = []
    seen: set[str] = set()
    for program in module.programs.values():
        kernels = {k.face.symbol: k for k in program.kernels}
        for k in program.kernels:
            if k.face.symbol not in seen:
                seen.add(k.face.symbol)
                out += verify_any(k)
        out += check_rows(program)
        for b in program.bindings:
            bound = kernels.get(b.kernel)
            if bound is None:
                out.append(diagnostic("InvalidDocument", b.region, f"kernel {b.kernel} is not defined", "add it to kernels"))
            elif b.dependent and not (isinstance(bound, Kernel) and GridDependency() in bound.body):
                why = f"it may begin while the kernel before it still writes, and {b.kernel} has no GridDependency to wait"
                out.append(
                    diagnostic("TokenHazard", b.region, why, "drop `dependent`, or begin the kernel with GridDependency")
                )
    return out


def verify_any(kernel: AnyKernel) -> list[Diagnostic]:
    """Faults of one kernel of any kind."""
    match kernel:
        case Kernel():
            return verify_kernel(kernel)
        case StreamKernel():
            return check_words(kernel) or verify_stream(kernel)
        case SortKernel():
            return check_words(kernel) or verify_sort(kernel)
        case BodyKernel():
            return check_words(kernel)
        case _:
            assert_never(kernel)


_WORD = re.compile(r"-?[A-Za-z0-9_]{0,80}")


def check_words(kernel: AnyKernel) -> list[Diagnostic]:
    """Faults of names, which must not become code: every word of a kernel is letters, digits and _. A user's own text is code
    and needs trust."""
    stack: list[object] = [kernel]
    while stack:
        value = stack.pop()
        if isinstance(value, VerbatimCode):
            continue
        if isinstance(value, str) and _WORD.fullmatch(value) is None:
            return [invalid(kernel, repr(value[:80]), "names in kernels are letters, digits and _")]
        if isinstance(value, msgspec.Struct):
            stack.extend(getattr(value, name) for name in value.__struct_fields__)
        elif isinstance(value, tuple | list):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend((*value, *value.values()))
    return []


def verify_kernel(kernel: Kernel) -> list[Diagnostic]:
    """Faults of a contraction kernel; the protocol is proved if there are no others."""
    out = check_words(kernel)
    if not out and min(kernel.cluster) < 1:
        out = [invalid(kernel, "kernel", f"cluster {kernel.cluster[0]}x{kernel.cluster[1]} has no CTA")]
    if out:
        return out
    out = [
        *check_memory(kernel),
        *check_tokens(kernel),
        *check_dependency(kernel),
        *check_blocks(kernel),
        *check_units(kernel),
    ]
    if not out:
        hazard = protocol_hazard(kernel) or values_hazard(kernel)
        if hazard is not None:
            out.append(hazardous(kernel, hazard.statement, hazard.why))
    return out


def values_hazard(kernel: Kernel) -> Hazard | None:
    """The first statement whose registers do not hold what it takes; None if there is none."""
    try:
        check_values(kernel)
    except Hazard as hazard:
        return hazard
    return None
