"""Casts from fp8 spelled out in bit operations, for targets without an instruction that converts fp8.

    cast(x: f8e4m3fn, fp32)   ->   bits of sign and magnitude where fp32 has them, times 2^120; NaN for its codes

Meaning: `core.numbers.numerics.cast`.
"""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.numbers.small_float import FORMATS
from tatami.core.scalar import scalar
from tatami.region.ir import Binary, Cast, Const, Region, RegionExpr, Select
from tatami.region.views.product import is_product_reduce
from tatami.region.walk import Types, nodes, rewrite


def spelled_out(region: Region, *, but_products: bool = False) -> Region:
    """The Region without casts from fp8. With `but_products` the factors of summed products keep their casts."""
    types = Types(region)

    def is_decoding(e: RegionExpr) -> bool:
        source = types.of(e.x) if isinstance(e, Cast) and not e.bits else None
        return source is not None and source.is_fp8

    def change(e: RegionExpr) -> RegionExpr:
        if not isinstance(e, Cast) or not is_decoding(e):
            return e
        dtype = types.of(e.x)
        assert dtype is not None
        number = _number(Cast(e.x, DType.u8, bits=True), dtype)
        return number if e.to == DType.fp32 else Cast(number, e.to)

    if not any(is_decoding(n) for let in region.lets for n in nodes(let.expr)):
        return region
    lets = tuple(
        let if but_products and is_product_reduce(let.expr) else msgspec.structs.replace(let, expr=rewrite(let.expr, change))
        for let in region.lets
    )
    return msgspec.structs.replace(region, lets=lets)


def _number(byte: RegionExpr, dtype: DType) -> RegionExpr:
    f = FORMATS[dtype]
    code = Cast(byte, DType.u32)

    def u32(number: int) -> Const:
        return Const(number, DType.u32)

    magnitude = Binary("shl", Binary("bitand", code, u32(f.magnitude_mask)), u32(23 - f.mantissa))
    sign = Binary("shl", Binary("bitand", code, u32(f.sign_bit)), u32(24))
    small = Cast(Binary("bitor", sign, magnitude), DType.fp32, bits=True)
    out: RegionExpr = Binary("mul", small, Const(scalar(2.0 ** (127 - f.bias)), DType.fp32))
    for special, value in f.specials:
        out = Select(Binary("eq", code, u32(special)), Const(scalar(value), DType.fp32), out)
    return out
