"""Rules for a node's operands and attributes together, as far as an import can check them: lists of one number per axis,
sizes that are not negative, operands of a certain rank. Handlers rely on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode


def check_operands(m: Importer, n: OnnxNode) -> None:
    """Raise InvalidAttribute or InvalidDocument for a node that breaks a rule of its operator."""
    for position, ranks in _RANKS.get(n.op, {}).items():
        if n.has(position) and _rank(m, n, position) not in ranks:
            wanted = " or ".join(map(str, ranks))
            why = f"operand {position} of {n.op} has {_rank(m, n, position)} axes, not {wanted}"
            raise fail("InvalidDocument", m.site, why, "reshape it before the node")
    rule = _RULES.get(n.op)
    if rule is not None:
        rule(m, n)


def _rank(m: Importer, n: OnnxNode, position: int) -> int | None:
    value = m.value(n.inputs[position])
    return len(m.type_of(value).shape) if value.is_tensor else None


def _listed(m: Importer, n: OnnxNode, name: str, position: int | None = None) -> list[Any] | None:
    """The numbers of an attribute or a constant operand; None if it is absent, or data decide it."""
    if name in n.attrs:
        given = n.attrs[name]
        return list(given) if isinstance(given, list) else [given]
    if position is None or not n.has(position):
        return None
    value = m.value(n.inputs[position])
    if value.sizes is not None:
        return list(value.sizes)
    return None if value.array is None else list(np.asarray(value.array).reshape(-1))


def _length(m: Importer, n: OnnxNode, name: str, given: Sequence[Any] | None, count: int) -> None:
    if given is not None and len(given) != count:
        raise fail("InvalidAttribute", m.site, f"{n.op}: {len(given)} numbers as {name}, not {count}", "give one for each axis")


def _at_least(m: Importer, n: OnnxNode, name: str, given: Sequence[Any] | None, least: int) -> None:
    for v in given or ():
        if isinstance(v, int | np.integer) and v < least:
            raise fail("InvalidAttribute", m.site, f"{n.op}: {name} of {v}", f"give numbers of {least} and more")


def _windows(image: int = 0, needs_kernel: bool = False) -> Callable[[Importer, OnnxNode], None]:
    """Rule of windows: kernel, strides and dilations have one number for each axis after batch and channels, pads two."""

    def rule(m: Importer, n: OnnxNode) -> None:
        rank = _rank(m, n, image)
        if rank is None or rank < 3:
            why = f"the image of {n.op} has {rank} axes: batch, channels and at least one more are needed"
            raise fail("InvalidDocument", m.site, why, "reshape it before the node")
        if needs_kernel and "kernel_shape" not in n.attrs:
            raise fail("InvalidAttribute", m.site, f"{n.op} needs the attribute 'kernel_shape'", "export the model again")
        for name, least in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0)):
            given = _listed(m, n, name)
            _length(m, n, name, given, rank - 2)
            _at_least(m, n, name, given, least)
        wanted = _listed(m, n, "output_shape") if n.op == "ConvTranspose" else None
        if wanted is not None and len(wanted) != rank:  # the list may include batch and channels
            _length(m, n, "output_shape", wanted, rank - 2)
        _at_least(m, n, "output_shape", wanted, 0)
        if n.attr("auto_pad", "NOTSET") == "NOTSET":
            _length(m, n, "pads", _listed(m, n, "pads"), 2 * (rank - 2))
        p = n.attr("p", 2)
        if not (isinstance(p, int | float) and np.isfinite(p) and p > 0):
            raise fail("InvalidAttribute", m.site, f"{n.op} with p={p}", "give a p above 0")

    return rule


def _qlinear_conv(m: Importer, n: OnnxNode) -> None:
    _windows()(m, n)
    _quantized(7)(m, n)


def _resize(m: Importer, n: OnnxNode) -> None:
    rank = _rank(m, n, 0) or 0
    axes = _listed(m, n, "axes")
    count = rank if axes is None else len(axes)
    old = n.op == "Upsample" or m.opset < 11
    scales, sizes = _listed(m, n, "scales", 1 if old else 2), None if old else _listed(m, n, "sizes", 3)
    if scales:
        _length(m, n, "scales", scales, count)
        if not all(np.isfinite(s) and s > 0 for s in scales):
            raise fail("InvalidAttribute", m.site, f"{n.op} by {[float(s) for s in scales]}", "give finite scales above 0")
    elif sizes is not None:
        _length(m, n, "sizes", sizes, count)
        _at_least(m, n, "sizes", sizes, 0)


def _pad(m: Importer, n: OnnxNode) -> None:
    rank = _rank(m, n, 0) or 0
    axes = _listed(m, n, "axes", 3)
    _length(m, n, "pads", _listed(m, n, "pads", 1), 2 * (rank if axes is None else len(axes)))
    value = m.known(m.value(n.inputs[2])) if n.has(2) else None
    if value is not None and value.size != 1:
        raise fail("InvalidDocument", m.site, f"Pad with a fill value of {value.size} elements", "give one number")


def _slice(m: Importer, n: OnnxNode) -> None:
    starts = _listed(m, n, "starts", 1)
    count = len(starts) if starts is not None else None
    for name, position in (("ends", 2), ("axes", 3), ("steps", 4)):
        given = _listed(m, n, name, position)
        count = len(given) if count is None and given is not None else count
        if given is not None and count is not None and len(given) != count:
            why = f"Slice with {count} starts and {len(given)} {name}"
            raise fail("InvalidAttribute", m.site, why, "give one of each for each axis")
    if count is not None and count > (_rank(m, n, 0) or 0):
        raise fail("InvalidAttribute", m.site, f"Slice of {count} axes of {_rank(m, n, 0)}", "name axes that exist")


def _split(m: Importer, n: OnnxNode) -> None:
    parts = _listed(m, n, "split", 1)
    if parts is not None:
        _length(m, n, "split", parts, len(n.outputs))
        _at_least(m, n, "split", parts, 0)
    if not _rank(m, n, 0):
        raise fail("InvalidDocument", m.site, "Split of a tensor without axes", "reshape it before the node")
    count = n.attr("num_outputs")
    if count is not None and count != len(n.outputs):
        raise fail("InvalidAttribute", m.site, f"num_outputs={count} of {len(n.outputs)} outputs", "make them equal")


def _one(name: str, position: int) -> Callable[[Importer, OnnxNode], None]:
    """Rule of an operand that must be one number."""

    def rule(m: Importer, n: OnnxNode) -> None:
        given = _listed(m, n, name, position)
        _length(m, n, name, given, 1)

    return rule


def _range(m: Importer, n: OnnxNode) -> None:
    for position, name in enumerate(("start", "limit", "delta")):
        given = _listed(m, n, name, position)
        _length(m, n, name, given, 1)
        if given is not None and isinstance(given[0], np.floating) and not np.isfinite(given[0]):
            raise fail("InvalidDocument", m.site, f"Range with a {name} of {given[0]}", "give finite numbers")


def _quantized(position: int) -> Callable[[Importer, OnnxNode], None]:
    """Rule that a zero point has the dtype of the quantised tensor."""

    def rule(m: Importer, n: OnnxNode) -> None:
        dtype = m.type_of(m.value(n.inputs[position])).dtype if n.has(position) else None
        if dtype is not None and not dtype.is_small and dtype not in (DType.u8, DType.i8, DType.u16, DType.i16):
            raise fail("UnsupportedDType", m.site, f"{n.op} to {dtype}", "use an integer of at most 16 bits, or a small float")

    return rule


def _shape_operand(least: int, position: int) -> Callable[[Importer, OnnxNode], None]:
    def rule(m: Importer, n: OnnxNode) -> None:
        _at_least(m, n, "shape", _listed(m, n, "shape", position), least)

    return rule


_RULES: dict[str, Callable[[Importer, OnnxNode], None]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "DeformConv"), _windows()),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool", "MaxUnpool"), _windows(needs_kernel=True)),
    "ConstantOfShape": _shape_operand(0, 0),
    "Expand": _shape_operand(0, 1),
    "Reshape": _shape_operand(-1, 1),
    "OneHot": _one("depth", 1),
    "Pad": _pad,
    "QuantizeLinear": _quantized(2),
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _quantized(7),
    "Range": _range,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "TopK": _one("k", 1),
    "Upsample": _resize,
}
_RANKS: dict[str, dict[int, tuple[int, ...]]] = {
    "Compress": {1: (1,)},
    "Multinomial": {0: (2,)},
    "RoiAlign": {0: (4,), 1: (2,), 2: (1,)},
    "NonMaxSuppression": {0: (3,), 1: (3,)},
}
"""Numbers of axes that an operand may have, by operator and operand."""
