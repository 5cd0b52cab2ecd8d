"""Domain com.microsoft.nchwc: images whose channels are in blocks of one vector, the form that ONNX Runtime writes at its
highest level of optimisation.

A blocked image is declared as [N, C, H, W] with C rounded up to a whole block; only ReorderInput, ReorderOutput and the
filters show that memory has another order. Here an image stays [N, C, H, W] with channels of zeros at its end: plain operators
between two of this domain mean the same, and a ReorderOutput followed by a ReorderInput has no effect if C is whole.

    ReorderInput     pad the channels to whole blocks
    ReorderOutput    the first `channels` of them
    Conv             filters [O/b, I/b, H, W, b, b] or, if I is 1 or not a whole number of blocks, [O/b, I, H, W, b], reordered
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx

from tatami.core.expr import Expr, ceildiv, expr
from tatami.onnx.arithmetic import Num
from tatami.onnx.images.pool import POOL
from tatami.onnx.images.resize import RESIZE
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.images.convolution import channels_first, channels_last, fused_conv
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value

DOMAIN = "com.microsoft.nchwc"
"""The domain of operators on blocked images."""
NARROW, WIDE = 8, 16
"""Channels in a block: fp32 elements of a vector of 256 or of 512 bits."""


def block_of(nodes: Iterable[onnx.NodeProto], arrays: Callable[[str], np.ndarray | None]) -> int:
    """Channels in a block on the machine that saved the model. The model does not record it, but its filters show it if a
    number of channels is not a multiple of 16, or channels were padded to one. Otherwise this machine's, as in ONNX
    Runtime, which reads such a model correctly only on that kind of machine."""
    for node in nodes:
        if node.domain == DOMAIN and node.op_type == "Conv":
            filters = arrays(node.input[1])
            found = 0 if filters is None else _shown_by(filters)
            if found:
                return found
    return _own_block()


def _shown_by(filters: np.ndarray) -> int:
    outputs, inputs = filters.shape[:2]
    if outputs % WIDE or (inputs > WIDE and inputs % WIDE):
        return NARROW
    last = filters.reshape(outputs // WIDE, -1, WIDE)[-1]
    return WIDE if last.any() and not last[:, NARROW:].any() else 0


@lru_cache(maxsize=1)
def _own_block() -> int:
    if platform.machine().lower() in ("aarch64", "arm64"):
        return WIDE
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return NARROW
    return WIDE if "avx512f" in flags else NARROW


def _whole(channels: Expr, block: int) -> Expr:
    return ceildiv(channels, expr(block)) * block


def _reorder_input(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    x = channels_first(m, x) if n.attr("channels_last", 0) else x
    shape = m.shape(x)
    more = _whole(shape[1], m.channel_block) - shape[1]
    if more == 0:
        return [m.result(x)]
    pads = [(expr(0), expr(0)) for _ in shape]
    pads[1] = (expr(0), more)
    return [m.result(m.one("pad", [x], {"pads": tuple(pads)}))]


def _reorder_output(m: Importer, n: OnnxNode) -> list[Value]:
    x = Num(m, m.operand(n, 0))
    channels = expr(n.attr("channels", 0))
    x = x if x.shape[1] == channels else x.part(1, 0, channels)
    return [m.result(channels_last(m, x.tensor) if n.attr("channels_last", 0) else x.tensor)]


def _conv(m: Importer, n: OnnxNode) -> list[Value]:
    array = m.known(m.value(n.inputs[1]))
    filters = _in_order(m, m.operand(n, 1)) if array is None else m.add_constant(_array_in_order(array, m.channel_block))
    others = [m.operand(n, position) for position in range(2, len(n.inputs))]
    return [m.result(fused_conv(m, n, [m.operand(n, 0), filters, *others]))]


def _blocks(outputs: int, inputs: int, window: Sequence[int], block: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(axes of blocked filters in memory, permutation that puts them in order). Depthwise filters, and filters of an image
    that is not blocked, have blocks of outputs only."""
    if inputs % block:
        return (outputs // block, inputs, *window, block), (0, 4, 1, 2, 3)
    return (outputs // block, inputs // block, *window, block, block), (0, 5, 1, 4, 2, 3)


def _array_in_order(filters: np.ndarray, block: int) -> np.ndarray:
    """Constant filters reordered to [O, I, H, W]: kernels other than products would divide at each read of blocked ones."""
    outputs, inputs, *window = filters.shape
    axes, order = _blocks(outputs, inputs, window, block)
    return np.ascontiguousarray(filters.reshape(axes).transpose(order).reshape(filters.shape))


def _in_order(m: Importer, filters: str) -> str:
    """Filters that the model computes, reordered to [O, I, H, W]."""
    shape = [s.as_int() or 0 for s in m.shape(filters)]
    axes, order = _blocks(shape[0], shape[1], shape[2:], m.channel_block)
    return Num(m, filters).reshape(*axes).permute(*order).reshape(*shape).tensor


BLOCKED: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Conv": _conv,
    "MaxPool": POOL["MaxPool"],
    "AveragePool": POOL["AveragePool"],
    "GlobalAveragePool": POOL["GlobalAveragePool"],
    "GlobalMaxPool": POOL["GlobalMaxPool"],
    "Upsample": RESIZE["Upsample"],
}
"""Handlers of this file by operator."""
