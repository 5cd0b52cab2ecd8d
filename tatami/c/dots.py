"""Products of groups of narrow integers, added to sums of 32 bits: what a multiply-add of the micro-kernel is then.

    i16x2        two signed numbers of 16 bits: multiplied, added in pairs, added to the sums
    i16x2vnni    the same by one instruction
    u8x4vnni     four of 8 bits by one instruction: unsigned in the element that is broadcast, signed in the vectors
    i8x4vnni     the other way round

The instructions are written as such: compilers know them by other names each, and only where flags allow them. Without
AVX-512 (AVX-VNNI) they have an encoding of their own.
"""

from __future__ import annotations

_VNNI = {
    "i16x2vnni": "vpdpwssd %2, %1, %0",
    "u8x4vnni": "vpdpbusd %2, %1, %0",
    "i8x4vnni": "vpdpbusd %1, %2, %0",
}
DOTS = ("i16x2", *_VNNI)


def dot_text(element: str, lanes: int) -> str:
    """``dot(c, s, b)``: c plus the products of s and b, in vectors V of `lanes` elements."""
    head = "static inline __attribute__((always_inline)) V dot(V c, V s, V b) {\n"
    if element in _VNNI:
        plain, vex = (f'  __asm__("{prefix}{_VNNI[element]}" : "+v"(c) : "v"(s), "v"(b));\n' for prefix in ("", "%{vex%} "))
        return f"{head}#if defined(__AVX512VL__)\n{plain}#else\n{vex}#endif\n  return c;\n}}\n"
    parts = "(V)(((W)s << 16 >> 16) * ((W)b << 16 >> 16)) + (V)(((W)s >> 16) * ((W)b >> 16))"
    plain = f"  typedef int32_t W __attribute__((vector_size({4 * lanes})));\n  return c + ({parts});\n"
    if lanes == 4:
        known, fast = "__SSE2__", "  return c + (V)__builtin_ia32_pmaddwd128((H)s, (H)b);\n"
        fast = f"  typedef int16_t H __attribute__((vector_size({4 * lanes})));\n{fast}"
    elif lanes in (8, 16):
        known, fast = "__AVX2__", '  V t;\n  __asm__("vpmaddwd %2, %1, %0" : "=v"(t) : "v"(s), "v"(b));\n  return c + t;\n'
    else:
        return f"{head}{plain}}}\n"
    return f"{head}#if defined({known})\n{fast}#else\n{plain}#endif\n}}\n"
