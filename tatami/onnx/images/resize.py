"""Resize and Upsample. Modes that the frontend lacks are products with constant matrices, one per axis."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.expr import Expr, exact_div, expr, floordiv
from tatami.core.tensor import numpy_dtype
from tatami.onnx.arithmetic import size_of
from tatami.onnx.data_sizes import read_size
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import choice, data_dependent, integers, known, unsupported
from tatami.onnx.values import Value

_FRONTEND = (
    "half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn",
)  # fmt: skip
_COORDINATES = (*_FRONTEND, "tf_crop_and_resize")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
"""Interpolation by the attribute `mode`; Upsample of opset 1 uses the word bilinear."""
MAX_DENOMINATOR = 64
"""Maximum denominator of a scale as a fraction a/b: up to it floor(size * scale) is size * a // b for sizes up to 2^16."""
MAX_DIVISOR = 4096
"""Maximum denominator of a scale by which a size can be divided without a remainder: fp32 tells fractions up to it apart."""


def _resize(m: Importer, n: OnnxNode) -> list[Value]:
    """Resize or Upsample. Sizes that are data are read as sizes, unless the weights of the result depend on them as numbers."""
    try:
        return _resized(m, n)
    except TatamiError as error:
        is_read = len(n.inputs) > 3 and n.has(3) and m.sizes(m.value(n.inputs[3])) is None
        if not is_read or "inputs" in error.diagnostics[0].details:
            raise
        raise data_dependent(m, n, "sizes", 3) from None


def _resized(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    shape = m.shape(x)
    rank = len(shape)
    old = n.op == "Upsample" or m.opset < 11
    axes = [a % rank for a in n.attr("axes", list(range(rank)))]
    coordinates = choice(m, n, "coordinate_transformation_mode", "asymmetric" if old else "half_pixel", _COORDINATES)
    given = _scales(m, n, 1 if old else 2, axes)
    sizes = None if given is not None else _sizes(m, n)
    policy = choice(m, n, "keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    out, scales = list(shape), [1.0] * rank
    if given is not None:
        for a, s in zip(axes, given, strict=True):
            scales[a], out[a] = s, _scaled(m, shape[a], s)
    elif sizes is None:
        raise unsupported(m, f"{n.op} without scales and sizes", "give one of them")
    else:
        found = _of_sizes(m, n, shape, axes, sizes, policy)
        for a, (size, scale) in zip(axes, found, strict=True):
            out[a] = size
            scales[a] = 0.0 if scale is None else scale
    attrs: dict[str, Any] = {
        "shape": tuple(out),
        "scales": () if 0.0 in scales else tuple(scales),
        "mode": _MODES[choice(m, n, "mode", "nearest", tuple(_MODES))],
        "coordinates": coordinates,
        "nearest": choice(m, n, "nearest_mode", "floor" if old else "round_prefer_floor", _NEAREST),
        "cubic_a": float(n.attr("cubic_coeff_a", -0.75)),
    }
    is_nearest = attrs["mode"] == "nearest"
    weighted = not is_nearest and (n.attr("antialias", 0) or n.attr("exclude_outside", 0))
    dtype = m.dtype(x)
    if not is_nearest and not dtype.is_float:
        x = m.cast(x, DType.fp32)
    if coordinates in _FRONTEND and not weighted:
        if sizes is not None and policy == "stretch":
            attrs["scales"] = ()  # scales follow from the sizes exactly
        return [m.result(m.cast(_plain(m, x, attrs, old), dtype))]
    return [m.result(m.cast(_by_matrices(m, n, x, attrs, axes), dtype))]


def _plain(m: Importer, x: str, attrs: dict[str, Any], old: bool) -> str:
    """The frontend's resize. Opset 10 does not define the rounding of nearest: as in ONNX Runtime, axes that grow round
    down and axes that shrink round up, in two steps."""
    shrinks = [0.0 < s < 1.0 for s in attrs["scales"]]
    if not old or attrs["mode"] != "nearest" or not any(shrinks):
        return m.one("resize", [x], attrs)
    shape = tuple(to if down else s for to, s, down in zip(attrs["shape"], m.shape(x), shrinks, strict=True))
    scales = tuple(s if down else 1.0 for s, down in zip(attrs["scales"], shrinks, strict=True))
    x = m.one("resize", [x], {**attrs, "shape": shape, "scales": scales, "nearest": "ceil"})
    if all(shrinks):
        return x
    scales = tuple(1.0 if down else s for s, down in zip(attrs["scales"], shrinks, strict=True))
    return m.one("resize", [x], {**attrs, "scales": scales})


def _sizes(m: Importer, n: OnnxNode) -> tuple[Expr, ...] | None:
    """The sizes to resize to, or None. Data may decide them if the frontend can resize to symbols; other modes need
    numbers, which a program specialised on the call's values has."""
    plain = n.attr("keep_aspect_ratio_policy", "stretch") == "stretch" and not n.attr("antialias", 0)
    plain = plain and not n.attr("exclude_outside", 0)
    plain = plain and n.attr("coordinate_transformation_mode", "half_pixel") in _FRONTEND
    if not plain and n.has(3) and m.sizes(m.value(n.inputs[3])) is None:
        raise data_dependent(m, n, "sizes", 3)
    return integers(m, n, 3, "sizes")


def _of_sizes(
    m: Importer, n: OnnxNode, shape: tuple[Expr, ...], axes: list[int], sizes: tuple[Expr, ...], policy: str
) -> list[tuple[Expr, float | None]]:
    """(size, scale) of each axis for which sizes are given; scale None if symbols decide it."""
    pairs = [(shape[a], size) for a, size in zip(axes, sizes, strict=True)]
    ratios = [1.0 if a == b else _ratio(a, b) for a, b in pairs]
    if policy == "stretch":
        return [(b, r) for (_, b), r in zip(pairs, ratios, strict=True)]
    known_ratios = [r for r in ratios if r is not None]
    have = [a.as_int() for a, _ in pairs]
    if len(known_ratios) < len(ratios) or (None in have and set(known_ratios) != {1.0}):
        why = f"{n.op} to sizes that keep the aspect ratio of a symbolic size"
        raise unsupported(m, why, "leave that axis out of axes, or give scales")
    ratio = min(known_ratios) if policy == "not_larger" else max(known_ratios)
    return [(a if h is None else expr(int(np.floor(h * ratio + 0.5))), ratio) for (a, _), h in zip(pairs, have, strict=True)]


def _ratio(have: Expr, to: Expr) -> float | None:
    a, b = have.as_int(), to.as_int()
    return None if a is None or b is None else b / (a or 1)


def _scales(m: Importer, n: OnnxNode, position: int, axes: list[int]) -> list[float] | None:
    """The scales of the axes, or None if the node gives none."""
    if "height_scale" in n.attrs:  # Upsample of opset 1
        return [1.0] * (len(axes) - 2) + [float(n.attr("height_scale")), float(n.attr("width_scale"))]
    if "scales" in n.attrs:
        return [float(v) for v in n.attr("scales")]
    if not n.has(position):
        return None
    array = m.known(m.value(n.inputs[position]))
    if array is None:
        raise data_dependent(m, n, "scales", position)
    return [float(v) for v in array.reshape(-1)] or None


def _scaled(m: Importer, size: Expr, scale: float) -> Expr:
    """floor(size * scale), which ONNX computes in fp32: of an open size as size * a // b where both are equal, else by the
    program, which reads the product as a size."""
    number, factor = size.as_int(), np.float32(scale)
    if number is not None:
        return expr(int(np.floor(np.float32(number) * factor)))
    part = _fraction(factor, MAX_DENOMINATOR)
    if part is not None:
        return floordiv(size * part.numerator, expr(part.denominator))
    part = _fraction(factor, MAX_DIVISOR)
    whole = None if part is None else exact_div(size * part.numerator, expr(part.denominator))
    if whole is not None:
        return whole
    if m.reads_sizes and scale > 0:
        return read_size(m, (size_of(m, size, DType.fp32) * float(factor)).fn("floor").cast(DType.i64))
    raise unsupported(m, f"a size {size} times {scale}", "use a scale that is a simple fraction, or sizes that are numbers")


def _fraction(scale: np.float32, limit: int) -> Fraction | None:
    """The fraction a/b, b at most `limit`, whose fp32 value `scale` is, if that is not below it: size * scale then is not below
    a whole size * a/b, and floor keeps it. 7/3 in fp32 is below: 27 times it is 62.99."""
    exact = Fraction(float(scale))
    part = exact.limit_denominator(limit)
    return part if part > 0 and part <= exact and np.float32(float(part)) == scale else None


def _by_matrices(m: Importer, n: OnnxNode, x: str, attrs: dict[str, Any], axes: list[int]) -> str:
    roi = known(m, n, 1, "roi") if attrs["coordinates"] == "tf_crop_and_resize" else None
    dtype = m.dtype(x)
    outside_value = float(n.attr("extrapolation_value", 0.0))
    for i, a in enumerate(axes):
        have, want = m.shape(x)[a].as_int(), attrs["shape"][a].as_int()
        scale = attrs["scales"][a] if attrs["scales"] else None
        if scale == 1.0 and m.shape(x)[a] == attrs["shape"][a] and roi is None:
            continue
        if have is None or want is None or scale is None:
            raise unsupported(m, f"{n.op} in this mode of an axis of size {m.shape(x)[a]}", "give the axis a number as size")
        part = None if roi is None else (float(roi[i]), float(roi[i + len(axes)]))
        matrix, outside = resize_matrix(
            have, want, scale, attrs, part, bool(n.attr("antialias", 0)), bool(n.attr("exclude_outside", 0))
        )
        rank = len(m.shape(x))
        last = [j for j in range(rank) if j != a] + [a]
        moved = m.one("permute", [x], {"perm": last})
        product = m.one("matmul", [moved, m.add_constant(matrix.T.astype(numpy_dtype(dtype)))])
        x = m.one("permute", [product], {"perm": [last.index(j) for j in range(rank)]})
        if outside.any():
            mask = m.add_constant(outside)
            mask = m.one("unsqueeze", [mask], {"axes": [j for j in range(rank) if j != a]})
            mask = m.one("expand", [mask], {"shape": m.shape(x)})
            x = m.one("where", [mask, m.number(outside_value, dtype), x])
    return x


def resize_matrix(
    have: int,
    want: int,
    scale: float,
    attrs: dict[str, Any],
    roi: tuple[float, float] | None,
    antialias: bool,
    exclude_outside: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """[want, have] weights of the operand's elements in each result element, and which of these lie outside it."""
    matrix = np.zeros((want, have))
    outside = np.zeros(want, np.bool_)
    for j in range(want):
        at = _source(j, have, want, scale, attrs["coordinates"], roi)
        if roi is not None and not 0 <= at <= have - 1:
            outside[j] = True
            continue
        for k, weight in _weights(at, scale, attrs, antialias):
            if 0 <= k < have:
                matrix[j, k] += weight
            elif not exclude_outside:
                matrix[j, min(max(k, 0), have - 1)] += weight
        if (antialias or exclude_outside) and matrix[j].sum() != 0:
            matrix[j] /= matrix[j].sum()
    return matrix, outside


def _source(j: int, have: int, want: int, scale: float, coordinates: str, roi: tuple[float, float] | None) -> float:
    """Position in the operand of result element j."""
    match coordinates:
        case "align_corners":
            return j * (have - 1) / (scale * have - 1) if want > 1 else 0.0
        case "asymmetric":
            return j / scale
        case "tf_crop_and_resize":
            start, end = (np.float32(v) for v in roi or (0.0, 1.0))  # as in ONNX Runtime: in fp32, in this order
            last = np.float32(have - 1)
            if want > 1:
                return float(start * last + np.float32(j) * (end - start) * last / np.float32(want - 1))
            return float(np.float32(0.5) * (start + end) * last)
        case "tf_half_pixel_for_nn":
            return (j + 0.5) / scale
        case "pytorch_half_pixel" if want == 1:
            return 0.0
        case "half_pixel_symmetric":
            adjustment = want / (scale * have)
            return have / 2 * (1 - adjustment) + (j + 0.5) / scale - 0.5
        case "half_pixel" | "pytorch_half_pixel":
            return (j + 0.5) / scale - 0.5
    raise AssertionError(coordinates)


def _weights(at: float, scale: float, attrs: dict[str, Any], antialias: bool) -> list[tuple[int, float]]:
    """(operand position, weight) of one result element."""
    if attrs["mode"] == "nearest":
        rounding: dict[str, Callable[[float], int]] = {
            "floor": lambda v: int(np.floor(v)),
            "ceil": lambda v: int(np.ceil(v)),
            "round_prefer_floor": lambda v: int(np.ceil(v - 0.5)),
            "round_prefer_ceil": lambda v: int(np.floor(v + 0.5)),
        }
        return [(rounding[attrs["nearest"]](at), 1.0)]
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = (1 if attrs["mode"] == "linear" else 2) / stretch
    kernel = _tent if attrs["mode"] == "linear" else _cubic(attrs["cubic_a"])
    first, last = int(np.floor(at - reach)) + 1, int(np.ceil(at + reach))
    return [(k, kernel((k - at) * stretch)) for k in range(first, last)]


def _tent(t: float) -> float:
    return max(0.0, 1.0 - abs(t))


def _cubic(a: float) -> Callable[[float], float]:
    def weight(t: float) -> float:
        t = abs(t)
        if t <= 1:
            return (a + 2) * t**3 - (a + 3) * t**2 + 1
        return a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0

    return weight


RESIZE: dict[str, Callable[[Importer, OnnxNode], list[Value]]] = {"Resize": _resize, "Upsample": _resize}
"""Handlers of this file by operator."""
