"""Dtypes smaller than arithmetic (fp8, fp4, int4, int2): below the frontend a value is one byte.

    cast(x : f8e4m3fn, fp32)   ->   shifts, masks and one select on u32, then a BITCAST to fp32
    cast(x : fp32, f8e4m3fn)   ->   the bits of |x| rounded to even at the last kept bit, overflow selected, the sign restored

Movement moves the bytes as u8. Only the ports of the main program keep the small dtype, each followed or preceded by one
BITCAST. Meaning: `core.numbers.numerics.cast`.
"""

from __future__ import annotations

import msgspec

from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.numbers.small_float import FORMATS, SmallFloat
from tatami.frontend.ir import Graph, TensorType
from tatami.tiny.build import Value
from tatami.tiny.infer import Type
from tatami.tiny.ir import BitcastOp


def carrier(dtype: DType) -> DType:
    """The dtype that holds values of `dtype` below the frontend: u8 for small dtypes."""
    return DType.u8 if dtype.is_small else dtype


def as_bytes(module: Module[Graph]) -> Module[Graph]:
    """The module with u8 instead of every small dtype in the signatures between graphs."""
    if not any(kind.dtype.is_small for g in module.programs.values() for kind in g.tensors.values()):
        return module
    return Module({n: _graph(g) for n, g in module.programs.items()}, module.constants, module.origins)


def _graph(graph: Graph) -> Graph:
    tensors = {n: TensorType(carrier(t.dtype), t.shape) for n, t in graph.tensors.items()}
    ports = graph.signature
    signature = msgspec.structs.replace(
        ports,
        inputs=tuple(msgspec.structs.replace(p, dtype=carrier(p.dtype)) for p in ports.inputs),
        outputs=tuple(msgspec.structs.replace(p, dtype=carrier(p.dtype)) for p in ports.outputs),
    )
    return msgspec.structs.replace(graph, signature=signature, tensors=tensors)


def converted(x: Value, source: DType, to: DType) -> Value:
    """The value of a cast if one side is a small dtype; the small side is a byte."""
    if source == to:
        return x
    wide = _decoded(x, source) if source.is_small else x
    if to.is_small:
        return _encoded(wide, to)
    return wide.cast(to)


def in_own_type(byte: Value, dtype: DType) -> Value:
    """The byte bitcast to its small dtype; a port of the main program has it already."""
    by_id = {n.id: n for n in byte.builder.nodes}
    node = by_id[byte.id]
    source = by_id[node.src[0]] if node.src else node
    if isinstance(node.op, BitcastOp) and source.dtype == dtype:
        return Value(byte.builder, source.id, Type(source.dtype, source.shape))
    return byte.bitcast(dtype)


def _decoded(x: Value, dtype: DType) -> Value:
    """The number in a byte, as fp32 or i32."""
    if dtype.is_small_int:
        value = x.cast(DType.i32)
        if not dtype.is_signed:
            return value.fn("bitand", x.builder.const((1 << dtype.bits) - 1, DType.i32))
        unused = x.builder.const(32 - dtype.bits, DType.i32)
        return value.fn("shl", unused).fn("shr", unused)
    return _from_code(x.cast(DType.u32), FORMATS[dtype])


def _from_code(code: Value, f: SmallFloat) -> Value:
    b = code.builder

    def u32(number: int) -> Value:
        return b.const(number, DType.u32)

    magnitude = code.fn("bitand", u32(f.magnitude_mask)) if f.is_signed else code
    kept = 23 - f.mantissa
    normal = (magnitude.fn("shl", u32(kept)) + u32((127 - f.bias) << 23)).bitcast(DType.fp32)
    low = magnitude.fn("lt", u32(1 << f.mantissa))
    value = (
        low.where(magnitude.cast(DType.fp32) * f.smallest, normal)
        if f.has_zero
        else low.where(b.const(f.smallest, DType.fp32), normal)
    )
    if f.is_signed:
        negative = code.fn("bitand", u32(f.sign_bit)).fn("ne", u32(0))
        value = negative.where(-value, value)
    for special, number in f.specials:
        value = code.fn("eq", u32(special)).where(b.const(number, DType.fp32), value)
    return value


def _encoded(x: Value, dtype: DType) -> Value:
    """The byte that holds a number."""
    if dtype.is_small_int:
        whole = x.cast(DType.i32)
        return whole.fn("bitand", x.builder.const((1 << dtype.bits) - 1, DType.i32)).cast(DType.u8)
    return _to_code(x.cast(DType.fp32), FORMATS[dtype]).cast(DType.u8)


def _to_code(x: Value, f: SmallFloat) -> Value:
    """The code of a number, as i32. Values below the smallest normal number are multiples of `smallest`; others keep their top
    bits."""
    b = x.builder

    def i32(number: int) -> Value:
        return b.const(number, DType.i32)

    bits = x.fn("abs").bitcast(DType.i32)
    kept = 23 - f.mantissa
    if not f.has_zero:  # only powers of two
        code = (bits + i32(1 << 22)).fn("shr", i32(23))
        return (x > 0.0).where(code, i32(f.nan))
    even = bits.fn("shr", i32(kept)).fn("bitand", i32(1))
    normal = (bits + even + i32((1 << (kept - 1)) - 1)).fn("shr", i32(kept)) - i32((127 - f.bias) << f.mantissa)
    small = (x.fn("abs") * (1.0 / f.smallest)).fn("round").cast(DType.i32)
    code = (x.fn("abs") < f.smallest_normal).where(small, normal)
    code = (code > f.largest).where(i32(f.overflow), code)
    if f.is_signed:
        sign = x.bitcast(DType.i32).fn("lt", i32(0))
        signed = code.fn("bitor", i32(f.sign_bit))
        if f.is_unsigned_zero:
            signed = code.fn("eq", i32(0)).where(code, signed)
        code = sign.where(signed, code)
    return x.fn("isnan").where(i32(f.nan), code)
