"""Copies that lay operands out for micro-kernels: slivers of columns, and blocks transposed in registers."""

from __future__ import annotations

from tatami.c.products.elements import NARROW, element_text, routine_page


def slivers_text(name: str, element: str, rows: int, columns: int, lanes: int) -> str:
    """The routine that copies `rows` rows at a time into slivers of `columns` columns."""
    vectors = [(q, v * lanes) for q in range(rows) for v in range(columns // lanes)]
    return routine_page("slivers").fill(
        ELEMENT=element_text(element, lanes),
        NAME=name,
        NR=columns,
        MR=rows,
        WHOLE=[f"*(U *)(a + {q * columns + v}) = *(const U *)(b + {q} * pitch + {v});" for q, v in vectors],
        ONE=[f"*(U *)(a + q * {columns} + {v}) = *(const U *)(b + q * pitch + {v});" for q, v in vectors if not q],
    )


def pack_text(name: str, element: str, lanes: int) -> str:
    """The routine that transposes blocks of `lanes` x `lanes`."""
    shuffles, final = _transpose_text(lanes)
    rows = [(i, f"(k + {i}) * pitch + j") for i in range(lanes)]
    masked = [f"__builtin_ia32_storeups512_mask(to + {at}, {final[i]}, live);" for i, at in rows]
    column = [f"(j + {i} < columns ? j + {i} : columns - 1)" for i in range(lanes)]
    load = "wide({})" if element in NARROW else "*(const U *)({})"
    short = [f"V r{i} = __builtin_ia32_loadups512_mask(from + {column[i]} * stride + k, zero, some);" for i in range(lanes)]
    some = [f"if (rest > {i}) {line}" for i, line in enumerate(masked)]
    is_masked = lanes == 16 and element[:3] == "f32"
    return routine_page("pack").fill(
        ELEMENT=element_text(element, lanes),
        NAME=name,
        LANES=lanes,
        TWICE=2 * lanes,
        FROM="B" if element in NARROW else "T",
        ONE=f"wide((B[{lanes}]){{from[j * stride + k]}})[0]" if element in NARROW else "from[j * stride + k]",
        LOADS=[f"V r{i} = {load.format(f'from + {column[i]} * stride + k')};" for i in range(lanes)],
        SHUFFLES=shuffles,
        STORES=[f"*(U *)(to + {at}) = {final[i]};" for i, at in rows],
        MASKED=masked if is_masked else [],
        SHORT=short if is_masked and element not in NARROW else [],
        SOME=some,
        PARTS=[f"part[{i}] = {final[i]};" for i in range(lanes)],
    )


def _transpose_text(lanes: int) -> tuple[list[str], list[str]]:
    """(shuffles that turn rows r0… into columns, names of the results in order)."""
    lines: list[str] = []
    rows = [f"r{i}" for i in range(lanes)]
    width = lanes // 2
    level = 0
    while width >= 1:
        new = list(rows)
        low = [i if i % (2 * width) < width else lanes + i - width for i in range(lanes)]
        high = [i + width if i % (2 * width) < width else lanes + i for i in range(lanes)]
        for i in range(lanes):
            if i % (2 * width) < width:
                a, b = rows[i], rows[i + width]
                na, nb = f"t{level}_{i}", f"t{level}_{i + width}"
                lines.append(f"V {na} = __builtin_shufflevector({a}, {b}, {', '.join(map(str, low))});")
                lines.append(f"V {nb} = __builtin_shufflevector({a}, {b}, {', '.join(map(str, high))});")
                new[i], new[i + width] = na, nb
        rows = new
        width //= 2
        level += 1
    return lines, rows
