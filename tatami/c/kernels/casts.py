"""C text of casts: between registers of two dtypes, and between registers and their form in memory."""

from __future__ import annotations

from tatami.c.kernels.c_types import SHORT_C, memory_short, short
from tatami.c.kernels.needs import Needs
from tatami.c.kernels.scalar_ops import round_text
from tatami.c.kernels.vector_width import compare_text, convert_text
from tatami.core.dtype import DType


def cast_text(source: DType, to: DType, lanes: int, x: str, needs: Needs) -> str:
    """C text of a register as another dtype (numerics.cast)."""
    if source == to:
        return x
    target = needs.register(to, lanes)
    if to == DType.bool:
        zero = "0" if lanes == 1 else f"({needs.register(source, lanes)}){{0}}"
        return compare_text(source, lanes, "!=", x, zero, needs)
    if source == DType.bool and lanes > 1:
        x = f"(-{x})"
        source = DType.i32
        if to == DType.i32:
            return x
    if to.is_float:
        if source == DType.fp64 and to.is_narrow_float:
            odd = needs.add("oddone_f32")
            x = f"{odd}({x})" if lanes == 1 else f"{needs.add(f'odd_f32x{lanes}')}({x})"
            return round_text(to, lanes, x, needs)
        wide = x
        if short(source) != short(to):
            wide = f"(({target}){x})" if lanes == 1 else convert_text(x, short(source), short(to), lanes, needs)
        needs_rounding = to.is_narrow_float and not (source.is_int and source.itemsize == 1 and to == DType.fp16)
        return round_text(to, lanes, wide, needs) if needs_rounding else wide
    if source.is_float:
        vector = "" if lanes == 1 else f"x{lanes}"
        return f"{needs.add(f'toint_{short(source)}_{to.value}{vector}')}({x})"
    return f"(({target}){x})" if lanes == 1 else convert_text(x, short(source), short(to), lanes, needs)


def bits_text(source: DType, to: DType, lanes: int, x: str, needs: Needs) -> str:
    """C text of the memory form of a register, reinterpreted as another dtype of the same size."""
    return widen_text(
        to,
        lanes,
        _reinterpret(memory_short(source), memory_short(to), lanes, narrow_text(source, lanes, x, needs), needs),
        needs,
    )


def _reinterpret(a: str, b: str, lanes: int, x: str, needs: Needs) -> str:
    if a == b:
        return x
    if lanes > 1:
        return f"(({needs.vector(b, lanes)}){x})"
    if a[0] != "f" and b[0] != "f":
        return f"(({SHORT_C[b]}){x})"
    return f"(((union {{ {SHORT_C[a]} a; {SHORT_C[b]} b; }}){{{x}}}).b)"


def narrow_text(dtype: DType, lanes: int, x: str, needs: Needs) -> str:
    """C text of the memory form of a register."""
    if dtype == DType.bool:
        return f"((uint8_t){x})" if lanes == 1 else convert_text(f"(-{x})", "i32", "u8", lanes, needs)
    if dtype.is_narrow_float:
        form = "upper_bf16" if dtype == DType.bf16 else f"bits_{dtype.value}"  # registers are rounded already
        if lanes == 1:
            return f"{needs.add(f'{form}x4')}({needs.add('splat_f32x4')}({x}))[0]"
        return f"{needs.add(f'{form}x{lanes}')}({x})"
    return x


def widen_text(dtype: DType, lanes: int, x: str, needs: Needs) -> str:
    """C text of the register for a memory form."""
    if dtype == DType.bool:
        if lanes == 1:
            return f"({x} != 0)"
        return f"({convert_text(x, 'u8', 'i32', lanes, needs)} != 0)"
    if dtype.is_narrow_float:
        if lanes == 1:
            return f"{needs.add(f'widen_{dtype.value}x4')}(({needs.vector('u16', 4)}){{{x}}})[0]"
        return f"{needs.add(f'widen_{dtype.value}x{lanes}')}({x})"
    return x
