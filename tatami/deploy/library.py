"""The C text of a library and the file of its constants, from a compilation."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from tatami.build import program_text, where
from tatami.c.print_library import Constants, CpuBit, print_library
from tatami.compilation import Compilation
from tatami.core.faults.call_depth import most_calls
from tatami.core.tensor import Tensor
from tatami.deploy.refusals import check_program, check_target
from tatami.execution.arena import pool_offsets
from tatami.execution.frames import Layouts
from tatami.observer import explained
from tatami.runtime.building.objects import Unit, runtime_headers, runtime_text
from tatami.runtime.machine.host import FEATURES

ALIGNMENT = 64
"""Bytes to which constants are aligned in their file and in memory: a cache line, and the widest vector."""
MAGIC = b"tatami constants"
"""First bytes of constants.bin; the number of bytes and the SHA-256 of what follows the header come after."""
_AVX, _AVX512, _TILES = 0x6, 0xE6, 0x60000
_BITS = {
    "avx2": CpuBit("AVX2", 7, 0, 1, 5, _AVX),
    "fma": CpuBit("FMA", 1, 0, 2, 12, _AVX),
    "f16c": CpuBit("F16C", 1, 0, 2, 29, _AVX),
    "bmi2": CpuBit("BMI2", 7, 0, 1, 8, 0),
    "avx512f": CpuBit("AVX-512F", 7, 0, 1, 16, _AVX512),
    "avx512dq": CpuBit("AVX-512DQ", 7, 0, 1, 17, _AVX512),
    "avx512cd": CpuBit("AVX-512CD", 7, 0, 1, 28, _AVX512),
    "avx512bw": CpuBit("AVX-512BW", 7, 0, 1, 30, _AVX512),
    "avx512vl": CpuBit("AVX-512VL", 7, 0, 1, 31, _AVX512),
    "avx512_vnni": CpuBit("AVX-512 VNNI", 7, 0, 2, 11, _AVX512),
    "avx512_bf16": CpuBit("AVX-512 BF16", 7, 1, 0, 5, _AVX512),
    "avx_vnni": CpuBit("AVX-VNNI", 7, 1, 0, 4, _AVX),
    "amx_int8": CpuBit("AMX-INT8", 7, 0, 3, 25, _TILES),
}
"""Name -> where cpuid tells of it (registers: 0 eax, 1 ebx, 2 ecx, 3 edx), and the registers that the system has to keep."""
_AVX2 = ("avx2", "fma", "f16c", "bmi2")
_NEEDS = {
    "avx2": _AVX2,
    "avx512": (*_AVX2, "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"),
}
DEPTH = "TATAMI_MOST_DEPTH = 10"
"""The depth of calls as library.h has it, which the setting of the compiler replaces."""


@dataclass(frozen=True)
class Library:
    """The parts of a library before they are compiled. `units`: kernels, entry and description, then the runtime's. `headers`:
    name -> text. `constants`: contents of constants.bin in pieces, header first; empty if the model has none."""

    units: tuple[Unit, ...]
    runtime: tuple[Unit, ...]
    headers: Mapping[str, str]
    constants: tuple[bytes | memoryview, ...]

    @property
    def constant_bytes(self) -> int:
        """Number of bytes of constants.bin."""
        return sum(memoryview(piece).nbytes for piece in self.constants)


def make_library(compilation: Compilation, *, linked: bool = False) -> Library:
    """The library of a compilation. `linked`: its constants are a part of it. Raises TatamiError for what needs Python."""
    check_target(compilation.target)
    with explained("execution", compilation.observer.from_document):
        layouts = Layouts(compilation.stages["execution"])
        names = where(compilation)
        check_program(layouts, names)
        used = {n: layouts.module.constants[n] for n in layouts.constants if n in layouts.module.constants}
        constants, pieces = _constants(used, linked)
        text = print_library(layouts, constants, needed_bits(compilation), names)
        units = (*program_text(compilation), Unit(text))
    folder = files("tatami.c") / "library_text"
    texts = {f.name: f.read_text(encoding="utf-8") for f in folder.iterdir()}
    texts["library.h"] = texts["library.h"].replace(DEPTH, f"TATAMI_MOST_DEPTH = {most_calls()}")
    headers = {**runtime_headers(), **{n: t for n, t in texts.items() if n.endswith(".h")}}
    runtime = [Unit(runtime_text("pool.c")), *(Unit(t) for n, t in sorted(texts.items()) if n.endswith(".c"))]
    return Library(units, tuple(runtime), headers, pieces)


def public_header() -> str:
    """The text of model.h, the interface of a library."""
    return (files("tatami.c") / "library_text" / "model.h").read_text(encoding="utf-8")


def needed_bits(compilation: Compilation) -> list[CpuBit]:
    """The instructions that every CPU which runs the code has to have."""
    target = compilation.target
    names = [*_NEEDS.get(target.isa, ()), *(FEATURES[key] for f in target.features if (key := (target.isa, f)) in FEATURES)]
    return [_BITS[n] for n in names]


def _constants(tensors: Mapping[str, Tensor], linked: bool) -> tuple[Constants, tuple[bytes | memoryview, ...]]:
    """The places of the constants in their file, and the file."""
    offsets, size = pool_offsets({n: t.nbytes for n, t in tensors.items()})
    pieces = list(_padded([t.data for t in tensors.values()]))
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    constants = Constants(offsets, size, digest.digest(), linked and size > 0)
    header = MAGIC + size.to_bytes(8, "little") + bytes(8) + digest.digest()
    return constants, (header, *pieces) if size else ()


def _padded(data: Sequence[memoryview | bytes]) -> Iterator[bytes | memoryview]:
    for piece in data:
        yield piece
        yield bytes(-memoryview(piece).nbytes % ALIGNMENT)
