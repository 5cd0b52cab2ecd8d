"""Fourier transforms as products with constant matrices: exact definitions, quadratic time in the length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, floordiv, minimum
from tatami.core.tensor import numpy_dtype
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.importer import Importer, element_dtype
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import known_number, unsupported
from tatami.onnx.values import Value


def _matrices(m: Importer, length: Expr, count: Expr, inverse: bool) -> tuple[str, str]:
    """Real and imaginary part of e^(-2 pi i n k / length) as [length, count]; + and 1/length for the inverse. Constants, or
    computed by the program for an open length. They are exact at quarters of a turn, so that the imaginary part of a real
    signal is 0 at frequency 0 and at half its rate: models that take the angle of a spectrum depend on it."""
    sign = 1.0 if inverse else -1.0
    rows, columns = length.as_int(), count.as_int()
    if rows is not None and columns is not None:
        steps = np.outer(np.arange(rows), np.arange(columns)) % rows * 4
        quarter, angle = steps // rows, steps % rows * (np.pi / 2) / rows
        cos, sin = np.cos(angle), np.sin(angle)
        parts = [np.choose(quarter, values) for values in ((cos, -sin, -cos, sin), (sin, cos, -sin, -cos))]
        scale = 1.0 / rows if inverse else 1.0
        return m.add_constant(scale * parts[0]), m.add_constant(sign * scale * parts[1])
    size = size_of(m, length, DType.i64)
    turned = _counted(m, length).unsqueeze(1).fn("mul", _counted(m, count)).fn("mod", size) * 4
    turns = turned.fn("mod", size).cast(DType.fp64) * (np.pi / 2) / size.cast(DType.fp64)
    cosine, sine = turns.fn("cos"), turns.fn("sin")
    first, second, third = (turned.fn("lt", size * k) for k in (1, 2, 3))  # quarters of a turn
    real = first.where(cosine, second.where(sine * -1.0, third.where(cosine * -1.0, sine)))
    imaginary = first.where(sine, second.where(cosine, third.where(sine * -1.0, cosine * -1.0))) * sign
    if inverse:
        real, imaginary = real / size.cast(DType.fp64), imaginary / size.cast(DType.fp64)
    return real.tensor, imaginary.tensor


def _counted(m: Importer, size: Expr) -> Num:
    """The integers 0, 1, … size - 1 as a tensor of dtype i64 and rank 1."""
    return Num(m, m.one("iota", [], {"shape": (size,), "axis": 0, "dtype": DType.i64}))


def transform(m: Importer, x: str, length: Expr, inverse: bool, onesided: bool) -> str:
    """Fourier transform of [.., N, 1 or 2] to [.., K, 2] along the axis before the last."""
    shape = m.shape(x)
    have = shape[-2]
    if have != length:
        if have.as_int() is None or length.as_int() is None:
            why = f"a Fourier transform of length {length} along an axis of size {have}"
            raise unsupported(m, why, "give the axis a size that is a number")
        pads = [(expr(0), expr(0))] * (len(shape) - 2) + [(expr(0), length - have), (expr(0), expr(0))]
        x = m.one("pad", [x], {"pads": tuple(pads)})
    count = floordiv(length, expr(2)) + 1 if onesided and not inverse else length
    real_part = m.one("squeeze", [_part(m, x, 0)], {"axes": (len(shape) - 1,)})
    imaginary_part = m.one("squeeze", [_part(m, x, 1)], {"axes": (len(shape) - 1,)}) if shape[-1] == 2 else ""
    if onesided and inverse:
        real_part, imaginary_part = _hermitian(m, real_part, imaginary_part, length)
    dtype = m.dtype(x)
    real_part = m.cast(real_part, DType.fp64)
    imaginary_part = m.cast(imaginary_part, DType.fp64) if imaginary_part else ""
    cos, sin = _matrices(m, length, count, inverse)
    real, imaginary = m.one("matmul", [real_part, cos]), m.one("matmul", [real_part, sin])
    if imaginary_part:
        real = m.one("sub", [real, m.one("matmul", [imaginary_part, sin])])
        imaginary = m.one("add", [imaginary, m.one("matmul", [imaginary_part, cos])])
    real, imaginary = m.cast(real, dtype), m.cast(imaginary, dtype)
    if onesided and inverse:
        return m.one("unsqueeze", [real], {"axes": (len(shape) - 1,)})
    return m.one("stack", [real, imaginary], {"axis": len(shape) - 1})


def _hermitian(m: Importer, real: str, imaginary: str, length: Expr) -> tuple[str, str]:
    """The whole spectrum of a real signal from its first half: element k > length / 2 is the conjugate of length - k."""
    index, size = _counted(m, length), size_of(m, length, DType.i64)
    axis = len(m.shape(real)) - 1
    places = index.fn("min", size - index).tensor
    real = m.one("take", [real, places], {"axis": axis})
    if imaginary:
        dtype = m.dtype(imaginary)
        mirrored = (index + index).fn("gt", size).cast(dtype)
        taken = Num(m, m.one("take", [imaginary, places], {"axis": axis}))
        imaginary = (taken * (mirrored * -2.0 + 1.0)).tensor
    return real, imaginary


def _part(m: Importer, x: str, index: int) -> str:
    shape = m.shape(x)
    starts = (*(expr(0) for _ in shape[:-1]), expr(index))
    return m.one("slice", [x], {"starts": starts, "stops": (*shape[:-1], expr(index + 1))})


def _dft(m: Importer, n: OnnxNode) -> list[Value]:
    """DFT; in opset 17 the axis is an attribute."""
    x = m.operand(n, 0)
    rank = len(m.shape(x))
    axis = n.attr("axis", 1) if "axis" in n.attrs or m.opset < 20 else int(known_number(m, n, 2, "axis", -2))
    axis %= rank
    order = [i for i in range(rank) if i not in (axis, rank - 1)] + [axis, rank - 1]
    moved = m.one("permute", [x], {"perm": order})
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    size = m.shape(moved)[-2]
    whole = 2 * (size - 1) if inverse and onesided else size
    given = known_number(m, n, 1, "dft_length")
    length = whole if given is None else expr(int(given))
    out = transform(m, moved, length, inverse, onesided)
    back = [order.index(i) for i in range(rank)]
    return [m.result(m.one("permute", [out], {"perm": back}))]


def _stft(m: Importer, n: OnnxNode) -> list[Value]:
    """STFT: frames of the signal [B, L, 1 or 2], or real [B, L], times the window, transformed."""
    x = m.operand(n, 0)
    if len(m.shape(x)) == 2:
        x = m.one("unsqueeze", [x], {"axes": (2,)})
    shape = m.shape(x)
    step = int(known_number(m, n, 1, "frame_step"))
    window = m.operand(n, 2)
    size = m.shape(window)[0].as_int() if window else None
    length = int(known_number(m, n, 3, "frame_length", size or 0))
    total = shape[1]
    if not length:
        raise unsupported(m, "STFT without a length of its frames", "give frame_length, or a window whose size is a number")
    if step < 1 or length < 1:
        raise unsupported(m, f"STFT in steps of {step} and frames of {length} samples", "give both 1 or more")
    if size is not None and size != length:
        raise unsupported(m, f"STFT with a window of {size} samples and frames of {length}", "give both the same length")
    count = floordiv(total - length, expr(step)) + 1
    if (samples := total.as_int()) is not None and samples < length:
        raise unsupported(m, f"STFT of {samples} samples in frames of {length}", f"give the signal {length} samples or more")
    if (number := count.as_int()) is not None:
        places = m.add_constant((np.arange(number)[:, None] * step + np.arange(length)).astype(np.int64))
    else:
        m.assume(minimum(total, expr(length)), expr(length))
        within = Num(m, m.add_constant(np.arange(length, dtype=np.int64)))
        places = ((_counted(m, count) * step).unsqueeze(1) + within).tensor
    frames = m.one("take", [x, places], {"axis": 1})
    if window:
        frames = m.joined("mul", frames, m.one("unsqueeze", [window], {"axes": (1,)}))
    return [m.result(transform(m, frames, expr(length), False, bool(n.attr("onesided", 1)) and shape[2] == 1))]


def _mel_weights(m: Importer, n: OnnxNode) -> list[Value]:
    """MelWeightMatrix: [bins of the spectrum, bands]: triangles of height 1 that overlap by half, equally wide on the mel
    scale."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    bands, length, rate, lower, upper = (known_number(m, n, i, name) for i, name in enumerate(names))
    low, high = (2595 * np.log10(1 + edge / 700) for edge in (lower, upper))
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    rows = np.arange(length // 2 + 1)
    out = np.zeros((len(rows), bands))
    for i, (start, middle, end) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising = (rows >= start) & (rows <= middle)
        falling = (rows > middle) & (rows < end)
        out[rising, i] = (rows[rising] - start) / (middle - start) if middle > start else 1.0
        out[falling, i] = (end - rows[falling]) / max(end - middle, 1)
    dtype = numpy_dtype(element_dtype(n.attr("output_datatype", onnx.TensorProto.FLOAT), m.site))
    return [Value(array=out.astype(dtype))]


SIGNAL: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"DFT": _dft, "STFT": _stft, "MelWeightMatrix": _mel_weights}
"""Handlers of this file by operator."""
