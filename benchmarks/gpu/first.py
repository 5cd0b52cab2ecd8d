"""The cases that a GPU is asked first: a tensor map and a launch, one model of each kind, plans that cover pairs of choices; and
faults that are planted to see what they cost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tatami as tt
from benchmarks.gpu.places import Kernel, OnDevice, Where
from benchmarks.gpu.worker import OneCase, Row
from tatami.cu.print import headers
from tatami.runtime.cuda.tensor_map import Map, encode

RAMP = np.arange(64, dtype=np.uint32)


# -- maps and launches ---------------------------------------------------------------------------------


def maps_and_launches(where: Where, arch: str) -> list[OneCase]:
    """A plain launch, and on SM90 a map that the driver writes and a launch that reads through one."""
    out = [OneCase("a launch", lambda: copied(where, 1))]
    if arch != "sm90":
        return out
    if isinstance(where, OnDevice):
        out += [OneCase("a tensor map", lambda: encoded(where)), OneCase("where the bindings put a map", lambda: bound(where))]
    return [*out, OneCase("a box of a tensor map", lambda: boxed(where))]


def copied(where: Where, more: int, symbol: str = "copied", body: str = "") -> Row:
    """A kernel that writes its input plus `more`."""
    text = body or f"  const int lane = tt_thread();\n  for (int i = lane; i < 64; i += 32) p1[i] = p0[i] + {more};"
    found = where.run([Kernel(symbol, "sm_80", text, RAMP, 64)], headers(()))[symbol]
    wrong = np.flatnonzero(found != RAMP + 1)
    return {"ok": not wrong.size, **({"why": f"{wrong.size} of 64 words differ"} if wrong.size else {})}


def encoded(where: OnDevice) -> Row:
    """The driver writes a map to memory of ours."""
    made = encode(where.device, Map(tt.fp16, (512, 64), (1024,), (64, 64), 128), 4096, "a tensor map")
    return {"ok": len(made) == 128, "driver": where.device.driver_version, "device": where.device.name}


def bound(where: OnDevice) -> Row:
    """The address at which the bindings let the driver write a map, and what the driver says of it: a fact, right or wrong."""
    api = where.device.driver.api
    u64, u32 = api.cuuint64_t, api.cuuint32_t
    kinds = (
        api.CUtensorMapInterleave(0),
        api.CUtensorMapSwizzle(3),
        api.CUtensorMapL2promotion(3),
        api.CUtensorMapFloatOOBfill(0),
    )
    kind = api.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    try:
        status, made = api.cuTensorMapEncodeTiled(
            kind, 2, 4096, [u64(512), u64(64)], [u64(1024)], [u32(64), u32(64)], [u32(1), u32(1)], *kinds
        )
    except AttributeError as error:
        return {"skipped": str(error)}
    return {"status": int(status), "address % 64": int(made.getPtr()) % 64 if made is not None else None}


def boxed(where: Where) -> Row:
    """A box by TMA: the whole way of a map from the host to a copy."""
    from benchmarks.gpu.lanes import loads

    kernel = next(k for k in loads() if k.symbol == "tma_2d_sw128_0")
    found = where.run([kernel], headers(()))[kernel.symbol]
    rows = kernel.given.reshape(96, 64)[:16]
    place = np.arange(16)[:, None] * 64 + (np.arange(64)[None, :] ^ (np.arange(16)[:, None] % 8 * 8))
    return {"ok": bool(np.array_equal(found.view(np.uint16)[place], rows))}


# -- models --------------------------------------------------------------------------------------------


def models() -> dict[str, tuple[Callable[[bool], tt.Graph], dict[str, Any]]]:
    """One model of each kind by name: (its graph, small for an emulated GPU; options of the compilation)."""

    def of(make: Callable[[tt.Graph, Callable[..., Any], bool], Any]) -> Callable[[bool], tt.Graph]:
        def graph(small: bool) -> tt.Graph:
            g = tt.Graph("model")
            g.output("y", make(g, lambda n, s, t=tt.fp16: g.input(n, s, t), small))
            return g

        return graph

    tf32: dict[str, Any] = {"precision": "tf32"}
    return {
        "add": (of(lambda g, i, s: i("a", (1000,), tt.fp32) * 2.0 + i("b", (1000,), tt.fp32)), {}),
        "product fp32": (of(lambda g, i, s: i("a", (64, 40), tt.fp32) @ i("b", (40, 24), tt.fp32)), {}),
        "product fp16": (of(lambda g, i, s: i("a", (256, 64 if s else 256)) @ i("b", (64 if s else 256, 256))), {}),
        "clusters": (of(lambda g, i, s: i("a", (256 if s else 4096, 128)) @ i("b", (128, 256 if s else 4096))), {}),
        "tf32": (of(lambda g, i, s: i("a", (128, 64), tt.fp32).linear(i("w", (128, 64), tt.fp32))), tf32),
        "convolution": (of(lambda g, i, s: i("x", (1 if s else 32, 64, 14, 14)).conv(i("w", (64, 64, 3, 3)), padding=1)), {}),
        "attention": (
            of(lambda g, i, s: i("q", (1, 2, 64, 64)).attention(i("k", (1, 2, 64, 64)), i("v", (1, 2, 64, 64)))), {}
        ),
    }  # fmt: skip


# -- planted faults ------------------------------------------------------------------------------------


def planted(where: Where) -> list[OneCase]:
    """Faults among cases that are right: each costs its own row. `wanted` is what the row is to say."""
    hang = "  tt_store_relaxed(p1 + tt_thread(), 1u);\n  while (tt_load_relaxed(p1 + tt_thread()) != 77u) {}"
    outside = "  p1[1 << 20] = 1u;"

    def sleep() -> Row:
        time.sleep(3600)
        return {"ok": True}

    def crash() -> Row:
        os.kill(os.getpid(), signal.SIGSEGV)
        return {"ok": True}

    return [
        OneCase("right", lambda: copied(where, 1), "right"),
        OneCase("planted: a kernel hangs", lambda: copied(where, 1, "hangs", hang), "no answer"),
        OneCase("right after the hang", lambda: copied(where, 1), "right"),
        OneCase("planted: an illegal address", lambda: copied(where, 1, "outside", outside), "fault"),
        OneCase("right after the address", lambda: copied(where, 1), "right"),
        OneCase("planted: a wrong result", lambda: copied(where, 2, "wrong"), "differ"),
        OneCase("planted: the process hangs", sleep, "no answer"),
        OneCase("right after the sleep", lambda: copied(where, 1), "right"),
        OneCase("planted: the process ends", crash, "ended with"),
        OneCase("right at the end", lambda: copied(where, 1), "right"),
    ]


def memory_of(value: Any) -> np.ndarray:
    """A result as numbers of the host."""
    return np.asarray(value if isinstance(value, np.ndarray) else value.numpy(), np.float64)
