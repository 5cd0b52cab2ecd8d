"""Resize and Upsample. Modes the frontend has not are products with constant matrices, one per axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tatami.core.expr import ONE, Expr, expr, floordiv
from tatami.core.tensor import numpy_dtype
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operands import data_dependent, integers, known, unsupported
from tatami.onnx.values import Value

_FRONTEND = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def _resize(m: Importer, n: OnnxNode) -> list[Value]:
    x = m.operand(n, 0)
    shape = m.shape(x)
    rank = len(shape)
    old = n.op == "Upsample" or m.opset < 11
    scales_at = 1 if old else 2
    axes = [a % rank for a in n.attr("axes", list(range(rank)))]
    mode = n.attr("mode", "nearest")
    coordinates = n.attr("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    given = n.attr("scales") if "scales" in n.attrs else _scales(m, n, scales_at)
    sizes = None if given is not None else integers(m, n, 3, "sizes")
    if given is None and sizes is None:
        raise unsupported(m, f"{n.op} without scales and sizes", "give one of them")
    out, scales = list(shape), [1.0] * rank
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    if given is not None:
        for a, s in zip(axes, given, strict=True):
            scales[a], out[a] = float(s), _scaled(m, shape[a], float(s))
    else:
        assert sizes is not None
        # An axis that keeps a symbolic size counts as 1 to 1.
        kept = [shape[a] == size and size.as_int() is None for a, size in zip(axes, sizes, strict=True)]
        pairs = [(ONE, ONE) if same else (shape[a], size) for same, a, size in zip(kept, axes, sizes, strict=True)]
        have, numbers = [a.as_int() for a, _ in pairs], [b.as_int() for _, b in pairs]
        if any(v is None for v in (*numbers, *have)):
            raise unsupported(m, f"{n.op} to sizes that are symbols", "give scales, or sizes that are numbers")
        ratios = [(b or 0) / (a or 1) for a, b in zip(have, numbers, strict=True)]
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(axes)
            if ratio != 1 and any(kept):
                raise unsupported(m, f"{n.op} of a symbolic size that keeps its aspect ratio", "leave that axis out of axes")
            numbers = [int(np.floor((a or 0) * ratio + 0.5)) for a in have]
        for a, s, number in zip(axes, ratios, numbers, strict=True):
            scales[a], out[a] = s, shape[a] if shape[a].as_int() is None else expr(number or 0)
    attrs: dict[str, Any] = {
        "shape": tuple(out),
        "scales": tuple(scales),
        "mode": mode,
        "coordinates": coordinates,
        "nearest": n.attr("nearest_mode", "floor" if old else "round_prefer_floor"),
        "cubic_a": float(n.attr("cubic_coeff_a", -0.75)),
    }
    smaller = [a for a in range(rank) if scales[a] < 1]
    if old and mode == "nearest" and smaller:  # these axes round up, the others down: one after the other
        x = _nearest_up(m, x, attrs, smaller)
        attrs["scales"] = tuple(1.0 if a in smaller else s for a, s in enumerate(scales))
        if all(s == 1 for s in attrs["scales"]):
            return [m.result(x)]
    plain = coordinates in _FRONTEND and not n.attr("antialias", 0) and not n.attr("exclude_outside", 0)
    if coordinates == "align_corners":  # corners of the exact size, which the result's may have rounded
        whole = [o == s or (s.as_int() or 0) * r == o.as_int() for s, o, r in zip(shape, out, scales, strict=True)]
        plain = plain and all(whole)
    if (plain and m.dtype(x).is_float) or (plain and mode == "nearest"):
        return [m.result(m.one("resize", [x], attrs))]
    return [m.result(_by_matrices(m, n, x, attrs, axes))]


def _nearest_up(m: Importer, x: str, attrs: dict[str, Any], axes: list[int]) -> str:
    """Axes made smaller as before opset 11: each element is that at the next place up. The first version's text does not
    say so; its test, and ONNX Runtime, do."""
    shape = tuple(attrs["shape"][a] if a in axes else s for a, s in enumerate(m.shape(x)))
    scales = tuple(s if a in axes else 1.0 for a, s in enumerate(attrs["scales"]))
    return m.one("resize", [x], {**attrs, "shape": shape, "scales": scales, "nearest": "ceil"})


def _scales(m: Importer, n: OnnxNode, position: int) -> list[float] | None:
    if not n.has(position):
        return None
    array = m.known(m.value(n.inputs[position]))
    if array is None:
        raise data_dependent(m, n, "scales", position)
    return [float(v) for v in array.reshape(-1)] or None


def _scaled(m: Importer, size: Expr, scale: float) -> Expr:
    number = size.as_int()
    if number is not None:
        return expr(int(np.floor(number * scale)))
    up, down = round(scale), round(1 / scale) if scale else 0
    if abs(up - scale) < 1e-6:
        return size * up
    if down and abs(1 / down - scale) < 1e-6:
        return floordiv(size, expr(down))
    raise unsupported(m, f"a size {size} times {scale}", "use a whole scale, or sizes that are numbers")


def _by_matrices(m: Importer, n: OnnxNode, x: str, attrs: dict[str, Any], axes: list[int]) -> str:
    roi = known(m, n, 1, "roi") if attrs["coordinates"] == "tf_crop_and_resize" else None
    dtype = m.dtype(x)
    outside_value = float(n.attr("extrapolation_value", 0.0))
    for i, a in enumerate(axes):
        have, want = m.shape(x)[a].as_int(), attrs["shape"][a].as_int()
        if have is None or want is None:
            raise unsupported(m, f"{n.op} in this mode of an axis of size {m.shape(x)[a]}", "give the axis a number as size")
        if have == want and attrs["scales"][a] == 1.0 and roi is None:
            continue
        part = None if roi is None else (float(roi[i]), float(roi[i + len(axes)]))
        matrix, outside = resize_matrix(
            have, want, attrs["scales"][a], attrs, part, bool(n.attr("antialias", 0)), bool(n.attr("exclude_outside", 0))
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
    if coordinates == "align_corners":
        return j * (have - 1) / (scale * have - 1) if want > 1 else 0.0
    if coordinates == "asymmetric":
        return j / scale
    if coordinates == "tf_crop_and_resize" and roi is not None:
        start, end = roi
        if want > 1:
            return start * (have - 1) + j * (end - start) * (have - 1) / (want - 1)
        return 0.5 * (start + end) * (have - 1)
    if coordinates == "pytorch_half_pixel" and want == 1:
        return -0.5
    if coordinates == "half_pixel_symmetric":
        adjustment = want / (scale * have)
        return have / 2 * (1 - adjustment) + (j + 0.5) / scale - 0.5
    return (j + 0.5) / scale - 0.5


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
