"""C text of scalar ops, for one lane or a vector of lanes.

Meaning: `core/numbers/numerics.py`; integers wrap through unsigned arithmetic, nothing is undefined. Functions in an op's text are
definitions (`needs`).
"""

from __future__ import annotations

from tatami.c.kernels.c_types import SHORT_C, short
from tatami.c.kernels.needs import Needs
from tatami.c.kernels.vector_width import COMPARE, compare_text
from tatami.core.dtype import DType
from tatami.core.ops import DEFINED, EACH, LANE, OPS, CFunction

OF_NUMBERS = {"max": "larger", "min": "smaller"}
"""Function -> its equivalent for two operands of which neither is NaN, such as integers."""


def op_text(fn: str, dtype: DType, lanes: int, args: list[str], needs: Needs) -> str:
    """C text of op `fn` over operands of `dtype` (for `where`: its last two). Operands are atoms or parenthesised."""
    if fn == "where":
        return where_text(dtype, lanes, args, needs)
    if fn in COMPARE:
        if dtype == DType.bool and lanes > 1:  # true lanes are -1
            args = args[::-1]
        return compare_text(dtype, lanes, COMPARE[fn], args[0], args[1], needs)
    if dtype == DType.bool:
        return _logic(fn, lanes, args)
    if dtype.is_float:
        text = _float_op(fn, short(dtype), lanes, args, needs)
        if dtype.is_narrow_float and (not OPS[fn].exact or isinstance(OPS[fn].c, CFunction)):
            return round_text(dtype, lanes, text, needs)
        return text
    return _int_op(fn, dtype, lanes, args, needs)


def where_text(dtype: DType, lanes: int, args: list[str], needs: Needs) -> str:
    """C text of a choice between two registers by a bool register."""
    if lanes == 1:
        return f"({args[0]} ? {args[1]} : {args[2]})"
    return f"{needs.add(f'blend_{short(dtype)}x{lanes}')}({', '.join(args)})"


def _logic(fn: str, lanes: int, args: list[str]) -> str:
    """C text of a logical op; bools are 0 and 1, as lanes 0 and -1."""
    if fn in ("not", "bitnot"):
        return f"(!{args[0]})" if lanes == 1 else f"(~{args[0]})"
    return f"({args[0]} {OPS[fn].c} {args[1]})"


def _float_op(fn: str, element: str, lanes: int, args: list[str], needs: Needs) -> str:
    suffix = "f" if element == "f32" else ""
    dtype = DType.fp32 if element == "f32" else DType.fp64
    one = "1.0f" if element == "f32" else "1.0"
    a = args[0]
    v = "" if lanes == 1 else f"x{lanes}"
    match fn:
        case "neg":
            return f"(-{a})"
        case "abs" if lanes == 1:
            return f"__builtin_fabs{suffix}({a})"
        case "recip":
            return f"({one} / {a})"
        case "rsqrt":
            return f"({one} / {_float_op('sqrt', element, lanes, args, needs)})"
        case "isnan":
            return compare_text(dtype, lanes, "!=", a, a, needs)
        case "isinf" if lanes == 1:
            return f"(__builtin_fabs{suffix}({a}) == __builtin_inf{suffix}())"
        case "tf32" if lanes == 1:
            return f"{needs.add(f'tf32_{element}x4')}({needs.add(f'splat_{element}x4')}({a}))[0]"
        case "larger" | "smaller":
            return f"{needs.add(f'{fn}_{element}{v}')}({', '.join(args)})"
    c = OPS[fn].c
    if isinstance(c, CFunction):
        return _function(c, element, lanes, args, needs)
    if c == DEFINED:
        return f"{needs.add(f'{fn}_{element}{v}')}({', '.join(args)})"
    return f"({a} {c} {args[1]})"


def _function(c: CFunction, element: str, lanes: int, args: list[str], needs: Needs) -> str:
    """C text of a call of the vector function, or of a call for each lane."""
    if element == "f32" and c.vectors != EACH and (lanes > 1 or c.fp32 == LANE):
        if lanes > 1:
            return f"{needs.add(f'{c.vectors}_f32x{lanes}')}({', '.join(args)})"
        single = ", ".join(f"{needs.add('splat_f32x4')}({x})" for x in args)
        return f"{needs.add(f'{c.vectors}_f32x4')}({single})[0]"
    function = c.fp32 if element == "f32" else c.fp64
    if function.endswith(f"_{element}"):
        function = needs.add(function)
    if lanes == 1:
        return f"{function}({', '.join(args)})"
    return _each(function, len(args), element, lanes, args, needs)


def _each(function: str, arity: int, element: str, lanes: int, args: list[str], needs: Needs) -> str:
    return f"{needs.add(f'each_{function}_{arity}_{element}x{lanes}')}({', '.join(args)})"


def _int_op(fn: str, dtype: DType, lanes: int, args: list[str], needs: Needs) -> str:
    name = dtype.value
    bits = dtype.itemsize * 8
    c = needs.vector(name, lanes)
    signed = name[0] == "i"
    a = args[0]
    if lanes == 1:
        wide = SHORT_C[f"u{max(bits, 32)}"]
    else:
        wide = needs.vector(f"u{bits}", lanes)
    zero = "0" if lanes == 1 else f"({c}){{0}}"
    match fn:
        case "add" | "sub" | "mul":
            return f"(({c})(({wide}){a} {OPS[fn].c} ({wide}){args[1]}))"
        case "neg":
            return f"(({c})(0 - ({wide}){a}))"
        case "bitand" | "bitor" | "bitxor":
            return f"(({c})({a} {OPS[fn].c} {args[1]}))"
        case "bitnot":
            return f"(({c})(~{a}))"
        case "abs":
            if not signed:
                return a
            negative = _int_op("neg", dtype, lanes, args, needs)
            return where_text(dtype, lanes, [compare_text(dtype, lanes, "<", a, zero, needs), negative, a], needs)
        case "relu":
            if not signed:
                return a
            return where_text(dtype, lanes, [compare_text(dtype, lanes, ">", a, zero, needs), a, zero], needs)
        case "max" | "min" if name == "i32" and lanes > 1:
            return f"{needs.add(f'{OF_NUMBERS[fn]}_i32x{lanes}')}({', '.join(args)})"
        case "max" | "min":
            order = ">" if fn == "max" else "<"
            return where_text(dtype, lanes, [compare_text(dtype, lanes, order, a, args[1], needs), *args], needs)
        case "sign":
            if lanes == 1:
                return f"(({c})(({a} > 0) - ({a} < 0)))"
            if not signed:
                return f"(({c})(-({a} > 0)))"
            return f"(({c})(({a} < 0) - ({a} > 0)))"
        case "shl" | "shr" if lanes > 1 and bits >= 32:
            return f"{needs.add(f'int_{fn}_{name}x{lanes}')}({a}, {args[1]})"
        case "idiv" | "rem" | "mod" | "pow" | "shl" | "shr":
            scalar = needs.add(f"int_{fn}_{name}")
            return f"{scalar}({a}, {args[1]})" if lanes == 1 else _each(scalar, 2, name, lanes, args, needs)
    raise KeyError(fn)


def round_text(dtype: DType, lanes: int, x: str, needs: Needs) -> str:
    """C text of an fp32 register rounded to the grid of a 16-bit float."""
    if lanes == 1:
        return f"{needs.add(f'round_{dtype.value}x4')}({needs.add('splat_f32x4')}({x}))[0]"
    return f"{needs.add(f'round_{dtype.value}x{lanes}')}({x})"
