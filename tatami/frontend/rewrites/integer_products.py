"""Products and convolutions of integers with zero points: sums of i32 over the stored integers, as narrow as they are.

    sum (a - za) * (b - zb)   =   sum a * b - za * sum (b - zb) - zb * sum a

A machine multiplies more numbers of 8 bits at once than of 16, so zero points leave the sum. The border of a convolution is
its
zero point: if that is a known number, it is written around x; otherwise x - za is computed first. Everything wraps in 32 bits,
and
is exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr
from tatami.core.tensor import Tensor


class Maker(Protocol):
    """The interface for making nodes of a graph, which importers and passes implement."""

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """Name -> tensor, for the constants of the module."""

    def dtype(self, tensor: str) -> DType:
        """The dtype of the tensor of that name."""

    def shape(self, tensor: str) -> Shape:
        """The shape of the tensor of that name."""

    def one(self, op: str, inputs: Sequence[str], attrs: Mapping[str, object] | None = None) -> str:
        """Add an operation with one result; the result's name."""

    def cast(self, tensor: str, to: DType) -> str:
        """The tensor cast to `to`, by name; itself if it has that dtype."""

    def number(self, value: bool | int | float, dtype: DType) -> str:
        """The name of a rank-0 constant with this value."""

    def joined(self, op: str, *tensors: str) -> str:
        """Add an operation over operands that broadcast; the result's name."""


_SUMS = {"acc_dtype": DType.i32, "out_dtype": DType.i32}


class Integers(NamedTuple):
    """A quantised operand without its scale: integers, and their zero point ("": 0)."""

    tensor: str
    zero: str


def integer_matmul(m: Maker, left: Integers, right: Integers, columns: str = "") -> str:
    """matmul of two operands minus their zero points as i32. Zero points of rank 1 belong to the rows of the left, the columns
    of the right one. `columns`: `column_sums` of the right one computed before; then they are u8 and i8."""
    (a, a_zero), (b, b_zero) = left, right
    if len(m.shape(a)) < 2 or len(m.shape(b)) < 2:
        return m.one("matmul", [centred(m, a, a_zero, axis=0), centred(m, b, b_zero, axis=-1)], _SUMS)
    a_zero, b_zero = _point(m, a_zero, 2, 0), _point(m, b_zero, 2, 1)
    if m.dtype(a) == m.dtype(b) == DType.i8:
        a, a_zero = _shifted(m, a, a_zero, DType.u8)
    elif m.dtype(a) == m.dtype(b) == DType.u8:
        b, b_zero = _shifted(m, b, b_zero, DType.i8)
    sums = m.one("matmul", [m.cast(a, DType.i16), m.cast(b, DType.i16)], _SUMS)
    if a_zero:
        sums = m.joined("sub", sums, m.joined("mul", a_zero, columns or column_sums(m, b, b_zero)))
    if b_zero:
        rows = m.one("reduce_sum", [m.cast(a, DType.i32)], {"axes": (-1,), "keepdims": True})
        sums = m.joined("sub", sums, m.joined("mul", b_zero, rows))
    return sums


def column_sums(m: Maker, b: str, b_zero: str) -> str:
    """sum (b - b_zero) over the rows of b, [.., 1, N] as i32."""
    zero, wide = _point(m, b_zero, 2, 1), m.cast(b, DType.i32)
    return m.one("reduce_sum", [m.joined("sub", wide, zero) if zero else wide], {"axes": (-2,), "keepdims": True})


def as_signed(m: Maker, b: str, b_zero: str) -> tuple[str, str]:
    """(weights of u8 as i8, their zero point minus 128)."""
    return _shifted(m, b, _point(m, b_zero, 2, 1), DType.i8) if m.dtype(b) == DType.u8 else (b, b_zero)


def integer_conv(m: Maker, image: Integers, filters: Integers, bias: str, attrs: Mapping[str, object]) -> str:
    """conv of image and filters minus their zero points as i32. Zero points of rank 1 belong to the filters."""
    (x, x_zero), (w, w_zero) = image, filters
    zero = _known(m, x_zero) if x_zero else 0
    if zero is not None and m.dtype(x) == m.dtype(w) == DType.i8 and not _point(m, w_zero, 1, 0):
        x, x_zero, zero = _shifted(m, x, "", DType.u8)[0], "", zero + 128  # one operand of each sign
    if zero and not _point(m, w_zero, 1, 0):
        sums = _stored_conv(m, x, zero, w, attrs)
        return _with_part_of_zero(m, sums, zero, w, bias)
    operands = [centred(m, x, x_zero), centred(m, w, w_zero, axis=0), *([bias] if bias else [])]
    return m.one("conv", operands, {**attrs, **_SUMS})


def _stored_conv(m: Maker, x: str, zero: int, w: str, attrs: Mapping[str, object]) -> str:
    """conv of x as it is stored, with the zero point as border."""
    pads = attrs.get("padding") or ()
    assert isinstance(pads, list | tuple)
    if any(side != expr(0) for pair in pads for side in map(expr, pair)):
        x = m.one("pad", [x], {"pads": ((0, 0), (0, 0), *pads), "value": zero})
        attrs = {**attrs, "padding": ()}
    return m.one("conv", [m.cast(x, DType.i16), m.cast(w, DType.i16)], {**attrs, **_SUMS})


def _with_part_of_zero(m: Maker, sums: str, zero: int, w: str, bias: str) -> str:
    """Sums of x as it is stored, minus the zero point's part in each filter's sum, plus the bias."""
    rank = len(m.shape(w))
    more = m.one("reduce_sum", [m.cast(w, DType.i32)], {"axes": tuple(range(1, rank))})
    more = m.one("mul", [more, m.number(-zero, DType.i32)])
    more = m.one("add", [more, bias]) if bias else more
    return m.joined("add", sums, m.one("unsqueeze", [more], {"axes": tuple(range(1, rank - 1))}))


def _known(m: Maker, zero: str) -> int | None:
    """The value of a zero point of the whole tensor that is a constant; None for other zero points."""
    tensor = m.constants.get(zero)
    return int(tensor.array.reshape(-1)[0]) if tensor is not None and tensor.array.size == 1 else None


def centred(m: Maker, x: str, zero_point: str, axis: int = 0) -> str:
    """x - zero_point as i16, without overflow. A zero point of rank 1 lies along `axis`."""
    zero = _point(m, zero_point, len(m.shape(x)), axis, DType.i16)
    x = m.cast(x, DType.i16)
    return m.joined("sub", x, zero) if zero else x


def _point(m: Maker, zero: str, rank: int, axis: int, to: DType = DType.i32) -> str:
    """A zero point that broadcasts over a value of `rank`, along `axis`; "" if it is known to be 0."""
    if not zero or (zero in m.constants and not m.constants[zero].array.any()):
        return ""
    zero = m.cast(zero, to)
    if m.shape(zero) == (expr(1),):
        return m.one("reshape", [zero], {"shape": ()})
    after = rank - 1 - axis % rank
    if len(m.shape(zero)) == 1 and after:
        return m.one("unsqueeze", [zero], {"axes": tuple(range(1, 1 + after))})
    return zero


def _shifted(m: Maker, x: str, zero: str, to: DType) -> tuple[str, str]:
    """(i8 as u8 or u8 as i8, its zero point): 128 is added to both, or subtracted."""
    by = 128 if to == DType.u8 else -128
    shifted = m.joined("add", m.cast(x, DType.i16), m.number(by, DType.i16))
    point = m.number(by, DType.i32)
    return m.cast(shifted, to), m.joined("add", zero, point) if zero else point
