"""A machine as numbers. Inert: calibration writes one, the compiler only reads it."""

from __future__ import annotations

from typing import Literal

import msgspec


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sizes in bytes, rates in units per second. CPU fields are 0 for a GPU and the other way round."""

    name: str
    kind: Literal["cpu", "cuda", "reference"]
    isa: Literal["", "generic", "avx2", "avx512", "neon", "sm80", "sm90"] = ""
    emulated: bool = False
    # CPU
    vector_bytes: int = 0
    vector_registers: int = 0
    cores: int = 0
    l1_bytes: int = 0
    l2_bytes: int = 0
    l3_bytes: int = 0
    # GPU
    sms: int = 0
    smem_per_sm: int = 0
    smem_per_block: int = 0
    registers_per_sm: int = 0
    max_threads_per_sm: int = 0
    # rates
    flops_fp32: float = 0.0
    flops_fp16: float = 0.0
    bandwidth: float = 0.0
    launch_seconds: float = 0.0

    @property
    def lanes(self) -> int:
        """Elements of fp32 that a vector holds: 1 where there are no vectors. The width of CPU plans is counted in them."""
        return max(1, self.vector_bytes // 4)


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


PRESETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target(name="reference", kind="reference"),
        _cpu("cpu:generic", "generic", 16, 16, 256 << 10, 1.6e10),
        _cpu("cpu:avx2", "avx2", 32, 16, 256 << 10, 8e10),
        _cpu("cpu:avx512", "avx512", 64, 32, 1 << 20, 1.5e11),
        _cpu("cpu:neon", "neon", 16, 32, 512 << 10, 5e10),
        Target(
            name="sm80",
            kind="cuda",
            isa="sm80",
            sms=108,
            smem_per_sm=164 << 10,
            smem_per_block=163 << 10,
            registers_per_sm=65536,
            max_threads_per_sm=2048,
            flops_fp32=1.95e13,
            flops_fp16=3.12e14,
            bandwidth=2.04e12,
            launch_seconds=3e-6,
        ),
        Target(
            name="sm90",
            kind="cuda",
            isa="sm90",
            sms=132,
            smem_per_sm=228 << 10,
            smem_per_block=227 << 10,
            registers_per_sm=65536,
            max_threads_per_sm=2048,
            flops_fp32=6.7e13,
            flops_fp16=9.89e14,
            bandwidth=4.8e12,
            launch_seconds=3e-6,
        ),
    )
}
