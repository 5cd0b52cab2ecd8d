"""One kernel as one C translation unit: gnu17 with vector extensions, no immintrin.h (notes: cpu §7).

definitions it needs (vector types, math functions)
micro-kernels
one static function per Parallel statement (a chunk)
int <symbol>(void* const* buffers, const int64_t* sizes, tatami_pool* pool)
"""

from __future__ import annotations

import re

from tatami.c.ir import Unit
from tatami.c.kernels.kernel_printer import KernelPrinter
from tatami.core.custom.verbatim import VerbatimCode
from tatami.loop.ir import (
    Kernel,
)

_HEAD = '#include <stdint.h>\n#include <string.h>\n#include "tatami.h"\n'

_MATH_HEAD = "#include <math.h>\n"
"""Included only if needed: reading it takes a third of the time of a small kernel."""

_CALLED = re.compile(r"[a-z]\w*(?=\()")

_OF_MATH = """
acos asin atan atan2 cos sin tan acosh asinh atanh cosh sinh tanh exp exp2 expm1 frexp ilogb ldexp log log10 log1p log2 logb modf
scalbn scalbln cbrt fabs hypot pow sqrt erf erfc lgamma tgamma ceil floor nearbyint rint lrint llrint round lround llround trunc
fmod remainder remquo copysign nan nextafter nexttoward fdim fmax fmin fma fpclassify isfinite isinf isnan isnormal signbit
"""
_MATH = frozenset(f"{name}{kind}" for name in _OF_MATH.split() for kind in ("", "f"))
"""Names that <math.h> declares (C17, 7.12)."""


_SIDE_BY_SIDE = """#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize ("schedule-insns", "sched-pressure")
#endif
"""
"""gcc for x86 interleaves instructions of several statements only on request, before it assigns registers."""


def print_kernel(kernel: Kernel) -> Unit:
    """The unit that defines ``int <face.symbol>(void* const* buffers, const int64_t* sizes, tatami_pool* pool)``."""
    return unit_of(KernelPrinter(kernel))


def unit_of(printer: KernelPrinter) -> Unit:
    """The unit of the printer's kernel."""
    kernel = printer.k
    functions = [printer.function(f) for f in kernel.functions]
    main = printer.kernel()
    about = f"/* {kernel.about} */\n" if kernel.about else ""
    about += _SIDE_BY_SIDE if kernel.side_by_side else ""
    parts = [printer.routines(), printer.needs.text(), *functions, *printer.chunks, main]
    text = "\n".join(p for p in parts if p) + "\n"
    head = about + (_HEAD if _MATH.isdisjoint(_CALLED.findall(text)) else _MATH_HEAD + _HEAD)
    return Unit(VerbatimCode(f"{head}\n{text}"), kernel.contract, light=bool(printer.called) or kernel.is_run_once)
