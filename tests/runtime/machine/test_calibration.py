from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tatami.core.diagnostic import fail
from tatami.plan.loops.estimate import multiply_adds_per_cycle
from tatami.runtime.building.cache import default_cache
from tatami.runtime.machine import calibration
from tatami.runtime.machine.calibration import Rates, calibrate, measure_rates, rounded, this_machine, with_rates
from tatami.runtime.machine.host import detect_host
from tatami.runtime.machine.peak import Probe
from tatami.targets import resolve_target


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))
    calibration._kept.cache_clear()


def test_rates_are_of_this_machine() -> None:
    rates = measure_rates(detect_host())
    assert 3e8 < rates.clock < 1e10 and rates.units in calibration.UNITS and 1e8 < rates.bandwidth < 1e13
    target = with_rates(detect_host(), rates)
    assert multiply_adds_per_cycle(target) == pytest.approx(rates.units)


def test_small_differences_make_no_other_rates() -> None:
    found = {
        rounded(3.68e9 * a, 3.7e9 * b, 3.2e10 * c) for a in (0.99, 1, 1.01) for b in (0.8, 1, 1.3) for c in (0.95, 1, 1.05)
    }
    assert found == {Rates(3.7e9, 1.0, 3.2e10)} | {Rates(3.6e9, 1.0, 3.2e10)}
    assert rounded(2.5e9, 4.4e9, 3.2e10 * 1.26) == Rates(2.5e9, 2.0, 4.0e10)


def test_a_second_process_plans_by_the_same_rates(empty_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "measure_rates", lambda host: Rates(1e9, 2.0, 5e9))
    first = this_machine()
    assert (first.clock, first.bandwidth) == (1e9, 5e9) and first.flops_fp32 == 4e9 * first.lanes
    calibration._kept.cache_clear()  # as a new process
    monkeypatch.setattr(calibration, "measure_rates", lambda host: Rates(3e9, 1.0, 7e9))
    assert resolve_target("cpu") == first
    assert calibrate().clock == 3e9 and this_machine().clock == 3e9
    assert resolve_target(first.name).bandwidth != 7e9, "a named target is the same wherever it is asked for"


def test_what_was_kept_and_cannot_be_read_is_measured(empty_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    default_cache().put(calibration._key(detect_host()), b'{"clock": 1}')
    monkeypatch.setattr(calibration, "measure_rates", lambda host: Rates(2e9, 1.0, 5e9))
    assert this_machine().clock == 2e9


def test_without_a_compiler_the_rates_are_the_presets(empty_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(host: object) -> Rates:
        raise fail("CompilerMissing", "compiler", "none", "install one")

    monkeypatch.setattr(calibration, "measure_rates", none)
    assert this_machine() == detect_host()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_each_thread_of_a_probe_has_a_processor_of_its_own() -> None:
    usable = os.sched_getaffinity(0)
    probe = Probe(len(usable))
    places: list[set[int]] = []
    meeting = threading.Barrier(len(usable))

    def meet(_: int) -> None:
        places.append(os.sched_getaffinity(0))
        meeting.wait()

    probe._seconds(meet)
    wanted = [{p} for p in sorted(usable)] if len(usable) > 1 else [usable]
    assert sorted(places, key=min) == wanted and os.sched_getaffinity(0) == usable
