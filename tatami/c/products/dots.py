"""Products of groups of narrow integers, added to sums of 32 bits: the micro-kernel's multiply-add for such elements.

    b16x2          two of bf16 by one instruction, added to sums of fp32
    i16x2          two signed numbers of 16 bits: multiplied, added in pairs, added to the sums
    i16x2vnni      the same by one instruction
    u8x4vnni       four of 8 bits by one instruction: unsigned in the element that is broadcast, signed in the vectors
    i8x4vnni       the other way round
    u8x4i, i8x4u   four of 8 bits without such an instruction: widened to two pairs of 16 bits, which are multiplied as above;
    u8x4u, i8x4i   the type in the element that is broadcast, and after it the sign in the vectors

The instructions are written as assembly: each compiler has its own names for them, and only with certain flags; and a
product with its sum is one text, since a compiler that adds products first runs out of registers. Without AVX-512
(AVX-VNNI) they have an encoding of their own.
"""

from __future__ import annotations

_VNNI = {
    "i16x2vnni": "vpdpwssd %2, %1, %0",
    "u8x4vnni": "vpdpbusd %2, %1, %0",
    "i8x4vnni": "vpdpbusd %1, %2, %0",
}
_WIDENED = {f"{rows}8x4{columns}": (rows, columns) for rows in "ui" for columns in "ui"}
FLOATS = "b16x2"
"""The kind whose sums are floats: its elements are floats too, the bits of which are a pair."""
DOTS = (FLOATS, "i16x2", *_VNNI, *_WIDENED)
"""Kinds of groups, as a plan's dot names them."""


def dot_text(element: str, lanes: int) -> str:
    """C text of ``dot(c, s, b)``: c plus the products of s and b, in vectors V of `lanes` elements; and of ``same(p)``, an
    element in all lanes."""
    return _same_text(element, lanes) + _dot_text(element, lanes)


def _same_text(element: str, lanes: int) -> str:
    head = "static inline __attribute__((always_inline)) V same(const T *p) {"
    if element != FLOATS:
        return f"{head} return (V){{0}} + *p; }}\n"
    types = "typedef int32_t W __attribute__((may_alias)); typedef W I __attribute__((vector_size(" + str(4 * lanes) + ")));"
    return f"{types}\n{head} return (V)((I){{0}} + *(const W *)p); }}\n"


def _dot_text(element: str, lanes: int) -> str:
    if element == FLOATS:
        return _function("dot", '  __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(s), "v"(b));\n  return c;\n')
    if element in _VNNI:
        plain, vex = (f'  __asm__("{prefix}{_VNNI[element]}" : "+v"(c) : "v"(s), "v"(b));\n' for prefix in ("", "%{vex%} "))
        return _function("dot", f"#if defined(__AVX512VL__)\n{plain}#else\n{vex}#endif\n  return c;\n")
    if element == "i16x2":
        return _pairs("dot", lanes)
    signed = f"  typedef int16_t I __attribute__((vector_size({4 * lanes})));\n"
    unsigned = f"  typedef uint16_t N __attribute__((vector_size({4 * lanes})));\n"
    even, odd = {}, {}
    for x, sign in zip("sb", _WIDENED[element]):
        even[x], odd[x] = (
            (f"(V)((I){x} << 8 >> 8)", f"(V)((I){x} >> 8)") if sign == "i" else (f"(V)((N){x} & 255)", f"(V)((N){x} >> 8)")
        )
    sums = f"  return pairs(pairs(c, {even['s']}, {even['b']}), {odd['s']}, {odd['b']});\n"
    return _pairs("pairs", lanes) + _function("dot", signed + unsigned + sums)


def _function(name: str, body: str) -> str:
    return f"static inline __attribute__((always_inline)) V {name}(V c, V s, V b) {{\n{body}}}\n"


def _pairs(name: str, lanes: int) -> str:
    """C text of a product of two numbers of 16 bits in each element."""
    parts = "(V)(((W)s << 16 >> 16) * ((W)b << 16 >> 16)) + (V)(((W)s >> 16) * ((W)b >> 16))"
    plain = f"  typedef int32_t W __attribute__((vector_size({4 * lanes})));\n  return c + ({parts});\n"
    if lanes == 4:
        known, fast = "__SSE2__", "  return c + (V)__builtin_ia32_pmaddwd128((H)s, (H)b);\n"
        fast = f"  typedef int16_t H __attribute__((vector_size({4 * lanes})));\n{fast}"
    elif lanes in (8, 16):
        text = "vpmaddwd %3, %2, %1\\n\\tvpaddd %1, %0, %0"
        known, fast = "__AVX2__", f'  V t;\n  __asm__("{text}" : "+v"(c), "=v"(t) : "v"(s), "v"(b));\n  return c;\n'
    else:
        return _function(name, plain)
    return _function(name, f"#if defined({known})\n{fast}#else\n{plain}#endif\n")
