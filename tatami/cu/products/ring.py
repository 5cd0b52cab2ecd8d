"""The place of a block of k: the slots of its rings, its barriers and their parities, and the test that it exists."""

from __future__ import annotations

from tatami.core.expr import Expr
from tatami.cu.expr_text import index_text
from tatami.gpu.ir import Barrier, Kernel, Ring


def slot_pitch(kernel: Kernel, ring: Ring) -> int:
    """Distance from one slot to the next in bytes."""
    return ring.tma_pitch if kernel.has_roles else ring.slot_bytes


def guard_text(kernel: Kernel, block: Expr) -> str:
    """C test that the block exists; "" if the loop or the kernel guarantees it."""
    text = index_text(block)
    c = block.as_int()
    if text == "k" or (kernel.uneven and (c == 0 or text == "KB - 1")):
        return ""
    if c is not None:
        return f"{c} < KB"
    if text == "KB - 1":
        return "KB > 0"
    return f"{text.replace('k - ', 'k >= ')}" if text.startswith("k - ") else f"{text} < KB"


def position_text(kernel: Kernel, block: Expr) -> str:
    """C text of the block's number since its rings began."""
    text = index_text(block)
    return text if kernel.ring_origin == "tile" else f"base + {text}"


def slot_text(kernel: Kernel, ring: Ring, block: Expr) -> str:
    """C text of the address of the block's slot."""
    if ring.slots == 1:
        return ring.name
    return f"{ring.name} + ({position_text(kernel, block)}) % STAGES * {slot_pitch(kernel, ring)}"


def barrier_text(kernel: Kernel, b: Barrier, block: Expr, next_one: bool = False) -> str:
    """C text of the address of the block's barrier. `next_one`: the slot of the next warpgroup, if each has its own."""
    if b.in_order:
        return f"{b.name} + 8 * {f'((own + 1) % {b.slots})' if next_one else 'own'}"
    if b.slots == 1:
        return b.name
    return f"{b.name} + ({position_text(kernel, block)}) % STAGES * 8"


def parity_text(kernel: Kernel, b: Barrier, block: Expr, phase: int) -> str:
    """C text of the parity that a wait for the block's barrier needs."""
    if b.in_order:
        rounds = "done" if b.counts == "turns" else position_text(kernel, block)
        return f"({rounds} + (own == 0 ? {phase} : {1 - phase})) & 1"
    if b.counts == "tiles":
        return f"(done + {phase}) & 1"
    at = f"({position_text(kernel, block)}) / STAGES"
    return f"({at} + {phase}) & 1" if phase else f"{at} & 1"
