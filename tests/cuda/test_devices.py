"""Targets named cuda: what is found, what is refused, and what the compiler reads of a GPU."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import Diagnostic, TatamiError
from tatami.core.target import PRESETS
from tatami.runtime.cuda import driver
from tatami.runtime.cuda.device import split_name
from tests.cuda.emulated_gpu import gpu
from tests.cuda.fake_driver import FakeDriver
from tests.cuda.programs import doubled


def refused(target: str, fake: Any) -> Diagnostic:
    with gpu(fake), pytest.raises(TatamiError) as caught:
        tt.compile(doubled(), target=target)
    (d,) = caught.value.diagnostics
    return d


def test_a_gpu_is_read_as_numbers() -> None:
    with gpu(FakeDriver(attributes={"MULTIPROCESSOR_COUNT": 66})):
        t = prepare(doubled(), target="cuda").target
    assert (t.name, t.kind, t.isa, t.sms, t.smem_per_block, t.emulated) == ("cuda:0", "cuda", "sm90", 66, 227 << 10, False)
    assert t.flops_fp16 == PRESETS["sm90"].flops_fp16 / 2 and 4.9e12 < t.bandwidth < 4.95e12


def test_a_device_is_planned_for_by_its_description() -> None:
    """The driver's figures replace those of the description; peaks come from the description, by name or by the nearest kind."""
    known = FakeDriver(attributes={"L2_CACHE_SIZE": 49 << 20, "MEMORY_CLOCK_RATE": 0})
    known.device_name = "NVIDIA H100 PCIe"
    with gpu(known):
        t = prepare(doubled(), target="cuda:sm80").target
    assert (t.isa, t.arch, t.l2_bytes, t.bandwidth) == ("sm80", "sm_90a", 49 << 20, PRESETS["h100-pcie"].bandwidth)
    assert t.flops_fp16 == pytest.approx(PRESETS["h100-pcie"].flops_fp16 * 132 / 114)
    other = {"COMPUTE_CAPABILITY_MAJOR": 12, "MULTIPROCESSOR_COUNT": 54, "CLOCK_RATE": 2820000}
    with gpu(FakeDriver(attributes=other)):
        t = prepare(doubled(), target="cuda").target
    assert t.clock == 2.82e9 and t.flops_fp16 == pytest.approx(PRESETS["sm80"].flops_fp16)


@pytest.mark.parametrize(
    "name, found",
    [("cuda", (0, "")), ("cuda:3", (3, "")), ("cuda:sm80", (0, "sm80")), ("cuda:1:sm80", (1, "sm80"))]
    + [(n, None) for n in ("cuda:", "cuda:x", "cuda:1:2", "cuda:sm70", "cuda:-1", "sm80", "cuda:sm80:1")],
)
def test_names_of_devices(name: str, found: Any) -> None:
    assert split_name(name) == found


@pytest.mark.parametrize(
    "major, minor, arch, isa",
    [(8, 0, "sm_80", "sm80"), (8, 6, "sm_86", "sm80"), (9, 0, "sm_90a", "sm90"), (12, 0, "sm_120", "sm80")],
)
def test_each_chip_has_its_machine_code_and_templates(major: int, minor: int, arch: str, isa: str) -> None:
    from tatami.runtime.cuda.device import get_device

    with gpu(FakeDriver(attributes={"COMPUTE_CAPABILITY_MAJOR": major, "COMPUTE_CAPABILITY_MINOR": minor})):
        assert (get_device(0).arch, get_device(0).target().isa) == (arch, isa)


def test_the_sm80_templates_run_on_hopper_and_not_the_other_way() -> None:
    with gpu(FakeDriver()):
        assert prepare(doubled(), target="cuda:sm80").target.isa == "sm80"
    d = refused("cuda:sm90", FakeDriver(attributes={"COMPUTE_CAPABILITY_MAJOR": 8}))
    assert d.kind == "UnknownTarget" and "emulated-sm90" in d.suggestion


def test_without_a_driver_the_emulated_targets_are_named() -> None:
    class NoLibrary(FakeDriver):
        def cuInit(self, flags: int) -> Any:
            raise RuntimeError("Failed to dlopen libcuda.so.1")

    for target in ("cuda", "cuda:1", "cuda:sm80"):
        d = refused(target, NoLibrary())
        assert d.kind == "UnknownTarget" and "no NVIDIA driver" in d.why
        assert "emulated-sm80" in d.suggestion and "emulated-sm90" in d.suggestion


def test_without_the_bindings_the_extra_is_named() -> None:
    driver.get_driver.cache_clear()
    with mock.patch.object(driver, "bindings", side_effect=ImportError), pytest.raises(TatamiError) as caught:
        tt.compile(doubled(), target="cuda")
    (d,) = caught.value.diagnostics
    assert d.kind == "MissingPackage" and "tatami[cuda]" in d.suggestion and "emulated-sm80" in d.suggestion


def test_devices_that_are_not_there() -> None:
    assert "this machine has 1 GPU" in refused("cuda:1", FakeDriver()).why
    assert "emulated" in refused("cuda", FakeDriver(devices=0)).suggestion
    old = refused("cuda", FakeDriver(attributes={"COMPUTE_CAPABILITY_MAJOR": 7}))
    assert "compute capability 7.0" in old.why and "emulated" in old.suggestion


def test_a_kind_of_gpu_is_no_device() -> None:
    with pytest.raises(TatamiError) as caught:
        tt.compile(doubled(), target="sm80")
    (d,) = caught.value.diagnostics
    assert d.kind == "UnknownTarget" and "target cuda" in d.suggestion and "emulated-sm80" in d.suggestion
