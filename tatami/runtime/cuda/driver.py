"""The driver API through its Python bindings. Every call is checked; a refusal is a Diagnostic that names the caller.

Nothing of the bindings is imported before a GPU is used, so that everything else works without them."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any, TypeAlias

from tatami.core.diagnostic import TatamiError, fail

EMULATED = "use target emulated-sm80 or emulated-sm90, which run the same kernels on this CPU"
"""The suggestion for machines without a GPU."""


At: TypeAlias = str | Callable[[], str]
"""The place that a fault names; a function is only called if there is a fault."""


class Driver:
    """The API. `api`: the module `cuda.bindings.driver`, or an object with its functions; `library`: the driver's own library."""

    def __init__(self, api: ModuleType) -> None:
        self.api = api

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The library that the bindings call, for functions that write to memory of ours."""
        given: ctypes.CDLL | None = getattr(self.api, "library", None)
        return given if given is not None else ctypes.CDLL("libcuda.so.1")

    def call_library(self, name: str, *args: object, at: At = "the device") -> None:
        """Call one function of the library itself. Raises OutOfMemory and DeviceFault at `at`."""
        status = self.api.CUresult(getattr(self.library, name)(*args))
        if int(status):
            raise self.fault(name, status, at if isinstance(at, str) else at())

    def call(self, name: str, *args: object, at: At = "the device") -> Any:
        """The results of one function of the API, without its status. Raises OutOfMemory and DeviceFault at `at`."""
        status, *results = getattr(self.api, name)(*args)
        if int(status):
            raise self.fault(name, status, at if isinstance(at, str) else at())
        return results[0] if len(results) == 1 else tuple(results)

    def fault(self, name: str, status: object, at: str) -> TatamiError:
        """The error for a status of the function `name`: OutOfMemory or DeviceFault."""
        code = getattr(status, "name", str(status))
        if code == "CUDA_ERROR_OUT_OF_MEMORY":
            return fail(
                "OutOfMemory", at, f"{name}: the GPU has no memory left", "use smaller sizes, or free what else lies on it"
            )
        _, text = self.api.cuGetErrorString(status)
        said = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        return fail("DeviceFault", at, f"{name}: {code} ({said})", _ADVICE.get(code, _OTHER))


_SYNC = "run again with TATAMI_CUDA_SYNC=1, which waits after each kernel and names the one at fault, in a new process"
_OTHER = "check the driver with nvidia-smi; if it is well, report the program"
_ADVICE = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": _SYNC,
    "CUDA_ERROR_MISALIGNED_ADDRESS": _SYNC,
    "CUDA_ERROR_LAUNCH_FAILED": _SYNC,
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": _SYNC,
    "CUDA_ERROR_LAUNCH_TIMEOUT": _SYNC,
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "empty the folder of the cache (TATAMI_CACHE_DIR), so that kernels are compiled for this GPU",
    "CUDA_ERROR_INVALID_IMAGE": "empty the folder of the cache (TATAMI_CACHE_DIR); the NVRTC installed may be newer than the driver",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "install an NVRTC of the driver's own version: pip install 'nvidia-cuda-nvrtc==13.0.*'",
}


def bindings() -> ModuleType:
    """The module of the bindings. Raises ImportError if the package is missing."""
    return importlib.import_module("cuda.bindings.driver")


@lru_cache(maxsize=1)
def get_driver() -> Driver:
    """The driver, initialised. Raises UnknownTarget if there is none, MissingPackage without its bindings."""
    try:
        api = bindings()
    except ImportError:
        raise fail(
            "MissingPackage",
            "target",
            "the package cuda-bindings, through which GPUs are reached, is not installed",
            f"pip install 'tatami[cuda]', or {EMULATED}",
        ) from None
    try:
        (status,) = api.cuInit(0)
    except RuntimeError:  # the bindings found no libcuda
        raise fail("UnknownTarget", "target", "this machine has no NVIDIA driver", EMULATED) from None
    if int(status):
        why = f"the NVIDIA driver does not start: {getattr(status, 'name', status)}"
        raise fail("UnknownTarget", "target", why, EMULATED)
    return Driver(api)


def device_count() -> int:
    """The number of GPUs of this machine. Raises UnknownTarget without a driver."""
    return int(get_driver().call("cuDeviceGetCount"))
