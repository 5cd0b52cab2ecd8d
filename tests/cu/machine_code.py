"""Output of NVRTC and ptxas for kernel text: machine code, the instructions in it, and whether they are what a plan stands for.

Compiled kernels are kept in the cache of machine code, so that a text is compiled once.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest

from tatami.cu.ir import Unit
from tatami.emulated.lines import section
from tatami.gpu.ir import Kernel
from tatami.gpu.products.copies import is_stored
from tatami.gpu.statement_ir import CpAsync, Loop, Role, Stmt
from tatami.plan.ir import Sm80Mma, Sm80Pair, Sm90Mma, Sm90Pair
from tatami.runtime.building.cache import default_cache
from tatami.runtime.building.nvrtc import Cubin, compile_cubin
from tatami.runtime.cuda.cubins import unit_key


def compiled(unit: Unit, headers: Mapping[str, str]) -> Cubin:
    """Machine code of a unit, from the cache if an earlier run compiled it. Raises TatamiError for a text that does not compile."""
    cache = default_cache()
    key = unit_key(unit, headers, unit.arch)
    body = cache.get(key)
    if body is not None:
        return msgspec.msgpack.decode(body, type=Cubin)
    cubin = compile_cubin(unit.text, unit.arch, headers)
    cache.put(key, msgspec.msgpack.encode(cubin))
    return cubin


def disassembler() -> str | None:
    inside = Path(sysconfig.get_paths()["platlib"]) / "nvidia" / "cu13" / "bin" / "nvdisasm"
    return str(inside) if inside.exists() else shutil.which("nvdisasm")


def machine_code(cubin: Cubin, folder: Path) -> Counter[str]:
    """How often each instruction stands in the machine code, with its modifiers."""
    return Counter(op for _, op in _listed(cubin, folder))


def instructions(cubin: Cubin, folder: Path) -> list[str]:
    """Instructions in the order of the machine code, without modifiers."""
    return [op.split(".")[0] for _, op in _listed(cubin, folder)]


def machine_codes(cubins: Sequence[Cubin], arch: str, folder: Path) -> list[Counter[str]]:
    """Machine code of several kernels `k0` in one run: most of the disassembler's time is its start."""
    texts = [section(c.data, ".text.k0") for c in cubins]
    path = folder / "kernels.bin"
    path.write_bytes(b"".join(texts))
    out: list[Counter[str]] = [Counter() for _ in texts]
    ends = list(accumulate(map(len, texts)))
    for at, op in _disassembled("-b", arch.replace("sm_", "SM"), str(path)):
        out[bisect(ends, at)][op] += 1
    return out


def _listed(cubin: Cubin, folder: Path) -> Iterator[tuple[int, str]]:
    path = folder / "k.cubin"
    path.write_bytes(cubin.data)
    return _disassembled(str(path))


def _disassembled(*arguments: str) -> Iterator[tuple[int, str]]:
    """Instructions by their places, without an analysis of what flows between them."""
    tool = disassembler()
    if tool is None:
        pytest.skip("nvdisasm is not installed")
    text = subprocess.run([tool, "-c", "-ndf", *arguments], capture_output=True, text=True, check=True).stdout
    for at, op in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P[0-9]\w*\s+)?([A-Z0-9_.]+)", text):
        yield int(at, 16), op


def sass(cubin: Cubin, folder: Path) -> Counter[str]:
    """The same without modifiers."""
    return without_modifiers(machine_code(cubin, folder))


def without_modifiers(code: Counter[str]) -> Counter[str]:
    out: Counter[str] = Counter()
    for op, count in code.items():
        out[op.split(".")[0]] += count
    return out


def wide_copies(kernel: Kernel) -> int | None:
    """Copies of 16 bytes that a thread starts per block of k; None where others are among them, or where they are
    gathered (several taps' copies stand in one block, and ptxas shares what they have in common)."""
    rings = {r.name: r for r in kernel.smem}
    operands = [(o, rings[o.ring]) for o in (kernel.a, kernel.b) if o.ring in rings]
    widths = _copy_widths(kernel)
    if any(o.gather is not None or widths.get(ring.name, 0) * o.dtype.itemsize != 16 for o, ring in operands):
        return None
    return sum(ring.slot_bytes // 16 // kernel.threads for _, ring in operands)


def _copy_widths(kernel: Kernel) -> dict[str, int]:
    """Elements of a copy by threads, by its ring."""
    return {s.dst_smem: s.width for s in _statements(kernel.body) if isinstance(s, CpAsync)}


def _statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for s in body:
        yield s
        if isinstance(s, Loop | Role):
            yield from _statements(s.body)


def wrong_counts(kernel: Kernel, plan: Sm80Mma | Sm90Mma | Sm80Pair | Sm90Pair, code: Counter[str]) -> Iterator[str]:
    """Counts of instructions in which a product's kernel differs from its plan (notes: gpu §8). Counts are per block of k, in whole
    multiples: ptxas unrolls and peels as it likes."""
    ops = without_modifiers(code)

    def multiple(op: str, of: int) -> Iterator[str]:
        if ops[op] == 0 or ops[op] % of:
            yield f"{ops[op]} {op}, no multiple of {of}"

    def none(*names: str) -> Iterator[str]:
        yield from (f"{ops[op]} {op}" for op in names if ops[op])

    match plan:
        case Sm90Mma():
            bm, widths = plan.tile[0], _copy_widths(kernel)
            sharing = 1 if plan.schedule == "pingpong" else plan.consumers
            product = "QGMMA" if kernel.a.dtype.is_fp8 else "HGMMA"
            yield from multiple(product, plan.k_steps * (bm // 64 // sharing))
            yield from none("HMMA")
            if ops["UTMALDG"] < plan.loads.count("tma") or ops["USETMAXREG"] != 2:
                yield f"{ops['UTMALDG']} UTMALDG, {ops['USETMAXREG']} USETMAXREG"
            copied = any(not is_stored(o, widths[o.ring]) for o in (kernel.a, kernel.b) if o.ring in widths)
            if (ops["LDGSTS"] > 0) != copied:
                yield f"{ops['LDGSTS']} LDGSTS with loads {plan.loads}, copies of {widths}"
            if any("MULTICAST" in op for op in code) != (plan.multicast != "none"):
                yield f"multicast {plan.multicast}, the code says otherwise"
            staged = plan.epilogue_store == "stmatrix_tma" and not kernel.units  # pieces of fp32 are stored one by one
            if (ops["UTMASTG"] > 0) != staged:
                yield f"{ops['UTMASTG']} UTMASTG with epilogue_store {plan.epilogue_store}"
            if (ops["LDSM"] > 0) != (plan.epilogue_load == "tma" and not kernel.units):
                yield f"{ops['LDSM']} LDSM with epilogue_load {plan.epilogue_load}"
        case Sm80Mma() if not plan.async_.enable:
            yield from none("LDGSTS", "HMMA")
        case Sm80Mma():
            wm, wn = map(int, plan.warp_tile.split("x"))
            if plan.inst_shape == "fma":
                yield from multiple("FFMA", wm // 8 * (wn // 4))
                yield from none("HMMA")
            else:
                yield from multiple("HMMA", wm // 16 * (wn // 8) * plan.k_steps)
                sides = ((wm, kernel.a), (wn, kernel.b))  # ldmatrix transposes 16-bit elements only
                if rows := sum(n for n, o in sides if o.major == "k" or o.dtype.itemsize == 2):
                    yield from multiple("LDSM", rows // 16 * plan.k_steps)
            if copies := wide_copies(kernel):
                yield from multiple("LDGSTS", copies)
        case Sm90Pair():
            firsts = 1 + len(plan.others)
            yield from multiple("HGMMA", (firsts * plan.depth + plan.tile[2]) // 16)
            yield from none("HMMA", "LDGSTS")
            if ops["UTMALDG"] < 2 * firsts + (not plan.shared) or ops["USETMAXREG"] != 2:
                yield f"{ops['UTMALDG']} UTMALDG, {ops['USETMAXREG']} USETMAXREG"
        case Sm80Pair(inst_shape="fma"):
            rows, (_, bn, bk) = plan.warp_rows // 8, plan.tile
            if ops["FFMA"] < rows * (
                2 * bk * (1 + len(plan.others)) + bk * bn // 4
            ):  # two steps of four along the depth at least, and all keys
                yield f"{ops['FFMA']} FFMA"
            yield from none("HMMA", "LDSM")
        case Sm80Pair():
            yield from multiple("HMMA", plan.warp_rows // 16)
            yield from multiple("LDSM", 1)
