"""Conversions and comparisons between element widths, in steps that gcc does by vector instructions.

gcc splits a vector, element by element, if a conversion changes the width of an element by more than a factor of
two, or if operands of a comparison fill more than one register. Converted by one doubling at a time, and compared by
halves, both are a few instructions.
"""

from __future__ import annotations

from tatami.c.kernels.c_types import SHORT_SIZE, short
from tatami.c.kernels.needs import Needs
from tatami.core.dtype import DType
from tatami.core.ops import OPS

COMPARE = {op.name: op.c for op in OPS.values() if op.rule == "compare" and isinstance(op.c, str)}
"""Comparison -> its operator in C."""
_COMPARE_NAME = {op: name for name, op in COMPARE.items()}


def convert_text(x: str, source: str, target: str, lanes: int, needs: Needs) -> str:
    """C text of a vector of `source` elements converted to `target` elements (i8 … f64), as C converts one."""
    steps = _steps(source, target)
    if source in ("i8", "u8") and "i32" in steps and lanes in (8, 16):
        x, steps = f"{needs.add(f'longs_{source}x{lanes}')}({x})", steps[steps.index("i32") + 1 :]
    elif source in ("i32", "f32") and target in ("i8", "u8") and lanes == 16:  # 512 bits: one instruction
        steps = [s for s in steps if SHORT_SIZE[s] != 2]
    for step in steps:
        x = f"__builtin_convertvector({x}, {needs.vector(step, lanes)})"
    return x


def _steps(source: str, target: str) -> list[str]:
    """Element types from `source` to `target`, one step each: between short integers and floats through 32-bit integers.

    >>> _steps("u8", "f32"), _steps("i64", "u8"), _steps("i32", "f64")
    (['u16', 'i32', 'f32'], ['i32', 'i16', 'u8'], ['f64'])
    """
    if source[0] == "f" and SHORT_SIZE[target] < 4:
        return ["i32", *_steps("i32", target)]
    if target[0] == "f" and SHORT_SIZE[source] < 4:
        return [*_steps(source, "i32"), target]
    sizes = [SHORT_SIZE[source]]
    if "f" not in (source[0], target[0]):
        while sizes[-1] != SHORT_SIZE[target]:
            sizes.append(sizes[-1] * 2 if sizes[-1] < SHORT_SIZE[target] else sizes[-1] // 2)
    return [*(f"{source[0]}{8 * n}" for n in sizes[1:-1]), target]


def compare_text(dtype: DType, lanes: int, op: str, a: str, b: str, needs: Needs) -> str:
    """C text of a comparison, a bool register."""
    if lanes == 1:
        return f"({a} {op} {b})"
    m = needs.vector("i32", lanes)
    match SHORT_SIZE[short(dtype)]:
        case 4:
            return f"(({m})({a} {op} {b}))"
        case 8 if lanes >= 4:
            return f"{needs.add(f'compare_{_COMPARE_NAME[op]}_{short(dtype)}x{lanes}')}({a}, {b})"
        case _:
            return f"__builtin_convertvector(({a} {op} {b}), {m})"


def compare_halves(key: str, base: str, lanes: int, needs: Needs) -> str:
    """compare_<op>_<element>x<W>(a, b): of elements of 8 bytes, which fill two registers; a mask of 32-bit lanes."""
    _, op, element = base.split("_")
    v, m = needs.vector(element, lanes), needs.vector("i32", lanes)
    half, half_mask = needs.vector(element, lanes // 2), needs.vector("i32", lanes // 2)
    parts = [f"__builtin_convertvector((x.h[{i}] {COMPARE[op]} y.h[{i}]), {half_mask})" for i in range(2)]
    order = ", ".join(map(str, range(lanes)))
    return (
        f"static inline {m} t_{key}({v} a, {v} b) {{\n"
        f"  union {{ {v} v; {half} h[2]; }} x = {{a}}, y = {{b}};\n  {half_mask} low = {parts[0]}, high = {parts[1]};\n"
        f"#if defined(__clang__) || __GNUC__ >= 12\n  return __builtin_shufflevector(low, high, {order});\n"
        f"#else\n  union {{ {half_mask} h[2]; {m} v; }} r = {{{{low, high}}}};\n  return r.v;\n#endif\n}}"
    )
