"""C text of scalar ops and casts, for one lane or a vector of lanes, and the definitions the text needs.

A *definition* is a piece of C named by a key such as ``f32x16`` (a vector type) or ``exp_f32x16`` (a function). `Needs`
collects the keys a unit uses and prints each once, after what it needs itself. Meaning: `core/numerics.py`; integers
wrap through unsigned arithmetic, nothing is undefined.

Registers: bool is int32_t 0 or 1 (a vector: i32 lanes 0 or -1); 16-bit floats are fp32 values on their grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tatami.c.vector_width import COMPARE, compare_halves, convert_text
from tatami.core.dtype import DType
from tatami.core.ops import highest, lowest
from tatami.core.scalar import Scalar, number

_MATH = Path(__file__).parent / "math_text"

_C_MEMORY = {
    DType.bool: "uint8_t",
    DType.i8: "int8_t",
    DType.u8: "uint8_t",
    DType.i16: "int16_t",
    DType.u16: "uint16_t",
    DType.i32: "int32_t",
    DType.u32: "uint32_t",
    DType.i64: "int64_t",
    DType.u64: "uint64_t",
    DType.fp16: "uint16_t",
    DType.bf16: "uint16_t",
    DType.fp32: "float",
    DType.fp64: "double",
    **{d: "uint8_t" for d in DType if d.is_small},
}
_SHORT_C = {
    "i8": "int8_t",
    "u8": "uint8_t",
    "i16": "int16_t",
    "u16": "uint16_t",
    "i32": "int32_t",
    "u32": "uint32_t",
    "i64": "int64_t",
    "u64": "uint64_t",
    "f32": "float",
    "f64": "double",
}
_SHORT_OF = {v: k for k, v in _SHORT_C.items()}
_SHORT_SIZE = {k: 8 if k.endswith("64") else 4 if k.endswith("32") else 2 if k.endswith("16") else 1 for k in _SHORT_C}


def memory_type(dtype: DType) -> str:
    return _C_MEMORY[dtype]


def memory_short(dtype: DType) -> str:
    """The element type of vectors of `dtype` in memory."""
    c = _C_MEMORY[dtype]
    return _SHORT_OF[c]


def short(dtype: DType) -> str:
    """The element type of registers of `dtype`."""
    if dtype == DType.bool:
        return "i32"
    if dtype.is_small:
        return "u8"
    if dtype.is_float:
        return "f64" if dtype == DType.fp64 else "f32"
    return str(dtype.value)


def register_type(dtype: DType, lanes: int) -> str:
    return _SHORT_C[short(dtype)] if lanes == 1 else f"{short(dtype)}x{lanes}"


class Needs:
    """Definitions in the order in which they have to stand."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def add(self, key: str) -> str:
        """Require the definition `key`; returns the C name it defines."""
        if key not in self.texts:
            text = _define(key, self)
            self.texts.setdefault(key, text)
        return _name(key)

    def vector(self, element: str, lanes: int) -> str:
        """The vector type of `lanes` elements (C itself for one)."""
        return _SHORT_C[element] if lanes == 1 else self.add(f"{element}x{lanes}")

    def register(self, dtype: DType, lanes: int) -> str:
        return self.vector(short(dtype), lanes)

    def text(self) -> str:
        return "\n".join(t for t in self.texts.values() if t)


def _name(key: str) -> str:
    return key if "_" not in key else f"t_{key}"


def _define(key: str, needs: Needs) -> str:
    base, _, lanes_text = key.rpartition("x")
    lanes = int(lanes_text) if lanes_text.isdigit() else 0
    base = base if lanes else key
    if base in _SHORT_C:
        size = _SHORT_SIZE[base] * lanes
        c = _SHORT_C[base]
        return (
            f"typedef {c} {key} __attribute__((vector_size({size})));\n"
            f"typedef {c} {key}_u __attribute__((vector_size({size}), aligned({_SHORT_SIZE[base]}), may_alias));"
        )
    for prefix, make in _MAKERS.items():
        if key.startswith(prefix + "_"):
            return make(key, base, max(lanes, 1), needs)
    return _from_file(key, base, lanes, needs)


@cache
def _file_text(name: str) -> str:
    return (_MATH / f"{name}.c").read_text(encoding="utf-8")


def _from_file(key: str, base: str, lanes: int, needs: Needs) -> str:
    """A template of `math_text`: `@W` is the number of lanes; ``/* needs: a b */`` on the first line."""
    text = _file_text(base)
    first, _, rest = text.partition("\n")
    if first.startswith("/* needs:"):
        for word in first.removeprefix("/* needs:").removesuffix("*/").split():
            needs.add(word.replace("@W", str(lanes)))
        text = rest
    return text.replace("@W", str(lanes)).strip()


# -- made definitions ----------------------------------------------------------------------------


def _splat(key: str, base: str, lanes: int, needs: Needs) -> str:
    element = base.removeprefix("splat_")
    v = needs.vector(element, lanes)
    return f"static inline {v} t_{key}({_SHORT_C[element]} x) {{ return ({v}){{{', '.join(['x'] * lanes)}}}; }}"


def _iota(key: str, base: str, lanes: int, needs: Needs) -> str:
    element = base.removeprefix("iota_")
    v = needs.vector(element, lanes)
    return f"static inline {v} t_{key}(void) {{ return ({v}){{{', '.join(str(i) for i in range(lanes))}}}; }}"


def _blend(key: str, base: str, lanes: int, needs: Needs) -> str:
    """blend_<element>x<W>(mask, a, b): a where the mask, else b."""
    element = base.removeprefix("blend_")
    v, m = needs.vector(element, lanes), needs.vector("i32", lanes)
    same = needs.vector(f"i{8 * _SHORT_SIZE[element]}", lanes)
    mask = "m" if same == m else convert_text("m", "i32", same.removesuffix(f"x{lanes}"), lanes, needs)
    return (
        f"static inline {v} t_{key}({m} m, {v} a, {v} b) {{\n"
        f"  {same} k = {mask};\n  return ({v})((({same})a & k) | (({same})b & ~k));\n}}"
    )


def _shift(key: str, base: str, lanes: int, needs: Needs) -> str:
    """shift_up<k>_<element>x<W>(x, fill): lane i is lane i-k of x (down: i+k), of fill where there is none."""
    _, way, element = base.split("_")
    v = needs.vector(element, lanes)
    index = needs.vector(f"i{8 * _SHORT_SIZE[element]}", lanes)
    by = int(way.removeprefix("up")) if way.startswith("up") else -int(way.removeprefix("down"))
    order = ", ".join(str(i - by if 0 <= i - by < lanes else lanes + i) for i in range(lanes))
    return (
        f"static inline {v} t_{key}({v} x, {v} fill) {{\n"
        f"#if defined(__clang__) || __GNUC__ >= 12\n  return __builtin_shufflevector(x, fill, {order});\n"
        f"#else\n  return __builtin_shuffle(x, fill, ({index}){{{order}}});\n#endif\n}}"
    )


def _active(key: str, base: str, lanes: int, needs: Needs) -> str:
    element = base.removeprefix("active_")
    v = needs.vector(element, lanes)
    c = _SHORT_C[element]
    return (
        f"static inline {v} t_{key}(const {c}* p, int64_t n) {{\n  {v} r = {{0}};\n"
        f"  for (int64_t i = 0; i < n; ++i) r[i] = p[i];\n  return r;\n}}"
    )


def _second(key: str, base: str, lanes: int, needs: Needs) -> str:
    """second_<element>x<W>(p): p[0], p[2], …: two loads that meet, so that nothing past the last of them is read."""
    element = base.removeprefix("second_")
    v = needs.vector(element, lanes)
    order = ", ".join(str(2 * i if 2 * i < lanes else 2 * i + 1) for i in range(lanes))
    elements = ", ".join(f"p[{2 * i}]" for i in range(lanes))
    return (
        f"static inline {v} t_{key}(const {_SHORT_C[element]}* p) {{\n"
        f"#if defined(__clang__) || __GNUC__ >= 12\n"
        f"  return __builtin_shufflevector(*(const {v}_u*)p, *(const {v}_u*)(p + {lanes - 1}), {order});\n"
        f"#else\n  return ({v}){{{elements}}};\n#endif\n}}"
    )


def _strided(key: str, base: str, lanes: int, needs: Needs) -> str:
    """strided_<element>x<W>(p, step): p[0], p[step], … One address with offsets: C compilers take minutes over loops in
    which each lane has an address of its own."""
    element = base.removeprefix("strided_")
    v = needs.vector(element, lanes)
    elements = ", ".join(f"p[{i} * step]" for i in range(lanes))
    return f"static inline {v} t_{key}(const {_SHORT_C[element]}* p, int64_t step) {{ return ({v}){{{elements}}}; }}"


def _horizontal(key: str, base: str, lanes: int, needs: Needs) -> str:
    """h_<fn>_<dtype>x<W>."""
    _, fn, dtype_name = base.split("_")
    dtype = DType(dtype_name)
    v = needs.register(dtype, lanes)
    half = lanes // 2
    h = needs.register(dtype, half)
    scalar = _SHORT_C[short(dtype)]
    if half == 1:
        combined = op_text(_COMBINE[fn], dtype, 1, [_lane(dtype, "x", "0"), _lane(dtype, "x", "1")], needs)
        return f"static inline {scalar} t_{key}({v} x) {{ return {combined}; }}"
    if short(dtype) == "f32" and lanes == 4:
        return _horizontal4(key, _COMBINE[fn], dtype, needs)
    inner = needs.add(f"h_{fn}_{dtype_name}x{half}")
    combined = op_text(_COMBINE[fn], dtype, half, ["u.h[0]", "u.h[1]"], needs)
    return (
        f"static inline {scalar} t_{key}({v} x) {{\n  union {{ {v} v; {h} h[2]; }} u = {{x}};\n"
        f"  return {inner}({combined});\n}}"
    )


def _horizontal4(key: str, fn: str, dtype: DType, needs: Needs) -> str:
    """Four floats by two exchanges of lanes, in registers. (Lanes taken out one by one are compared by branches.)"""
    v, index = needs.vector("f32", 4), needs.vector("i32", 4)

    def turned(order: str) -> str:
        return f"__builtin_shufflevector(x, x, {order});\n#else\n  y = __builtin_shuffle(x, ({index}){{{order}}});\n#endif\n"

    joined = op_text(fn, dtype, 4, ["x", "y"], needs)
    steps = "".join(
        f"#if defined(__clang__) || __GNUC__ >= 12\n  y = {turned(order)}  x = {joined};\n"
        for order in ("2, 3, 0, 1", "1, 0, 3, 2")
    )
    return f"static inline float t_{key}({v} x) {{\n  {v} y;\n{steps}  return x[0];\n}}"


_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or"}


def combine_op(fn: str, dtype: DType) -> str:
    """The scalar op that joins two partial results of a reduce or scan `fn` in `dtype`."""
    if dtype == DType.bool:
        return {"sum": "or", "max": "or", "prod": "and", "min": "and"}.get(fn, fn)
    return _COMBINE[fn]


def _lanes_call(key: str, base: str, lanes: int, needs: Needs) -> str:
    """each_<scalar function>_<arity>_<element>x<W>: a scalar function lane by lane."""
    words = base.removeprefix("each_").split("_")
    element, arity, function = words[-1], int(words[-2]), "_".join(words[:-2])
    v = needs.vector(element, lanes)
    names = "abc"[:arity]
    call = f"{function}({', '.join(f'u{n}.s[i]' for n in names)})"
    declared = "\n".join(f"  union {{ {v} v; {_SHORT_C[element]} s[{lanes}]; }} u{n} = {{{n}}};" for n in names)
    return (
        f"static inline {v} t_{key}({', '.join(f'{v} {n}' for n in names)}) {{\n{declared}\n"
        f"  for (int i = 0; i < {lanes}; ++i) ua.s[i] = {call};\n  return ua.v;\n}}"
    )


def _to_int(key: str, base: str, lanes: int, needs: Needs) -> str:
    """toint_<f32|f64>_<int>x<W>: truncate, saturate, NaN to 0."""
    _, source, target = base.split("_")
    s, d = needs.vector(source, lanes), needs.vector(target, lanes)
    dtype = DType(target)
    low, high = lowest(dtype), highest(dtype)
    high_text = _float_literal(float(high), source)
    low_text = _float_literal(float(low), source)
    if lanes == 1:
        return (
            f"static inline {d} t_{key}({s} x) {{\n  if (x != x) return 0;\n"
            f"  if (x >= {high_text}) return {int_literal(high, dtype)};\n"
            f"  if (x <= {low_text}) return {int_literal(low, dtype)};\n  return ({d})x;\n}}"
        )
    i = needs.vector("i64" if source == "f64" else "i32", lanes)
    m = needs.vector("i32", lanes)
    blend_s, blend_d = needs.add(f"blend_{source}x{lanes}"), needs.add(f"blend_{target}x{lanes}")
    splat_s, splat_d = needs.add(f"splat_{source}x{lanes}"), needs.add(f"splat_{target}x{lanes}")

    def mask(e: str) -> str:
        return f"({e})" if i == m else f"__builtin_convertvector(({e}), {m})"

    return (
        f"static inline {d} t_{key}({s} x) {{\n"
        f"  {m} high = {mask(f'x >= {splat_s}({high_text})')}, low = {mask(f'x <= {splat_s}({low_text})')};\n"
        f"  {m} inside = {mask('x == x')} & ~high & ~low;\n"
        f"  {d} r = {convert_text(f'{blend_s}(inside, x, {splat_s}(0))', source, target, lanes, needs)};\n"
        f"  r = {blend_d}(high, {splat_d}({int_literal(high, dtype)}), r);\n"
        f"  return {blend_d}(low, {splat_d}({int_literal(low, dtype)}), r);\n}}"
    )


def _integer_function(key: str, base: str, lanes: int, needs: Needs) -> str:
    """int_<op>_<dtype>: division, remainder, power and shifts, total over all operands."""
    _, op, name = key.split("_")
    c = _SHORT_C[name]
    u = _SHORT_C["u" + name[1:]]
    bits = _SHORT_SIZE[name] * 8
    signed = name[0] == "i"
    wide = "uint32_t" if bits < 32 else u
    head = f"static inline {c} t_{key}({c} x, {c} y) {{ "
    minus = f"if (y == -1) return ({c})(0 - ({wide})x); " if signed else ""
    match op:
        case "idiv":
            return head + f"if (y == 0) return 0; {minus}return ({c})(x / y); }}"
        case "rem":
            return head + f"if (y == 0) return 0; {'if (y == -1) return 0; ' if signed else ''}return ({c})(x % y); }}"
        case "mod":
            rem = needs.add(f"int_rem_{name}")
            fix = f"if (r != 0 && (r < 0) != (y < 0)) r = ({c})(r + y); " if signed else ""
            return head + f"{c} r = {rem}(x, y); {fix}return r; }}"
        case "pow":
            low = "if (y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) ? -1 : 1) : 0; " if signed else ""
            return (
                head + f"{low}{wide} b = ({wide})x, r = 1; {u} n = ({u})y; "
                f"while (n) {{ if (n & 1) r = ({wide})(r * b); b = ({wide})(b * b); n >>= 1; }} return ({c})({u})r; }}"
            )
        case "shl":
            inside = f"y >= 0 && y < {bits}" if signed else f"y < {bits}"
            return head + f"return ({inside}) ? ({c})({u})(({wide})x << y) : 0; }}"
        case "shr":
            inside = f"y >= 0 && y < {bits}" if signed else f"y < {bits}"
            outside = f"(x < 0 ? ({c})-1 : 0)" if signed else "0"
            return head + f"return ({inside}) ? ({c})(x >> y) : {outside}; }}"
    raise KeyError(key)


_MAKERS: dict[str, Callable[[str, str, int, Needs], str]] = {
    "splat": _splat,
    "iota": _iota,
    "blend": _blend,
    "active": _active,
    "shift": _shift,
    "second": _second,
    "strided": _strided,
    "h": _horizontal,
    "each": _lanes_call,
    "toint": _to_int,
    "int": _integer_function,
}


def _simple(key: str, base: str, lanes: int, needs: Needs) -> str:
    """abs, sign, relu, tf32, max, min, isinf of floats: NaN goes through all of them."""
    fn, element = base.split("_")
    n = max(lanes, 1)
    t, m = needs.vector(element, n), needs.vector("i32", n)
    dtype = DType.fp32 if element == "f32" else DType.fp64
    infinity = f"__builtin_inf{'f' if element == 'f32' else ''}()"

    def where(mask: str, a: str, b: str) -> str:
        return _where(dtype, n, [mask, a, b], needs)

    def mask(op: str, a: str, b: str) -> str:
        return _mask(dtype, n, op, a, b, needs)

    def value(text: str) -> str:
        return text if n == 1 else f"{needs.add(f'splat_{element}x{n}')}({text})"

    if fn in ("max", "min"):
        order = ">" if fn == "max" else "<"
        nan, beyond = mask("!=", "b", "b"), mask(order, "b", "a")
        body = f"  return {where(f'({beyond} | {nan})', 'b', 'a')};"
        if element == "f32" and n == 1:  # a comparison of numbers that nobody foresees: no branch
            wide, lane = needs.add(f"{fn}_f32x4"), needs.add("splat_f32x4")
            body = f"  return {wide}({lane}(a), {lane}(b))[0];"
        if (element, n) in _MAX_REGISTER:
            masked, register = _MAX_REGISTER[element, n]
            order = f"__builtin_ia32_cmpps{register}_mask(b, b, 7, -1{', 4' if n == 16 else ''})"
            name = f"__builtin_ia32_{fn}ps{register if n > 4 else ''}"
            texts = [(masked, f"{name}_mask(b, a, b, {order}{', 4' if n == 16 else ''})")]
            if n < 16:
                texts.append(("__AVX__" if n == 8 else "__SSE__", where(nan, "b", f"{name}(b, a)")))
            for macro, text in reversed(texts):
                body = f"#if defined({macro}) && !defined(__clang__)\n  return {text};\n#else\n{body}\n#endif"
        return f"static inline {t} t_{key}({t} a, {t} b) {{\n{body}\n}}"
    if fn == "isinf":
        high, low = (mask("==", "a", value(x)) for x in (infinity, "-" + infinity))
        return f"static inline {m} t_{key}({t} a) {{ return ({high} | {low}); }}"
    if fn == "relu":
        body = where(mask("<=", "a", value("0")), value("0"), "a")
    elif fn == "sign":
        body = where(mask(">", "a", value("0")), value("1"), where(mask("<", "a", value("0")), value("-1"), "a"))
    elif fn == "tf32":
        bits, dropped = needs.vector(f"u{element[1:]}", n), 13 if element == "f32" else 42
        body = f"({t})(((({bits})a + {1 << (dropped - 1):#x}u) >> {dropped}) << {dropped})"
        body = where(mask("==", "(a - a)", value("0")), body, "a")  # neither infinite nor NaN
    else:  # abs
        unsigned = needs.vector(f"u{element[1:]}", n)
        magnitude = "0x7fffffffu" if element == "f32" else "0x7fffffffffffffffu"
        body = f"({t})(({unsigned})a & {magnitude})"
    return f"static inline {t} t_{key}({t} a) {{ return {body}; }}"


# -- constants -----------------------------------------------------------------------------------


def int_literal(value: int, dtype: DType) -> str:
    if dtype == DType.u64:
        return f"UINT64_C({value})"
    if dtype == DType.i64:
        return "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"
    if dtype == DType.u32:
        return f"{value}u"
    if value == -(1 << 31):
        return "INT32_MIN"
    return str(value) if value >= 0 else f"({value})"


def _float_literal(value: float, element: str) -> str:
    suffix = "f" if element == "f32" else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    text = value.hex() if value else ("-0.0" if math.copysign(1, value) < 0 else "0.0")
    return f"({text}{suffix})" if text[0] == "-" else f"{text}{suffix}"


def constant_text(value: Scalar, dtype: DType, rounded: Callable[[Scalar, DType], Scalar]) -> str:
    """A literal of one lane, already rounded to the dtype by `rounded` (core.numerics.constant)."""
    n = number(rounded(value, dtype))
    if dtype == DType.bool:
        return "1" if n else "0"
    if dtype.is_float:
        return _float_literal(float(n), short(dtype))
    return int_literal(int(n), dtype)


# -- ops -----------------------------------------------------------------------------------------


def _lane(dtype: DType, x: str, lane: str) -> str:
    return f"({x}[{lane}] & 1)" if dtype == DType.bool else f"{x}[{lane}]"


_COMPARE_NAME = {op: name for name, op in COMPARE.items()}
_MAX_REGISTER = {("f32", 16): ("__AVX512F__", 512), ("f32", 8): ("__AVX512VL__", 256), ("f32", 4): ("__AVX512VL__", 128)}
"""Where gcc has masks, and its names for a register's width. The instructions for max and min give their second operand of
two zeros and where one is NaN; so a maximum that is carried on as `a` waits for one instruction where `b` is a number."""
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_BITWISE = {"bitand": "&", "bitor": "|", "bitxor": "^"}
_OWN_F32 = {"exp", "exp2", "log", "log2", "tanh", "erf", "sigmoid", "sin", "cos", "floor", "ceil", "round", "trunc"}
_LIBM = {
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "exp": "exp",
    "exp2": "exp2",
    "log": "log",
    "log2": "log2",
    "tanh": "tanh",
    "erf": "erf",
    "sin": "sin",
    "cos": "cos",
    "floor": "floor",
    "ceil": "ceil",
    "round": "rint",
    "trunc": "trunc",
    "sqrt": "sqrt",
    "rem": "fmod",
    "pow": "pow",
    "atan2": "atan2",
}
_DIRECT_F32 = {"sqrt": "__builtin_sqrtf", "rem": "fmodf"}


def op_text(fn: str, dtype: DType, lanes: int, args: list[str], needs: Needs) -> str:
    """C of op `fn` over operands of `dtype` (of `where`: its last two). Operands are atoms or parenthesised."""
    if fn == "where":
        return _where(dtype, lanes, args, needs)
    if fn in COMPARE:
        if dtype == DType.bool and lanes > 1:  # true lanes are -1
            args = args[::-1]
        return _mask(dtype, lanes, COMPARE[fn], args[0], args[1], needs)
    if dtype == DType.bool:
        return _logic(fn, lanes, args)
    if dtype.is_float:
        text = _float_op(fn, short(dtype), lanes, args, needs)
        if dtype.is_narrow_float and fn not in ("neg", "abs", "max", "min", "relu", "sign", "tf32", "isnan", "isinf"):
            return round_text(dtype, lanes, text, needs)
        return text
    return _int_op(fn, dtype, lanes, args, needs)


def _mask(dtype: DType, lanes: int, op: str, a: str, b: str, needs: Needs) -> str:
    """A comparison as a bool register."""
    if lanes == 1:
        return f"({a} {op} {b})"
    m = needs.vector("i32", lanes)
    match _SHORT_SIZE[short(dtype)]:
        case 4:
            return f"(({m})({a} {op} {b}))"
        case 8 if lanes >= 4:
            return f"{needs.add(f'compare_{_COMPARE_NAME[op]}_{short(dtype)}x{lanes}')}({a}, {b})"
        case _:
            return f"__builtin_convertvector(({a} {op} {b}), {m})"


_MAKERS["compare"] = compare_halves


def _where(dtype: DType, lanes: int, args: list[str], needs: Needs) -> str:
    if lanes == 1:
        return f"({args[0]} ? {args[1]} : {args[2]})"
    return f"{needs.add(f'blend_{short(dtype)}x{lanes}')}({', '.join(args)})"


def _logic(fn: str, lanes: int, args: list[str]) -> str:
    match fn:
        case "not" | "bitnot":
            return f"(!{args[0]})" if lanes == 1 else f"(~{args[0]})"
        case "and" | "bitand":
            return f"({args[0]} & {args[1]})"
        case "or" | "bitor":
            return f"({args[0]} | {args[1]})"
        case "xor" | "bitxor":
            return f"({args[0]} ^ {args[1]})"
    raise KeyError(fn)


def _float_op(fn: str, element: str, lanes: int, args: list[str], needs: Needs) -> str:
    suffix = "f" if element == "f32" else ""
    dtype = DType.fp32 if element == "f32" else DType.fp64
    one = "1.0f" if element == "f32" else "1.0"
    a = args[0]
    if fn in _ARITHMETIC:
        return f"({a} {_ARITHMETIC[fn]} {args[1]})"
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
            return _mask(dtype, lanes, "!=", a, a, needs)
        case "isinf" if lanes == 1:
            return f"(__builtin_fabs{suffix}({a}) == __builtin_inf{suffix}())"
        case "tf32" if lanes == 1:
            return f"{needs.add(f'tf32_{element}x4')}({needs.add(f'splat_{element}x4')}({a}))[0]"
        case "abs" | "sign" | "relu" | "tf32" | "max" | "min" | "isinf":
            return f"{needs.add(f'{fn}_{element}{v}')}({', '.join(args)})"
        case "mod":
            scalar = needs.add(f"mod_{element}")
            return f"{scalar}({a}, {args[1]})" if lanes == 1 else _each(scalar, 2, element, lanes, args, needs)
        case "sigmoid" if element == "f64":
            scalar = needs.add("sigmoid_f64")
            return f"{scalar}({a})" if lanes == 1 else _each(scalar, 1, element, lanes, args, needs)
    if element == "f32" and fn in _OWN_F32:
        if lanes > 1:
            return f"{needs.add(f'{fn}_f32x{lanes}')}({a})"
        return f"{needs.add(f'{fn}_f32x4')}({needs.add('splat_f32x4')}({a}))[0]"
    if element == "f32" and fn in _DIRECT_F32:
        function = _DIRECT_F32[fn]
    elif element == "f32":
        function = needs.add(f"lib_{_LIBM[fn]}_f32")
    else:
        function = _LIBM[fn]
    if lanes == 1:
        return f"{function}({', '.join(args)})"
    return _each(function, len(args), element, lanes, args, needs)


def _each(function: str, arity: int, element: str, lanes: int, args: list[str], needs: Needs) -> str:
    return f"{needs.add(f'each_{function}_{arity}_{element}x{lanes}')}({', '.join(args)})"


def _lib(key: str, base: str, lanes: int, needs: Needs) -> str:
    """lib_<libm function>_f32: through double, so that one rounding remains."""
    function = key.split("_")[1]
    two = function in ("pow", "atan2")
    params = "float x, float y" if two else "float x"
    return f"static inline float t_{key}({params}) {{ return (float){function}({'x, y' if two else 'x'}); }}"


_MAKERS["lib"] = _lib
for _fn in ("abs", "sign", "relu", "tf32", "max", "min", "isinf"):
    _MAKERS[_fn] = _simple


def _int_op(fn: str, dtype: DType, lanes: int, args: list[str], needs: Needs) -> str:
    name = dtype.value
    bits = dtype.itemsize * 8
    c = needs.vector(name, lanes)
    signed = name[0] == "i"
    a = args[0]
    if lanes == 1:
        wide = _SHORT_C[f"u{max(bits, 32)}"]
    else:
        wide = needs.vector(f"u{bits}", lanes)
    zero = "0" if lanes == 1 else f"({c}){{0}}"
    match fn:
        case "add" | "sub" | "mul":
            return f"(({c})(({wide}){a} {_ARITHMETIC[fn]} ({wide}){args[1]}))"
        case "neg":
            return f"(({c})(0 - ({wide}){a}))"
        case "bitand" | "bitor" | "bitxor":
            return f"(({c})({a} {_BITWISE[fn]} {args[1]}))"
        case "bitnot":
            return f"(({c})(~{a}))"
        case "abs":
            if not signed:
                return a
            negative = _int_op("neg", dtype, lanes, args, needs)
            return _where(dtype, lanes, [_mask(dtype, lanes, "<", a, zero, needs), negative, a], needs)
        case "relu":
            if not signed:
                return a
            return _where(dtype, lanes, [_mask(dtype, lanes, ">", a, zero, needs), a, zero], needs)
        case "max" | "min":
            order = ">" if fn == "max" else "<"
            return _where(dtype, lanes, [_mask(dtype, lanes, order, a, args[1], needs), *args], needs)
        case "sign":
            if lanes == 1:
                return f"(({c})(({a} > 0) - ({a} < 0)))"
            if not signed:
                return f"(({c})(-({a} > 0)))"
            return f"(({c})(({a} < 0) - ({a} > 0)))"
        case "idiv" | "rem" | "mod" | "pow" | "shl" | "shr":
            scalar = needs.add(f"int_{fn}_{name}")
            return f"{scalar}({a}, {args[1]})" if lanes == 1 else _each(scalar, 2, name, lanes, args, needs)
    raise KeyError(fn)


# -- casts ---------------------------------------------------------------------------------------


def round_text(dtype: DType, lanes: int, x: str, needs: Needs) -> str:
    """An fp32 register rounded to the grid of a 16-bit float."""
    if lanes == 1:
        return f"{needs.add(f'round_{dtype.value}x4')}({needs.add('splat_f32x4')}({x}))[0]"
    return f"{needs.add(f'round_{dtype.value}x{lanes}')}({x})"


def cast_text(source: DType, to: DType, lanes: int, x: str, needs: Needs) -> str:
    """Convert a register (numerics.cast)."""
    if source == to:
        return x
    target = needs.register(to, lanes)
    if to == DType.bool:
        zero = "0" if lanes == 1 else f"({needs.register(source, lanes)}){{0}}"
        return _mask(source, lanes, "!=", x, zero, needs)
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
    """Reinterpret the memory form of a register of one dtype as another of the same size."""
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
        return f"(({_SHORT_C[b]}){x})"
    return f"(((union {{ {_SHORT_C[a]} a; {_SHORT_C[b]} b; }}){{{x}}}).b)"


def narrow_text(dtype: DType, lanes: int, x: str, needs: Needs) -> str:
    """The memory form of a register."""
    if dtype == DType.bool:
        return f"((uint8_t){x})" if lanes == 1 else convert_text(f"(-{x})", "i32", "u8", lanes, needs)
    if dtype.is_narrow_float:
        if lanes == 1:
            return f"((uint16_t){needs.add(f'bits_{dtype.value}x4')}({needs.add('splat_f32x4')}({x}))[0])"
        return f"__builtin_convertvector({needs.add(f'bits_{dtype.value}x{lanes}')}({x}), {needs.vector('u16', lanes)})"
    return x


def widen_text(dtype: DType, lanes: int, x: str, needs: Needs) -> str:
    """The register of a memory form."""
    if dtype == DType.bool:
        if lanes == 1:
            return f"({x} != 0)"
        return f"({convert_text(x, 'u8', 'i32', lanes, needs)} != 0)"
    if dtype.is_narrow_float:
        if lanes == 1:
            needs.vector("u32", 4)
            return f"{needs.add(f'widen_{dtype.value}x4')}((u32x4){{{x}}})[0]"
        return f"{needs.add(f'widen_{dtype.value}x{lanes}')}(__builtin_convertvector({x}, {needs.vector('u32', lanes)}))"
    return x
