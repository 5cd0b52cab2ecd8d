"""Definitions made for an element type and a number of lanes: each is a C function named by its key (`needs`).

Meaning: `core/numbers/numerics.py`; integers wrap through unsigned arithmetic, nothing is undefined."""

from __future__ import annotations

from tatami.c.kernels.c_types import SHORT_C, SHORT_SIZE, short
from tatami.c.kernels.lane_moves import MOVES
from tatami.c.kernels.literals import float_literal, int_literal
from tatami.c.kernels.needs import Maker, Needs
from tatami.c.kernels.scalar_ops import OF_NUMBERS, op_text, where_text
from tatami.c.kernels.vector_width import compare_halves, compare_text, convert_text
from tatami.core.dtype import DType
from tatami.core.ops import DEFINED, OPS, CFunction, highest, joining, lowest


def _splat(key: str, base: str, lanes: int, needs: Needs) -> str:
    element = base.removeprefix("splat_")
    v = needs.vector(element, lanes)
    return f"static inline {v} t_{key}({SHORT_C[element]} x) {{ return ({v}){{{', '.join(['x'] * lanes)}}}; }}"


def _blend(key: str, base: str, lanes: int, needs: Needs) -> str:
    """blend_<element>x<W>(mask, a, b): a where the mask is set, else b."""
    element = base.removeprefix("blend_")
    v, m = needs.vector(element, lanes), needs.vector("i32", lanes)
    same = needs.vector(f"i{8 * SHORT_SIZE[element]}", lanes)
    mask = "m" if same == m else convert_text("m", "i32", same.removesuffix(f"x{lanes}"), lanes, needs)
    return (
        f"static inline {v} t_{key}({m} m, {v} a, {v} b) {{\n"
        f"  {same} k = {mask};\n  return ({v})((({same})a & k) | (({same})b & ~k));\n}}"
    )


def _lane(dtype: DType, x: str, lane: str) -> str:
    return f"({x}[{lane}] & 1)" if dtype == DType.bool else f"{x}[{lane}]"


def _horizontal(key: str, base: str, lanes: int, needs: Needs) -> str:
    """h_<fn>_<dtype>x<W>(x): all lanes combined by a function."""
    _, fn, dtype_name = base.split("_")
    dtype = DType(dtype_name)
    v = needs.register(dtype, lanes)
    half = lanes // 2
    h = needs.register(dtype, half)
    scalar = SHORT_C[short(dtype)]
    if half == 1:
        combined = op_text(joining(fn), dtype, 1, [_lane(dtype, "x", "0"), _lane(dtype, "x", "1")], needs)
        return f"static inline {scalar} t_{key}({v} x) {{ return {combined}; }}"
    if (
        short(dtype) == "f32" and fn in OF_NUMBERS
    ):  # tested for NaN in parallel with the exchanges, each of which waits for the previous one
        some, numbers = needs.add(f"any_i32x{lanes}"), needs.add(f"h_{OF_NUMBERS[fn]}_fp32x{lanes}")
        nan = compare_text(dtype, lanes, "!=", "x", "x", needs)
        return f'static inline float t_{key}({v} x) {{ return {some}({nan}) ? __builtin_nanf("") : {numbers}(x); }}'
    if short(dtype) in ("f32", "i32") and dtype != DType.bool and lanes == 4:
        return _horizontal4(key, joining(fn), dtype, needs)
    inner = needs.add(f"h_{fn}_{dtype_name}x{half}")
    combined = op_text(joining(fn), dtype, half, ["u.h[0]", "u.h[1]"], needs)
    return (
        f"static inline {scalar} t_{key}({v} x) {{\n  union {{ {v} v; {h} h[2]; }} u = {{x}};\n"
        f"  return {inner}({combined});\n}}"
    )


def _horizontal4(key: str, fn: str, dtype: DType, needs: Needs) -> str:
    """Four floats or integers combined by two exchanges of lanes, in registers. (Lanes extracted one by one are compared by
    branches.)"""
    v, index = needs.register(dtype, 4), needs.vector("i32", 4)

    def exchanged(order: str) -> str:
        return f"__builtin_shufflevector(x, x, {order});\n#else\n  y = __builtin_shuffle(x, ({index}){{{order}}});\n#endif\n"

    joined = op_text(fn, dtype, 4, ["x", "y"], needs)
    steps = "".join(
        f"#if defined(__clang__) || __GNUC__ >= 12\n  y = {exchanged(order)}  x = {joined};\n"
        for order in ("2, 3, 0, 1", "1, 0, 3, 2")
    )
    return f"static inline {SHORT_C[short(dtype)]} t_{key}({v} x) {{\n  {v} y;\n{steps}  return x[0];\n}}"


def _lanes_call(key: str, base: str, lanes: int, needs: Needs) -> str:
    """each_<scalar function>_<arity>_<element>x<W>: a scalar function lane by lane."""
    words = base.removeprefix("each_").split("_")
    element, arity, function = words[-1], int(words[-2]), "_".join(words[:-2])
    v = needs.vector(element, lanes)
    names = "abc"[:arity]
    call = f"{function}({', '.join(f'u{n}.s[i]' for n in names)})"
    declared = "\n".join(f"  union {{ {v} v; {SHORT_C[element]} s[{lanes}]; }} u{n} = {{{n}}};" for n in names)
    return (
        f"static inline {v} t_{key}({', '.join(f'{v} {n}' for n in names)}) {{\n{declared}\n"
        f"  for (int i = 0; i < {lanes}; ++i) ua.s[i] = {call};\n  return ua.v;\n}}"
    )


def _longs(key: str, base: str, lanes: int, needs: Needs) -> str:
    """longs_<i8|u8>x<W>(x): lanes as 32 bits. gcc splits the conversion, though there is an instruction."""
    source = base.removeprefix("longs_")
    s, h, d = (needs.vector(e, lanes) for e in (source, f"{source[0]}16", "i32"))
    move = "__builtin_ia32_pmov" + ("sx" if source == "i8" else "zx") + f"bd{32 * lanes}"
    bytes_ = "typedef char C __attribute__((vector_size(16)));"
    if lanes == 16:
        known, fast = "__AVX512F__", f"  {bytes_}\n  return ({d}){move}_mask((C)x, ({d}){{0}}, -1);\n"
    else:
        halves = "typedef long long L __attribute__((vector_size(16)));"
        known = "__AVX2__"
        fast = (
            f"  {bytes_}\n  {halves}\n  union {{ {s} x; long long bits; }} u = {{x}};\n"
            f"  return ({d}){move}((C)(L){{u.bits, 0}});\n"
        )
    plain = f"  return __builtin_convertvector(__builtin_convertvector(x, {h}), {d});\n"
    body = f"#if defined({known}) && !defined(__clang__)\n{fast}#else\n{plain}#endif\n"
    return f"static inline {d} t_{key}({s} x) {{\n{body}}}"


def _to_int(key: str, base: str, lanes: int, needs: Needs) -> str:
    """toint_<f32|f64>_<int>x<W>: truncate, saturate, NaN to 0."""
    _, source, target = base.split("_")
    s, d = needs.vector(source, lanes), needs.vector(target, lanes)
    dtype = DType(target)
    low, high = lowest(dtype), highest(dtype)
    high_text = float_literal(float(high), source)
    low_text = float_literal(float(low), source)
    if lanes == 1:
        return (
            f"static inline {d} t_{key}({s} x) {{\n  if (x != x) return 0;\n"
            f"  if (x >= {high_text}) return {int_literal(high, dtype)};\n"
            f"  if (x <= {low_text}) return {int_literal(low, dtype)};\n  return ({d})x;\n}}"
        )
    if source == "f32" and dtype.itemsize <= 2:  # the limits are floats: values beyond them are clamped before the conversion
        least, most = (f"{needs.add(f'{fn}_f32x{lanes}')}" for fn in ("larger", "smaller"))
        splat = needs.add(f"splat_f32x{lanes}")
        number = f"{most}({least}(x, {splat}({low_text})), {splat}({high_text}))"
        if low:  # else NaN is 0 already, the second operand
            blend = needs.add(f"blend_f32x{lanes}")
            number = f"{blend}({compare_text(DType.fp32, lanes, '==', 'x', 'x', needs)}, {number}, {splat}(0))"
        return f"static inline {d} t_{key}({s} x) {{ return {convert_text(number, source, target, lanes, needs)}; }}"
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
    """int_<op>_<dtype>: division, remainder, power and shifts, total over all operands; shifts of vectors too."""
    _, op, name = base.split("_")
    if lanes > 1:
        return _vector_shift(key, op, name, lanes, needs)
    c = SHORT_C[name]
    u = SHORT_C["u" + name[1:]]
    bits = SHORT_SIZE[name] * 8
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


def _vector_shift(key: str, op: str, name: str, lanes: int, needs: Needs) -> str:
    """int_shl_<dtype>x<W>, int_shr_…: of elements of 32 and 64 bits; by a count outside, all bits leave."""
    v, u = needs.vector(name, lanes), needs.vector(f"u{name[1:]}", lanes)
    bits = SHORT_SIZE[name] * 8
    inside = f"(({u})y < {bits})"
    if op == "shr" and name[0] == "i":
        body = f"x >> ((y & {inside}) | ({bits - 1} & ~{inside}))"
    else:
        sign = "<<" if op == "shl" else ">>"
        body = f"({v})((({u})x {sign} (({u})y & {bits - 1})) & ({u}){inside})"
    return f"static inline {v} t_{key}({v} x, {v} y) {{ return {body}; }}"


_MAX_REGISTER = {("f32", 16): ("__AVX512F__", 512), ("f32", 8): ("__AVX512VL__", 256), ("f32", 4): ("__AVX512VL__", 128)}
"""(element, lanes) -> (macro under which gcc has masks, its bits of a register). The instructions for max and min return their
second operand for two zeros and if one is NaN; so a maximum that is carried on as `a` waits for one instruction if `b` is a
number."""


def _simple(key: str, base: str, lanes: int, needs: Needs) -> str:
    """abs, sign, relu, tf32, max, min, isinf of floats: NaN goes through all of them."""
    fn, element = base.split("_")
    n = max(lanes, 1)
    t, m = needs.vector(element, n), needs.vector("i32", n)
    dtype = DType.fp32 if element == "f32" else DType.fp64
    infinity = f"__builtin_inf{'f' if element == 'f32' else ''}()"

    def where(mask: str, a: str, b: str) -> str:
        return where_text(dtype, n, [mask, a, b], needs)

    def mask(op: str, a: str, b: str) -> str:
        return compare_text(dtype, n, op, a, b, needs)

    def value(text: str) -> str:
        return text if n == 1 else f"{needs.add(f'splat_{element}x{n}')}({text})"

    if fn in ("max", "min"):
        order = ">" if fn == "max" else "<"
        nan, beyond = mask("!=", "b", "b"), mask(order, "b", "a")
        body = f"  return {where(f'({beyond} | {nan})', 'b', 'a')};"
        if element == "f32" and n == 1:  # an unpredictable comparison: no branch
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
        body = where(
            mask(">", "a", value("0")), value("1"), where(mask("<", "a", value("0")), value("-1"), f"(a + {value('0')})")
        )
    elif fn == "tf32":
        bits, dropped = needs.vector(f"u{element[1:]}", n), 13 if element == "f32" else 42
        body = f"({t})(((({bits})a + {1 << (dropped - 1):#x}u) >> {dropped}) << {dropped})"
        body = where(mask("==", "(a - a)", value("0")), body, "a")  # neither infinite nor NaN
    else:  # abs
        unsigned = needs.vector(f"u{element[1:]}", n)
        magnitude = "0x7fffffffu" if element == "f32" else "0x7fffffffffffffffu"
        body = f"({t})(({unsigned})a & {magnitude})"
    return f"static inline {t} t_{key}({t} a) {{ return {body}; }}"


_LARGER = {
    ("f32", 16): ("__AVX512F__", "{}ps512_mask(a, b, a, -1, 4)"),
    ("f32", 8): ("__AVX__", "{}ps256(a, b)"),
    ("f32", 4): ("__SSE__", "{}ps(a, b)"),
    ("i32", 16): ("__AVX512F__", "p{}sd512_mask(a, b, a, -1)"),
    ("i32", 8): ("__AVX2__", "p{}sd256(a, b)"),
    ("i32", 4): ("__SSE4_1__", "p{}sd128(a, b)"),
}
"""(element, lanes) -> (macro under which gcc has one instruction, its builtin): gcc does not find it in a comparison and a
choice."""


def _of_numbers(key: str, base: str, lanes: int, needs: Needs) -> str:
    """larger_<f32|i32>x<W>, smaller_…: of two numbers; b if a is NaN."""
    fn, element = base.split("_")
    v, dtype = needs.vector(element, lanes), DType.fp32 if element == "f32" else DType.i32
    order = compare_text(dtype, lanes, ">" if fn == "larger" else "<", "a", "b", needs)
    body = f"  return {where_text(dtype, lanes, [order, 'a', 'b'], needs)};"
    if (element, lanes) in _LARGER:
        macro, text = _LARGER[element, lanes]
        text = text.format("max" if fn == "larger" else "min")
        body = f"#if defined({macro}) && !defined(__clang__)\n  return __builtin_ia32_{text};\n#else\n{body}\n#endif"
    return f"static inline {v} t_{key}({v} a, {v} b) {{\n{body}\n}}"


BY_FOURS = {op.c.vectors: op.arity for op in OPS.values() if isinstance(op.c, CFunction) and op.c.by_fours}
"""Function of fp32 that goes through double precision -> number of operands: four lanes at a time, since a vector of AVX2 has
four doubles. Compilers split wider ones lane by lane."""


def _by_fours(key: str, base: str, lanes: int, needs: Needs) -> str:
    """<function>_f32x<W>: `<function>four_f32` for each four lanes; two lanes fill a vector of four twice."""
    fn = base.removesuffix("_f32")
    v, four, names = needs.vector("f32", lanes), needs.vector("f32", 4), "xy"[: BY_FOURS[fn]]
    one = needs.add(f"{fn}four_f32")
    head = f"static inline {v} t_{key}({', '.join(f'{v} {n}' for n in names)}) {{\n"
    if lanes == 2:
        twice = ", ".join(f"({four}){{{n}[0], {n}[1], {n}[0], {n}[1]}}" for n in names)
        return f"{head}  {four} both = {one}({twice});\n  return ({v}){{both[0], both[1]}};\n}}"
    unions = ", ".join(f"{n}s = {{{n}}}" for n in names)
    each = f"  for (int i = 0; i < {lanes // 4}; ++i) xs.four[i] = {one}({', '.join(f'{n}s.four[i]' for n in names)});\n"
    return f"{head}  union {{ {v} all; {four} four[{lanes // 4}]; }} {unions};\n{each}  return xs.all;\n}}"


MAKERS: dict[str, Maker] = {
    "splat": _splat,
    **MOVES,
    "blend": _blend,
    "h": _horizontal,
    "each": _lanes_call,
    "toint": _to_int,
    "longs": _longs,
    "int": _integer_function,
    "compare": compare_halves,
    **dict.fromkeys(("larger", "smaller"), _of_numbers),
    **dict.fromkeys(BY_FOURS, _by_fours),
    **dict.fromkeys((op.name for op in OPS.values() if op.c == DEFINED), _simple),
}
"""First word of a key -> maker of its definition."""
