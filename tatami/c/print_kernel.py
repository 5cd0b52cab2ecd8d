"""One kernel as one C translation unit: gnu17 with vector extensions, no immintrin.h (notes: cpu §7)."""

from __future__ import annotations

from tatami.c.ir import Unit
from tatami.core.diagnostic import fail
from tatami.loop.ir import Kernel


def print_kernel(kernel: Kernel) -> Unit:
    """The unit that defines ``int <face.symbol>(void* const* buffers, const int64_t* sizes, tatami_pool* pool)``."""
    raise fail("InvalidExecution", kernel.face.symbol, "kernels cannot be printed yet", "use target reference")
