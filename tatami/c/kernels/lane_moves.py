"""Definitions that only move elements: the lanes of one or two vectors in another order, and vectors loaded from places that do
not follow each other. Each is made for an element type and a number of lanes (`definitions.MAKERS`)."""

from __future__ import annotations

from tatami.c.kernels.c_types import SHORT_C, SHORT_SIZE
from tatami.c.kernels.needs import Maker, Needs


def _iota(key: str, base: str, lanes: int, needs: Needs) -> str:
    element = base.removeprefix("iota_")
    v = needs.vector(element, lanes)
    return f"static inline {v} t_{key}(void) {{ return ({v}){{{', '.join(str(i) for i in range(lanes))}}}; }}"


def _shift(key: str, base: str, lanes: int, needs: Needs) -> str:
    """shift_up<k>_<element>x<W>(x, fill): lane i is lane i-k of x (down: i+k), of fill if there is none."""
    _, way, element = base.split("_")
    by = int(way.removeprefix("up")) if way.startswith("up") else -int(way.removeprefix("down"))
    return _of_two(key, element, [i - by if 0 <= i - by < lanes else lanes + i for i in range(lanes)], needs)


def _across(key: str, base: str, lanes: int, needs: Needs) -> str:
    """across_<start>_<element>x<W>(x, y): W lanes of x followed by y, from lane `start` on. AVX-512 has one instruction for
    it, which gcc does not find."""
    _, start, element = base.split("_")
    general = _of_two(key, element, [int(start) + i for i in range(lanes)], needs)
    if (lanes, SHORT_SIZE[element]) != (16, 4):
        return general
    v, words = needs.vector(element, lanes), needs.vector("i32", lanes)
    return (
        f"#if defined(__AVX512F__) && !defined(__clang__)\n"
        f"static inline {v} t_{key}({v} x, {v} y) {{\n"
        f"  return ({v})__builtin_ia32_alignd512_mask(({words})y, ({words})x, {start}, ({words}){{0}}, (unsigned short)-1);\n}}\n"
        f"#else\n{general}\n#endif"
    )


def _zip(key: str, base: str, lanes: int, needs: Needs) -> str:
    """zip_<half>_<element>x<W>(x, y): lanes of x and y alternately, from their first or from their second halves."""
    _, half, element = base.split("_")
    start = 0 if half == "first" else lanes // 2
    return _of_two(key, element, [start + i // 2 + i % 2 * lanes for i in range(lanes)], needs)


def _unzip(key: str, base: str, lanes: int, needs: Needs) -> str:
    """unzip_<which>_<element>x<W>(x, y): every second lane of x followed by y."""
    _, which, element = base.split("_")
    order = [2 * i + (which == "odd") for i in range(lanes)]
    general = _of_two(key, element, order, needs)
    if (lanes, SHORT_SIZE[element]) != (8, 4):
        return general
    v = needs.vector(element, lanes)
    return (
        f"#if !defined(__clang__) && __GNUC__ >= 12 && !defined(__AVX512VL__)\n"
        f"static inline {v} t_{key}({v} a, {v} b) {{\n{_by_halves(v, 'a, b', order, needs)}}}\n#else\n{general}\n#endif"
    )


def _by_halves(v: str, two: str, order: list[int], needs: Needs) -> str:
    """Eight lanes of `two` registers, each of two halves of four: they are shuffled within these, then their pairs are put in
    order, with one instruction each, which gcc does not find."""
    pairs = needs.vector("f64", 4)
    halves = ", ".join(str(order[i]) for i in (0, 1, 4, 5, 2, 3, 6, 7))
    return (
        f"  {pairs} x = ({pairs})__builtin_shufflevector({two}, {halves});\n"
        f"  return ({v})__builtin_shufflevector(x, x, 0, 2, 1, 3);\n"
    )


def _of_two(key: str, element: str, order: list[int], needs: Needs) -> str:
    """Lanes chosen by `order`, numbered over the first vector and then the second."""
    v = needs.vector(element, len(order))
    index = needs.vector(f"i{8 * SHORT_SIZE[element]}", len(order))
    which = ", ".join(map(str, order))
    return (
        f"static inline {v} t_{key}({v} x, {v} y) {{\n"
        f"#if defined(__clang__) || __GNUC__ >= 12\n  return __builtin_shufflevector(x, y, {which});\n"
        f"#else\n  return __builtin_shuffle(x, y, ({index}){{{which}}});\n#endif\n}}"
    )


def _active(key: str, base: str, lanes: int, needs: Needs) -> str:
    element = base.removeprefix("active_")
    v = needs.vector(element, lanes)
    c = SHORT_C[element]
    return (
        f"static inline {v} t_{key}(const {c}* p, int64_t n) {{\n  {v} r = {{0}};\n"
        f"  for (int64_t i = 0; i < n; ++i) r[i] = p[i];\n  return r;\n}}"
    )


def _second(key: str, base: str, lanes: int, needs: Needs) -> str:
    """second_<element>x<W>(p): p[0], p[2], …: two overlapping loads, so that nothing past the last element is read."""
    element = base.removeprefix("second_")
    v = needs.vector(element, lanes)
    order = [2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes)]
    elements = ", ".join(f"p[{2 * i}]" for i in range(lanes))
    two = f"*(const {v}_u*)p, *(const {v}_u*)(p + {lanes - 1})"
    if (lanes, SHORT_SIZE[element]) == (8, 4):
        steps = _by_halves(v, two, order, needs)
    else:
        steps = f"  return __builtin_shufflevector({two}, {', '.join(map(str, order))});\n"
    return (
        f"static inline {v} t_{key}(const {SHORT_C[element]}* p) {{\n"
        f"#if defined(__clang__) || __GNUC__ >= 12\n{steps}#else\n  return ({v}){{{elements}}};\n#endif\n}}"
    )


def _repeated(key: str, base: str, lanes: int, needs: Needs) -> str:
    """repeated_<n>_<element>x<W>(p, step): p[0] n times, p[step] n times, … Neighbours are doubled again and again: gcc has
    instructions for a shuffle to twice as many lanes, and none for one to four times as many."""
    times, element = base.removeprefix("repeated_").split("_")
    v, each = needs.vector(element, lanes), int(times)
    elements = ", ".join(f"p[{i // each} * step]" for i in range(lanes))
    plain = f"  return ({v}){{{elements}}};\n"
    if lanes // each < 2:
        body = plain
    else:
        count = lanes // each
        steps = [f"const {needs.vector(element, count)} x{count} = *(const {needs.vector(element, count)}_u*)p;"]
        while count < lanes:
            order = ", ".join(str(i // 2) for i in range(2 * count))
            shuffled = f"__builtin_shufflevector(x{count}, x{count}, {order})"
            count *= 2
            steps.append(f"const {needs.vector(element, count)} x{count} = {shuffled};")
        lines = "\n    ".join([*steps, f"return x{lanes};"])
        body = f"#if defined(__clang__) || __GNUC__ >= 12\n  if (step == 1) {{\n    {lines}\n  }}\n#endif\n{plain}"
    return f"static inline {v} t_{key}(const {SHORT_C[element]}* p, int64_t step) {{\n{body}}}"


def _strided(key: str, base: str, lanes: int, needs: Needs) -> str:
    """strided_<element>x<W>(p, step): p[0], p[step], … One address with offsets: C compilers take minutes over loops in
    which each lane has an address of its own."""
    element = base.removeprefix("strided_")
    v = needs.vector(element, lanes)
    elements = ", ".join(f"p[{i} * step]" for i in range(lanes))
    return f"static inline {v} t_{key}(const {SHORT_C[element]}* p, int64_t step) {{ return ({v}){{{elements}}}; }}"


def _picked(key: str, base: str, lanes: int, needs: Needs) -> str:
    """picked_<element>x<W>(p, step, at): p[at[0] * step], p[at[1] * step], …"""
    element = base.removeprefix("picked_")
    v, positions = needs.vector(element, lanes), needs.vector("i64", lanes)
    elements = ", ".join(f"p[at[{i}] * step]" for i in range(lanes))
    return f"static inline {v} t_{key}(const {SHORT_C[element]}* p, int64_t step, {positions} at) {{ return ({v}){{{elements}}}; }}"


MOVES: dict[str, Maker] = {
    "iota": _iota,
    "active": _active,
    "shift": _shift,
    "across": _across,
    "zip": _zip,
    "unzip": _unzip,
    "second": _second,
    "repeated": _repeated,
    "strided": _strided,
    "picked": _picked,
}
"""First word of a key -> maker of its definition."""
