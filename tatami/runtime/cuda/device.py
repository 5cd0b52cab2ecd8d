"""One GPU: its context (the primary one, which PyTorch and CuPy use too), its numbers as a Target, and its streams."""

from __future__ import annotations

import sys
from functools import lru_cache
from types import TracebackType
from typing import Any

import msgspec

from tatami.core.diagnostic import fail
from tatami.core.target import PRESETS, Target, chip_named
from tatami.runtime.cuda.driver import EMULATED, At, Driver, device_count, get_driver

DLPACK_CUDA = 2
"""DLPack's type of a CUDA device (kDLCUDA)."""


KEPT_BYTES = 1 << 30
"""Bytes of freed memory that the device's pool keeps for the next calls. With the driver's own number, 0, every wait for the
device gives all of it back to the system, and the next call asks for it again."""


class Device:
    """A GPU, by its ordinal. ``with device:`` makes its context current in this thread."""

    dlpack_type = DLPACK_CUDA

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.handle = driver.call("cuDeviceGet", ordinal)
        name = driver.call("cuDeviceGetName", 256, self.handle)
        self.name = (name.decode(errors="replace") if isinstance(name, bytes) else str(name)).rstrip("\0")
        self.major = self.attribute("COMPUTE_CAPABILITY_MAJOR")
        self.minor = self.attribute("COMPUTE_CAPABILITY_MINOR")
        if self.major < 8:
            why = f"{self.name} has compute capability {self.major}.{self.minor}; the kernels need 8.0"
            raise fail("UnknownTarget", f"cuda:{ordinal}", why, EMULATED)
        self.context = driver.call("cuDevicePrimaryCtxRetain", self.handle)
        self.driver_version = int(driver.call("cuDriverGetVersion"))
        pool = driver.call("cuDeviceGetDefaultMemPool", self.handle)
        which = driver.api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        driver.call("cuMemPoolSetAttribute", pool, which, driver.api.cuuint64_t(KEPT_BYTES))

    def attribute(self, name: str) -> int:
        """The value of a device attribute, by the end of its name in the driver API."""
        which = getattr(self.driver.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", which, self.handle))

    @property
    def arch(self) -> str:
        """The architecture for NVRTC: machine code for this chip, Hopper's own instructions included."""
        return f"sm_{self.major}{self.minor}{'a' if (self.major, self.minor) == (9, 0) else ''}"

    def __enter__(self) -> Device:
        self.driver.call("cuCtxPushCurrent", self.context)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.driver.call("cuCtxPopCurrent")

    # -- streams ---------------------------------------------------------------------------------

    def current_stream(self) -> int:
        """The stream on which the caller's library works: PyTorch's current one, else CuPy's, else the default stream (0),
        which waits for all others that block."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return int(torch.cuda.current_stream(self.ordinal).cuda_stream)
        cupy: Any = sys.modules.get("cupy")
        if cupy is not None:
            return int(cupy.cuda.get_current_stream(self.ordinal).ptr)
        return 0

    def stream(self, handle: int) -> object:
        """The driver's object for a stream's handle."""
        made: object = self.driver.api.CUstream(handle)
        return made

    def synchronize(self, stream: int, at: At = "the device") -> None:
        """Wait until everything in the stream is done. Raises DeviceFault at `at`."""
        self.driver.call("cuStreamSynchronize", self.stream(stream), at=at)

    # -- numbers ---------------------------------------------------------------------------------

    def target(self, isa: str = "") -> Target:
        """This GPU as a Target. `isa` "sm80": for kernels of the SM80 templates."""
        own = "sm90" if self.major == 9 else "sm80"
        if isa == "sm90" and own != "sm90":
            why = f"{self.name} (compute capability {self.major}.{self.minor}) lacks the instructions of sm90"
            raise fail("UnknownTarget", f"cuda:{self.ordinal}", why, f"use cuda:{self.ordinal}, or emulated-sm90 on this CPU")
        described = chip_named(self.name)
        base = described or PRESETS[own]
        sms = self.attribute("MULTIPROCESSOR_COUNT")
        clock = base.clock if described else 1e3 * self.attribute("CLOCK_RATE") or base.clock
        faster = sms * clock / (base.sms * base.clock)
        # Twice the clock (two edges), in kHz, times the bytes of the bus.
        bandwidth = 2e3 * self.attribute("MEMORY_CLOCK_RATE") * self.attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8
        return msgspec.structs.replace(
            base,
            name=f"cuda:{self.ordinal}" + (f":{isa}" if isa else ""),
            chip=described.name if described else "",
            isa=isa or own,
            arch=self.arch,
            sms=sms,
            clock=clock,
            l2_bytes=self.attribute("L2_CACHE_SIZE"),
            smem_per_sm=self.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            smem_per_block=self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            registers_per_sm=self.attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            max_threads_per_sm=self.attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
            max_blocks_per_sm=self.attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
            flops_fp32=base.flops_fp32 * faster,
            flops_fp16=base.flops_fp16 * faster,
            flops_tf32=base.flops_tf32 * faster,
            flops_fp8=base.flops_fp8 * faster,
            bandwidth=bandwidth or base.bandwidth,
        )


@lru_cache(maxsize=64)
def get_device(ordinal: int) -> Device:
    """The GPU of that number. Raises UnknownTarget if it does not exist."""
    count = device_count()
    if ordinal >= count:
        have = f"this machine has {count} GPU{'s' if count != 1 else ''}" if count else "the driver finds no GPU"
        raise fail("UnknownTarget", f"cuda:{ordinal}", have, f"use cuda:{count - 1} or lower" if count else EMULATED)
    return Device(get_driver(), ordinal)


def split_name(name: str) -> tuple[int, str] | None:
    """(device, templates) of "cuda", "cuda:1", "cuda:sm80", "cuda:1:sm80"; None for any other text."""
    kind, *rest = name.split(":")
    if kind != "cuda":
        return None
    ordinal = 0
    if rest and rest[0].isascii() and rest[0].isdigit() and len(rest[0]) < 4:
        ordinal = int(rest.pop(0))
    if rest in ([], ["sm80"], ["sm90"]):
        return ordinal, rest[0] if rest else ""
    return None


def cuda_target(ordinal: int, isa: str = "") -> Target:
    """The Target of the GPU of that number. Raises UnknownTarget."""
    return get_device(ordinal).target(isa)


def device_of(target: Target) -> Device:
    """The GPU that a program for `target` runs on. Raises UnknownTarget unless the target names a device."""
    found = split_name(target.name)
    if found is None:
        why = f"{target.name} is a kind of GPU, for which code is written; it is not a device"
        suggestion = (
            f"run it on this machine's GPU with target cuda (cuda:sm80: the SM80 kernels there), or on emulated-{target.isa}"
        )
        raise fail("UnknownTarget", target.name, why, suggestion)
    return get_device(found[0])
