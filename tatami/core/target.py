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


_CPU = {"kind": "cpu", "cores": 2, "l1_bytes": 32 << 10, "l3_bytes": 32 << 20, "bandwidth": 1.2e10, "launch_seconds": 3e-7}

PRESETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target(name="reference", kind="reference"),
        Target(
            name="cpu:generic",
            isa="generic",
            vector_bytes=16,
            vector_registers=16,
            l2_bytes=256 << 10,
            flops_fp32=1.6e10,
            **_CPU,
        ),
        Target(name="cpu:avx2", isa="avx2", vector_bytes=32, vector_registers=16, l2_bytes=256 << 10, flops_fp32=8e10, **_CPU),
        Target(
            name="cpu:avx512", isa="avx512", vector_bytes=64, vector_registers=32, l2_bytes=1 << 20, flops_fp32=1.5e11, **_CPU
        ),
        Target(name="cpu:neon", isa="neon", vector_bytes=16, vector_registers=32, l2_bytes=512 << 10, flops_fp32=5e10, **_CPU),
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
