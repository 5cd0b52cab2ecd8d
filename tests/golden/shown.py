"""The part of printed text that a golden shows: a person reads the kernel, not the text that every kernel has.

- C: the vector types and functions before a kernel stand in a file of their own, `12_c-helpers.txt`.
- C: of a micro-kernel's heights the highest is shown, the others are counted.
- CUDA: a header is named by its file in the package; what is printed after it (the wgmma shapes) is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tatami.c.ir import Source as CSource
from tatami.core.module import Module
from tatami.cu.ir import Source as CudaSource
from tatami.stages import show

_HEAD = re.compile(r"^(?:#include .*|int \w+\(.*\);)\n", re.MULTILINE)
_KERNEL = re.compile(r"^(?:struct chunk|static __attribute__\(\(noinline\)\) void |int tatami_\w+\(.*\) \{)", re.MULTILINE)
_HEIGHT = re.compile(r"^static __attribute__\(\(noinline\)\) void (tile|band)_(\d+)\(.*?^\}\n", re.MULTILINE | re.DOTALL)
_OWN_HEIGHT = re.compile(r"(tatami_[a-z]+_\w+_\d+x\d+_\d+)_(\d+)\.c")


def shown(stage: str, module: Module[Any]) -> dict[str, str]:
    """The texts of a stage: "" is what is read first, and "helpers" what stands before the kernels."""
    source = module.programs.get("main")
    match stage, source:
        case "c", CSource():
            return _c_texts(source)
        case "cu", CudaSource():
            return {"": _cuda_text(source)}
        case _:
            return {"": show(stage, module)}


def _c_texts(source: CSource) -> dict[str, str]:
    out: list[str] = []
    helpers: list[str] = []
    left_out = {name for name in source.units if _is_lower(name, source.units)}
    for name, unit in source.units.items():
        if name in left_out:
            continue
        text, before = parted(highest(unit.text))
        head = f"/* ==== {name}{' (contracted)' if unit.contract else ''} ==== */\n"
        if before:
            helpers.append(f"{head}{before}")
        out.append(f"{head}{text}")
    if left_out:
        lines = sum(source.units[name].text.count("\n") for name in left_out)
        out.append(f"/* ==== {len(left_out)} files of lower panels, {lines} lines: {', '.join(sorted(left_out))} ==== */")
    out.append(f"/* ==== entry.c ==== */\n{source.entry}")
    return {"": "\n".join(out), **({"helpers": "\n".join(helpers)} if helpers else {})}


def _is_lower(name: str, units: Mapping[str, Any]) -> bool:
    """True if the file has a micro-kernel's height and the program has a higher one."""
    own = _OWN_HEIGHT.fullmatch(name)
    others = [m for m in map(_OWN_HEIGHT.fullmatch, units) if own and m and m[1] == own[1]]
    return own is not None and any(int(m[2]) > int(own[2]) for m in others)


def parted(text: str) -> tuple[str, str]:
    """The text of a unit without what stands between its head and its first function, and that."""
    kernel = _KERNEL.search(text)
    heads = [m.end() for m in _HEAD.finditer(text, 0, kernel.start())] if kernel else []
    if kernel is None or not heads:
        return text, ""
    before = text[heads[-1] : kernel.start()]
    if not before.strip() or "static inline" not in before:
        return text, ""
    count = before.strip("\n").count("\n") + 1
    note = f"\n/* {count} lines of types and functions: 12_c-helpers.txt */\n\n"
    return text[: heads[-1]] + note + text[kernel.start() :], before.strip("\n") + "\n"


def highest(text: str) -> str:
    """A routine with the highest of its heights, and a count in place of the others."""
    heights = {int(m[2]) for m in _HEIGHT.finditer(text)}
    if len(heights) < 2:
        return text
    first = min(heights)

    def one(m: re.Match[str]) -> str:
        if int(m[2]) == max(heights):
            return m[0]
        lower = [x for x in _HEIGHT.finditer(text) if int(x[2]) != max(heights)]
        lines = sum(x[0].count("\n") for x in lower)
        names = ", ".join(f"{x[1]}_{x[2]}" for x in lower)
        return f"/* {len(lower)} lower panels, {lines} lines: {names} */\n" if int(m[2]) == first else ""

    return _HEIGHT.sub(one, text)


def _cuda_text(source: CudaSource) -> str:
    parts = [f"/* ==== {unit.symbol}.cu for {unit.arch} ==== */\n{unit.text}" for unit in source.units]
    for name, text in source.headers.items():
        fixed = (files("tatami.cu") / "header" / name).read_text(encoding="utf-8")
        assert text.startswith(fixed), f"{name} does not begin with the header of the package"
        parts.append(
            f"/* ==== {name}: {fixed.count(chr(10))} lines of tatami/cu/header/{name} ==== */\n{text.removeprefix(fixed)}"
        )
    return "\n".join(parts)
