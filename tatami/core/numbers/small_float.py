"""The small float formats: exponent and mantissa bits, special codes, and the result of overflow."""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType


class SmallFloat(msgspec.Struct, frozen=True):
    """A sign bit above `exponent` bits above `mantissa` bits; code 0 is zero and codes without exponent are multiples of
    `smallest`, unless the format is powers of two alone (`has_zero` false)."""

    exponent: int
    mantissa: int
    bias: int
    largest: int
    """The code of the largest number."""
    overflow: int
    """The code for numbers beyond the largest, infinity included."""
    nan: int
    """The code that NaN is converted to."""
    specials: tuple[tuple[int, float], ...] = ()
    """Codes and their values, where bits would say something else."""
    is_signed: bool = True
    has_zero: bool = True
    is_unsigned_zero: bool = False
    """True if there is only one zero: the code of negative zero is NaN."""

    @property
    def sign_bit(self) -> int:
        """The code's bit above exponent and mantissa, set for negative numbers."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def magnitude_mask(self) -> int:
        """The bits of exponent and mantissa."""
        return self.sign_bit - 1

    @property
    def smallest(self) -> float:
        """The smallest positive number."""
        return 2.0 ** ((1 if self.has_zero else 0) - self.bias - self.mantissa)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with a full mantissa."""
        return 2.0 ** (1 - self.bias)

    @property
    def maximum(self) -> float:
        """The largest finite number of the format."""
        top, rest = self.largest >> self.mantissa, self.largest & ((1 << self.mantissa) - 1)
        return 2.0 ** (top - self.bias) * (1 + rest / (1 << self.mantissa))


_NAN, _INF = float("nan"), float("inf")
_E5M2_NANS = tuple((sign | code, _NAN) for sign in (0, 0x80) for code in (0x7D, 0x7E, 0x7F))

FORMATS: dict[DType, SmallFloat] = {
    DType.f8e4m3fn: SmallFloat(4, 3, 7, 0x7E, 0x7F, 0x7F, ((0x7F, _NAN), (0xFF, _NAN))),
    DType.f8e4m3fnuz: SmallFloat(4, 3, 8, 0x7F, 0x80, 0x80, ((0x80, _NAN),), is_unsigned_zero=True),
    DType.f8e5m2: SmallFloat(5, 2, 15, 0x7B, 0x7C, 0x7E, ((0x7C, _INF), (0xFC, -_INF), *_E5M2_NANS)),
    DType.f8e5m2fnuz: SmallFloat(5, 2, 16, 0x7F, 0x80, 0x80, ((0x80, _NAN),), is_unsigned_zero=True),
    DType.f8e8m0: SmallFloat(8, 0, 127, 0xFE, 0xFF, 0xFF, ((0xFF, _NAN),), is_signed=False, has_zero=False),
    DType.f4e2m1: SmallFloat(2, 1, 1, 0x7, 0x7, 0x8),
}
"""Type -> format. f4e2m1 has neither NaN nor infinity: numbers too large become the largest, NaN becomes negative zero."""
