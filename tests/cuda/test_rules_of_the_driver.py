"""Demands of the driver and the compiler of a GPU: aligned maps, fp8, options of NVRTC, the pool, the tuned plans of a chip."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import cuda.bindings.driver as real
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.runtime.arrays import give
from tatami.runtime.building import nvrtc
from tatami.runtime.cuda import cubins
from tatami.runtime.cuda.device import KEPT_BYTES, get_device
from tatami.runtime.cuda.tensor_map import Map, encode
from tests.cuda.emulated_gpu import emulated_gpu, gpu
from tests.cuda.fake_driver import FakeDriver, FakeLibrary, Launch
from tests.cuda.programs import eighths, on_gpu
from tests.plan.test_tuned import CASE

TILE = Map(tt.fp16, (64, 32), (128,), (64, 32), 128)


def test_maps_are_written_at_multiples_of_128_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[int] = []
    write = FakeLibrary.write

    def seen(self: FakeLibrary, to: Any, *rest: Any) -> int:
        places.append(to.value)
        return write(self, to, *rest)

    monkeypatch.setattr(FakeLibrary, "write", seen)
    with gpu(FakeDriver()):
        for _ in range(20):
            encode(get_device(0), TILE, 4096, "k0")
    assert len(places) == 20 and all(p % 128 == 0 for p in places)


@pytest.mark.parametrize("address", [16, 48, 80])
def test_the_stand_in_refuses_a_map_between_multiples_of_64(address: int) -> None:
    room = (ctypes.c_uint8 * 512)()
    to = -(-ctypes.addressof(room) // 128) * 128 + address
    u64, u32 = (ctypes.c_uint64 * 2)(64, 32), (ctypes.c_uint32 * 2)(64, 32)
    given = (6, 2, ctypes.c_void_p(4096), u64, (ctypes.c_uint64 * 1)(128), u32, (ctypes.c_uint32 * 2)(1, 1), 0, 3, 3, 0)
    assert FakeLibrary(FakeDriver()).cuTensorMapEncodeTiled(ctypes.c_void_p(to), *given) == 1


MAPS = [
    ("a pitch between multiples of 16", {"strides": (130,)}, 4096),
    ("an address between multiples of 16", {}, 4104),
    ("a box above 256", {"box": (64, 257)}, 4096),
    ("a side wider than its swizzle", {"swizzle": 64}, 4096),
    ("steps above 8", {"steps": (1, 9)}, 4096),
]


@pytest.mark.parametrize(("what", "change", "address"), MAPS, ids=[w for w, _, _ in MAPS])
def test_the_stand_in_refuses_the_maps_that_a_driver_refuses(
    what: str, change: dict[str, Any], address: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's own check is off, so that a fault of that check would show."""
    from tatami.runtime.cuda import tensor_map

    monkeypatch.setattr(tensor_map, "check", lambda *_: None)
    map = Map(**{**{f: getattr(TILE, f) for f in TILE.__dataclass_fields__}, **change})
    with gpu(FakeDriver()), pytest.raises(TatamiError, match="CUDA_ERROR_INVALID_VALUE"):
        encode(get_device(0), map, address, "k0")


@pytest.mark.parametrize(
    ("grid", "block", "cluster", "refused"),
    [
        ((1, 65536, 1), (128, 1, 1), None, True),
        ((1, 1, 65536), (128, 1, 1), None, True),
        ((1 << 20, 65535, 1), (128, 1, 1), None, False),
        ((1, 1, 1), (2048, 1, 1), None, True),
        ((3, 1, 1), (128, 1, 1), (2, 1, 1), True),
        ((16, 1, 1), (128, 1, 1), (16, 1, 1), True),
        ((4, 1, 1), (128, 1, 1), (2, 1, 1), False),
    ],
)
def test_the_stand_in_refuses_the_grids_that_a_driver_refuses(grid: Any, block: Any, cluster: Any, refused: bool) -> None:
    assert FakeDriver().refuses(Launch("k0", grid, block, 0, cluster, (), 0)) == refused


def test_fp8_goes_through_the_driver() -> None:
    """A product of fp8 by wgmma: its tensor maps are of bytes."""
    g = tt.Graph("g")
    x, w = g.input("x", (64, 128), DType.f8e4m3fn), g.input("w", (64, 128), DType.f8e4m3fn)
    g.output("y", x.cast(tt.fp32).linear(w.cast(tt.fp32)))
    with emulated_gpu("sm90") as fake:
        f = on_gpu(fake, g, precision="tf32")
        kinds = prepare(g, target="sm90", precision="tf32").stages["plan"].main.regions[0].choices
        assert type(kinds[0].plan).__name__ == "Sm90Mma"
        a, b = (eighths(64, 128, seed=k).astype(np.dtype("float8_e4m3fn")) for k in (1, 2))
        got = f(x=a, w=b)["y"]
        assert fake.maps and {m[0] for m in fake.maps if m[1]} >= {real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT8}
    np.testing.assert_allclose(got, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_torchs_small_floats_go_in_and_out(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = {"float8_e4m3fn": DType.f8e4m3fn, "float8_e5m2": DType.f8e5m2, "bfloat16": DType.bf16}[name]
    g = tt.Graph("g")
    x = g.input("x", (2, 8), dtype)
    g.output("y", x.flip(1))
    g.output("z", x.cast(tt.fp32) * 2.0)
    given = torch.arange(16, dtype=torch.float32).reshape(2, 8).to(getattr(torch, name))
    made = tt.compile(g)(x=given)
    assert made["y"].dtype == getattr(torch, name) and torch.equal(made["y"].float(), given.float().flip(1))
    assert torch.equal(made["z"], given.float() * 2)
    plain: Any = give(np.zeros(3, np.float32), "torch")
    assert plain.dtype == torch.float32


def test_a_device_keeps_freed_memory_for_the_next_call() -> None:
    with gpu(FakeDriver()) as fake:
        get_device(0)
    assert fake.kept_bytes == KEPT_BYTES >= 256 << 20


def test_a_devices_plans_are_those_that_its_chip_was_tuned_for() -> None:
    g = CASE.make()
    fake = FakeDriver()
    fake.device_name = "NVIDIA H200"
    with gpu(fake):
        on_device = prepare(g, target="cuda")
        found = on_device.stages["plan"].main.regions[0]
    assert on_device.target.chip == "h200"
    described = prepare(g, target="h200").stages["plan"].main.regions[0]
    assert found.choices[0].plan == described.choices[0].plan
    assert any("the table of h200 has" in r.why for r in found.rejected)
    assert prepare(g, target="emulated-h200").stages["plan"].main.regions[0].choices[0].plan == described.choices[0].plan


def test_kernels_without_matrix_instructions_are_compiled_without_contraction(monkeypatch: pytest.MonkeyPatch) -> None:
    g = tt.Graph("g")
    x = g.input("x", (32, 64), tt.fp32)
    g.output("mean", (x * x).mean(1))
    h = tt.Graph("h")
    h.output("y", h.input("a", (64, 64), tt.fp16) @ h.input("b", (64, 64), tt.fp16))
    units = [u for graph in (g, h) for u in prepare(graph, target="sm80").stages["cu"].main.units]
    assert [cubins.options(u) for u in units] == [("--fmad=false",), ()]
    header: dict[str, str] = {}
    keys = {cubins.unit_key(u, header, "sm_80") for u in units}
    monkeypatch.setenv("TATAMI_CUDA_WAIT", "2000")
    assert cubins.options(units[1]) == ("-DTT_WAIT_MILLISECONDS=2000",)
    assert keys.isdisjoint({cubins.unit_key(u, header, "sm_80") for u in units})
    for wrong in ("0", "-1", "2s", "9" * 20, "0000000019" + "9" * 9):
        monkeypatch.setenv("TATAMI_CUDA_WAIT", wrong)
        with pytest.raises(TatamiError, match="milliseconds"):
            cubins.options(units[1])


@pytest.mark.skipif(not nvrtc.has_nvrtc(), reason="NVRTC is not installed")
def test_a_limit_of_waits_is_in_the_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with the limit reads the clock and traps; ptxas then serialises wgmma (C7518), which a debug build may."""
    g = tt.Graph("g")
    g.output("y", g.input("a", (256, 256), tt.fp16) @ g.input("b", (256, 256), tt.fp16))
    source = prepare(g, target="sm90").stages["cu"].main
    (unit,) = source.units
    plain = nvrtc.compile_cubin(unit.text, "sm_90a", source.headers, more=cubins.options(unit))
    monkeypatch.setenv("TATAMI_CUDA_WAIT", "2000")
    limited = nvrtc.compile_cubin(unit.text, "sm_90a", source.headers, more=cubins.options(unit))
    assert plain.warnings == () and all("C7518" in w for w in limited.warnings)
    assert limited.spill_bytes == 0 and limited.data != plain.data


def test_the_highest_nvrtc_is_taken(tmp_path: Path) -> None:
    names = [f"nvidia/{d}/lib/libnvrtc.so.{v}" for d, v in (("cu9", "9.2"), ("cu12", "12"), ("cu13", "13"), ("cu12x", "12.8"))]
    ordered = sorted((tmp_path / n for n in names), key=nvrtc._version, reverse=True)
    assert [p.name.partition(".so.")[2] for p in ordered] == ["13", "12.8", "12", "9.2"]
