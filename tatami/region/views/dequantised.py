"""Operands of products that are matrices dequantised block by block: integers of 4 or 8 bits, zero points and scales.

    (cast(w[k, n], fp32) - cast(z[k//32, n], fp32)) * s[k//32, n]                 w of i8; zero and scale may be absent
    (cast(shr(shl(w[k//8, n], place), 28), fp32) - …) * s[k//32, n]               w of i32: eight numbers of 4 bits along k

A zero point or scale of all of k is read at row 0.
"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.simplify import linearize
from tatami.core.algebra.visit import substitute
from tatami.core.dtype import DType
from tatami.core.expr import ZERO, Expr, Floor, ceildiv, expr, floordiv, var
from tatami.core.layout import ROW_MAJOR
from tatami.region.ir import Binary, Cast, Const, Index, Read, Region, RegionExpr
from tatami.region.views.contraction import operand_tensor
from tatami.region.walk import Types, all_axes

NIBBLES = 8
"""Numbers of 4 bits in an element of 32 bits."""
_SIGN_SHIFT = 28


class Dequantised(msgspec.Struct, frozen=True):
    """The parts of a dequantised matrix. `block`: steps of `k` for each row of zero points and scales; 0: one row for all."""

    codes: Read
    zero: Read | None
    scale: Read | None
    bits: int
    k: str
    block: int

    @property
    def parts(self) -> tuple[tuple[Read, int], ...]:
        """The reads of codes, zero points and scales, each with the steps of k for one of its rows (0: one row for all)."""
        own = ((self.zero, self.block), (self.scale, self.block))
        return ((self.codes, self.group), *((read, each) for read, each in own if read is not None))

    @property
    def group(self) -> int:
        """Steps of k in an element of the codes."""
        return NIBBLES if self.bits == 4 else 1

    @property
    def value(self) -> RegionExpr:
        """The matrix as an expression."""
        codes: RegionExpr = self.codes
        if self.bits == 4:
            codes = Binary("shr", Binary("shl", codes, _place(self.k)), Const(_SIGN_SHIFT, DType.i32))
        out: RegionExpr = Cast(codes, DType.fp32)
        if self.zero is not None:
            out = Binary("sub", out, Cast(self.zero, DType.fp32))
        return out if self.scale is None else Binary("mul", out, self.scale)


def find_dequantised(e: RegionExpr, types: Types) -> Dequantised | None:
    """The parts of an operand that is a dequantised matrix; None for others, a mere cast among them."""
    x, scale, zero = _parts(e)
    if not isinstance(x, Cast):
        return None
    codes, bits = x.x, 8
    if isinstance(codes, Binary) and isinstance(codes.x, Binary):
        codes, bits = codes.x.x, 4
    given = [read for read in (codes, scale, zero) if read is not None]
    if not all(isinstance(read, Read) and len(read.map) == 2 for read in given) or (bits == 8 and len(given) == 1):
        return None
    assert isinstance(codes, Read)
    k = codes.map[0].as_name() if bits == 8 else _divided(codes.map[0])[0]
    by = scale or zero
    block = 0 if by is None or by.map[0] == ZERO else _divided(by.map[0])[1]
    found = Dequantised(codes, zero, scale, bits, k or "", block)
    dtypes = types.dtype(codes), DType.i8 if zero is None else types.dtype(zero)
    wanted = (DType.i8 if bits == 8 else DType.i32), DType.i8
    is_float = scale is None or types.dtype(scale) == DType.fp32
    row = floordiv(var(found.k), expr(block)) if block else ZERO
    is_aligned = all(read.map == (row, codes.map[1]) for read, _ in found.parts[1:])
    is_whole = bits == 8 or block % NIBBLES == 0
    return found if k and found.value == e and dtypes == wanted and is_float and is_aligned and is_whole else None


def _parts(e: RegionExpr) -> tuple[RegionExpr, Read | None, Read | None]:
    """The cast of the codes, the scale, and the zero point of an expression of this form."""
    scale: Read | None = None
    zero: Read | None = None
    match e:
        case Binary(fn="mul", x=x, y=Read() as scale):
            e = x
    match e:
        case Binary(fn="sub", x=x, y=Cast(x=Read() as zero)):
            e = x
    return e, scale, zero


def _place(k: str) -> RegionExpr:
    """The shift left after which the number of step `k` has the upper 4 bits: byte j of an element has step j in its low half
    and step j + 4 in its high half."""
    step = var(k)
    half = Index(floordiv(step, expr(4)) - floordiv(step, expr(NIBBLES)) * 2, DType.i32)
    byte = Index(step - floordiv(step, expr(4)) * 4, DType.i32)
    high = Binary("add", Binary("mul", half, Const(-4, DType.i32)), Const(_SIGN_SHIFT, DType.i32))
    return Binary("sub", high, Binary("mul", byte, Const(8, DType.i32)))


class QuantisedRows(msgspec.Struct, frozen=True):
    """The rows' operand of a product as integers of 8 bits with a scale for each row and block of k."""

    codes: Read
    scale: Read
    block: int


def find_quantised_rows(e: RegionExpr, types: Types, k: str) -> QuantisedRows | None:
    """The parts of an operand ``cast(q[m, k], fp32) * s[m, k//32]`` that is summed over `k`; None for others."""
    if not isinstance(e, Binary) or e.fn != "mul" or not isinstance(e.x, Cast) or not isinstance(e.y, Read):
        return None
    codes, scale = e.x.x, e.y
    if not isinstance(codes, Read) or not codes.map or not scale.map or e.x.to != DType.fp32:
        return None
    name, block = _divided(scale.map[-1])
    fits = types.dtype(codes) == DType.i8 and types.dtype(scale) == DType.fp32 and codes.map[:-1] == scale.map[:-1]
    return QuantisedRows(codes, scale, block) if fits and name == k and block and codes.map[-1] == var(k) else None


def find_rows_of_blocks(region: Region, e: RegionExpr, rows: tuple[str, ...], codes: Dequantised) -> QuantisedRows | None:
    """The parts of a rows' operand over the axes `rows` that has a scale for each block of `codes`, if blocks divide k and its
    rows lie one after the other in memory; else None."""
    extents = all_axes(region)
    k = extents[codes.k].as_int()
    found = find_quantised_rows(e, Types(region), codes.k)
    if found is None or codes.scale is None or found.block != codes.block or k is None:
        return None
    if k % codes.block or codes.block % NIBBLES:
        return None
    memrefs = {p.name: p.memref for p in region.inputs}
    row = linearize(tuple(var(a) for a in rows), tuple(extents[a] for a in rows))
    for read, columns in ((found.codes, k), (found.scale, k // found.block)):
        memref = memrefs[read.tensor]
        lead = linearize(read.map[:-1], memref.shape[:-1])
        if memref.layout != ROW_MAJOR or memref.shape[-1] != expr(columns) or lead != row:
            return None
    return found


def stored_operand(region: Region, e: RegionExpr) -> str:
    """The tensor whose elements a contraction's operand has (`operand_tensor`), or the codes of a dequantised one; else ""."""
    found = find_dequantised(e, Types(region))
    return operand_tensor(e) if found is None else found.codes.tensor


def rows_of(each: int, depth: Expr) -> Expr:
    """Number of rows of a part that has one for `each` steps of k (0: one for all)."""
    return ceildiv(depth, expr(each)) if each else expr(1)


def row_at(each: int, k: str) -> Expr:
    """The row, at step `k`, of a part that has one for `each` steps (0: one for all)."""
    return floordiv(var(k), expr(each)) if each else ZERO


def row_of_part(read: Read, each: int, k: str) -> Read:
    """The read of a part, with `k` counting its rows."""
    return Read(read.tensor, tuple(substitute(x, {k: var(k) * each}) for x in read.map))


def _divided(e: Expr) -> tuple[str, int]:
    """(name, divisor) of a floor division of a name by a number; ("", 0) for others."""
    match e.terms:
        case (((Floor(num=num, den=den),), 1),):
            return num.as_name() or "", den.as_int() or 0
        case _:
            return "", 0
