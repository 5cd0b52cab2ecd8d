"""The interface of a kernel, and how a Region uses kernels: promised by the code layers, called by execution.

Names of kernels are counters, never a user's word."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tatami.core.algebra.visit import evaluate, rebuild
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, exact_div, var


class KernelParam(msgspec.Struct, frozen=True):
    """One pointer argument, in call order."""

    dtype: DType
    written: bool


class KernelFace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The interface of a kernel. C form: ``int symbol(void* const* buffers, const int64_t* sizes, tatami_pool* pool)``; the
    buffers are `params` in order, the sizes are the values of `sizes` size arguments. A result other than 0 is a run-time
    fault (1: index out of range). A workspace, if any, is one more buffer at the end."""

    symbol: str
    params: tuple[KernelParam, ...]
    sizes: int
    key: str
    """Content hash of the kernel's meaning: equal keys share text and object."""
    in_place: tuple[tuple[int, int], ...] = ()
    """(position of an input, position of an output) that may share memory if the input is not used afterwards."""


class Condition(msgspec.Struct, frozen=True):
    """A condition on sizes: ``size % divisor == 0`` and ``low <= size <= high`` (0: no upper limit)."""

    size: Expr
    divisor: int = 1
    low: int = 0
    high: int = 0


def is_met(c: Condition, sizes: Mapping[str, int]) -> bool:
    """True if the condition holds for these `sizes`, which have a value for each of its symbols."""
    value = evaluate(c.size, sizes)
    return value % c.divisor == 0 and value >= c.low and (not c.high or value <= c.high)


def condition_text(c: Condition) -> str:
    """The text of a condition in the dumps of every layer: ``K % 8 == 0 and 1 <= K``."""
    parts = []
    if c.divisor != 1:
        parts.append(f"{c.size} % {c.divisor} == 0")
    if c.low:
        parts.append(f"{c.low} <= {c.size}")
    if c.high:
        parts.append(f"{c.size} <= {c.high}")
    return " and ".join(parts) or "always"


MOST_BLOCKS, MOST_BLOCKS_BESIDE = 2**31 - 1, 65535
"""Maximum number of blocks of a GPU's grid along x, and along y and z."""


LARGE_GRID = "leave the plan's `bind` to the compiler, or put all its tiles on block.x; or use a larger tile"
"""The suggestion for a grid that breaks a limit."""


def grid_fault(grid: tuple[int, ...]) -> str:
    """The limit of the hardware that a grid breaks, with both numbers; "" if it breaks none."""
    for name, count, most in zip("xyz", grid, (MOST_BLOCKS, MOST_BLOCKS_BESIDE, MOST_BLOCKS_BESIDE)):
        if count > most:
            return f"the grid has {count} blocks along {name}, where a GPU counts {most}"
    return ""


class Window(msgspec.Struct, frozen=True):
    """The range of an im2col map over w and h: from `lower` on, in `steps`, below the tensor's size + `upper`."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]


class TensorMapSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A TMA descriptor over a buffer: dims innermost first, strides in bytes from dimension 1, box, swizzle bytes. `tf32`:
    elements of fp32 arrive rounded to 10 fraction bits, ties to even. `window`: of an im2col map,
    whose box is (channels of a pixel, pixels). Parameter number `position` of the kernel."""

    buffer: str
    dims: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    position: int = 0
    tf32: bool = False
    window: Window | None = None


class LocalBytes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes of local buffers of known size in a CPU kernel: `caller`, in the calling thread; `helper`, in each thread that
    shares its work."""

    caller: int = 0
    helper: int = 0


class Binding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a kernel on behalf of a Region.

    A program of a code layer holds `bindings` in call order. The bindings of one Region with the same `choice` run
    one after the other; the choices of a Region are alternatives, in order: the first whose `conditions` all hold is
    taken, the last has none. `buffers` are value ids (the Region's inputs and outputs) or scratch names of
    `scratch`, one per parameter of the kernel; `sizes` are the size arguments over the program's symbols.
    """

    region: str
    kernel: str
    """The symbol of a KernelFace."""
    buffers: tuple[str, ...]
    sizes: tuple[Expr, ...] = ()
    choice: int = 0
    conditions: tuple[Condition, ...] = ()
    workspace: Expr = msgspec.field(default_factory=lambda: ZERO)
    """Bytes of memory, private to this call, passed as the last buffer; the symbol THREADS is the pool's size."""
    scratch: tuple[tuple[str, Expr], ...] = ()
    """Buffers (name, bytes) between the kernels of one choice, declared by the first kernel that uses them."""
    grid: tuple[Expr, ...] = ()
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    shared_bytes: int = 0
    dependent: bool = False
    """True if the kernel is launched while the kernel before it ends, and waits itself."""
    tensor_maps: tuple[TensorMapSpec, ...] = ()
    local_bytes: LocalBytes = LocalBytes()


THREADS = "threads'"
"""The size symbol that stands for the number of threads of the pool in `Binding.workspace`."""


def is_divisible(e: Expr, by: int, conditions: tuple[Condition, ...] = ()) -> bool:
    """True if `e` is a multiple of `by` at every index, given the `conditions`."""
    if by == 1:
        return True
    promised = {c.size.as_name(): c.divisor for c in conditions if c.size.as_name() is not None}
    known = rebuild(e, lambda v: var(v.name) * promised.get(v.name, 1))
    if all(c % by == 0 for _, c in known.terms):
        return True
    return any(c.divisor % by == 0 and exact_div(e, c.size) is not None for c in conditions)
