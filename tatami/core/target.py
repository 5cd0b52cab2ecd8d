"""A machine as numbers. Inert: calibration writes one, the compiler only reads it.

A GPU of a known kind is described by a document (`core/chips/<name>.json`) that names the public source of each number.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import msgspec


class Target(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Sizes in bytes, rates in units per second. CPU fields are 0 for a GPU and the other way round."""

    name: str
    kind: Literal["cpu", "cuda", "reference"]
    isa: Literal["", "generic", "avx2", "avx512", "neon", "sm80", "sm90"] = ""
    features: tuple[str, ...] = ()
    """Instructions that not every CPU of the instruction set has and that plans use: vnni, sums of products of narrow integers
    (AVX512-VNNI; for avx2: AVX-VNNI); bf16, sums of products of pairs of bf16 (AVX512-BF16); amx_int8, the same by tile registers, where Linux grants them to the process."""
    emulated: bool = False
    chip: str = ""
    """Name of the chip's description (`core/chips`), by which its table of tuned plans is found; "": the target's own name."""
    # CPU
    vector_bytes: int = 0
    vector_registers: int = 0
    cores: int = 0
    l1_bytes: int = 0
    l2_bytes: int = 0
    l3_bytes: int = 0
    # GPU; templates for sm90 use clusters, TMA and wgmma
    arch: str = ""
    """Architecture that kernels are compiled for: sm_80, sm_86, sm_90a."""
    sms: int = 0
    clock: float = 0.0
    """Clock in Hz at which the peaks are stated: of the SMs, or of a core of a CPU that was measured."""
    l2_bytes_per_clock: float = 0.0
    """Bandwidth from L2 to all SMs together, in bytes per clock."""
    smem_per_sm: int = 0
    smem_per_block: int = 0
    registers_per_sm: int = 0
    max_threads_per_sm: int = 0
    max_blocks_per_sm: int = 32
    # rates; flops of the tensor cores are without sparsity, with fp32 accumulators
    flops_fp32: float = 0.0
    flops_fp16: float = 0.0
    flops_tf32: float = 0.0
    flops_fp8: float = 0.0
    bandwidth: float = 0.0
    launch_seconds: float = 0.0

    @property
    def lanes(self) -> int:
        """Elements of fp32 per vector, the unit of widths in CPU plans; 1 if the target does not have vectors."""
        return max(1, self.vector_bytes // 4)


CACHE_LINE = 64
"""Bytes of a cache line on every CPU that has a preset."""
ACCESS_BYTES = 16
"""Maximum bytes that an instruction of a GPU loads, copies or stores for one thread."""


def lanes_of(width: int, itemsize: int) -> int:
    """Elements of `itemsize` bytes in a vector that is as wide as `width` elements of fp32 (`Target.lanes`)."""
    return max(1, width * 4 // itemsize)


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public source of some numbers of a chip, by names of their fields."""

    fields: tuple[str, ...]
    source: str


class Chip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a GPU. `devices`: its names as the driver reports them."""

    devices: tuple[str, ...]
    target: Target
    sources: tuple[Source, ...]


def read_chips() -> tuple[Chip, ...]:
    """The chips that are described in `core/chips`, in the order of their file names."""
    found = [f for f in (files("tatami.core") / "chips").iterdir() if f.name.endswith(".json")]
    return tuple(msgspec.json.decode(f.read_bytes(), type=Chip) for f in sorted(found, key=lambda f: f.name))


def _cpu(
    name: str, isa: Literal["generic", "avx2", "avx512", "neon"], vector: int, registers: int, l2: int, flops: float
) -> Target:
    return Target(
        name=name,
        kind="cpu",
        isa=isa,
        vector_bytes=vector,
        vector_registers=registers,
        cores=2,
        l1_bytes=32 << 10,
        l2_bytes=l2,
        l3_bytes=32 << 20,
        flops_fp32=flops,
        bandwidth=1.2e10,
        launch_seconds=3e-7,
    )


CHIPS: dict[str, Chip] = {chip.target.name: chip for chip in read_chips()}
"""Name of a chip -> its description."""
CPUS = (
    Target(name="reference", kind="reference"),
    _cpu("cpu:generic", "generic", 16, 16, 256 << 10, 1.6e10),
    _cpu("cpu:avx2", "avx2", 32, 16, 256 << 10, 8e10),
    _cpu("cpu:avx512", "avx512", 64, 32, 1 << 20, 1.5e11),
    _cpu("cpu:neon", "neon", 16, 32, 512 << 10, 5e10),
)
"""The reference, and one description for each instruction set of CPUs."""
GPUS = (
    msgspec.structs.replace(CHIPS["a100"].target, name="sm80"),
    msgspec.structs.replace(CHIPS["h200"].target, name="sm90"),
    *(chip.target for chip in CHIPS.values()),
)
"""The two architectures by their tuned chips, then each chip."""
PRESETS: dict[str, Target] = {t.name: t for t in (*CPUS, *GPUS)}
"""Name -> target. `sm80` and `sm90` are the chips that their templates are tuned for."""


def chip_named(device: str) -> Target | None:
    """The description of a device by its name as the driver reports it; None if it is not described."""
    return next((c.target for c in CHIPS.values() if device in c.devices), None)
