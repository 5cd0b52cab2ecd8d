"""Kernels become machine code in processes of their own, once."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from unittest import mock

import pytest

from tatami.core.custom.verbatim import VerbatimCode
from tatami.core.diagnostic import TatamiError
from tatami.cu.ir import Unit
from tatami.runtime.building import nvrtc
from tatami.runtime.building.cache import Cache
from tatami.runtime.cuda import cubins

pytestmark = pytest.mark.skipif(not nvrtc.has_nvrtc(), reason="NVRTC is not installed")
HEADERS = {"shared.cuh": "#define TWICE(x) ((x) * 2)\n"}


def unit(symbol: str, body: str = "p[threadIdx.x] = TWICE(p[threadIdx.x]);") -> Unit:
    text = f'#include "shared.cuh"\nextern "C" __global__ void {symbol}(float* p) {{ {body} }}'
    return Unit(symbol, "sm_80", VerbatimCode(text))


def test_units_are_compiled_side_by_side_and_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    units = [unit(f"k{i}") for i in range(5)]
    made = cubins.compile_units(units, HEADERS, "sm_86", cache=cache, jobs=2)
    assert list(made) and all(c.data[:4] == b"\x7fELF" and c.registers for c in made.values())
    with mock.patch.object(cubins, "_compile_some", side_effect=AssertionError("compiled again")):
        assert cubins.compile_units(units, HEADERS, "sm_86", cache=cache) == made


def test_another_chip_or_header_is_another_cubin(tmp_path: Path) -> None:
    keys = {cubins.unit_key(unit("k0"), h, a) for h in (HEADERS, {}) for a in ("sm_80", "sm_90a")}
    assert len(keys) == 4


def test_a_text_that_is_refused_names_its_kernel(tmp_path: Path) -> None:
    with pytest.raises(TatamiError) as caught:
        cubins.compile_units([unit("k0"), unit("k1", "no_such_function();")], HEADERS, "sm_80", cache=Cache(tmp_path), jobs=1)
    (d,) = caught.value.diagnostics
    assert d.kind == "CompilerFailed" and "k1" in d.at and "no_such_function" in d.why


def test_a_compiler_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubins, "time_limit", lambda: -1.99)
    with pytest.raises(TatamiError, match="did not end"):
        cubins.compile_units([unit("k0")], HEADERS, "sm_80", cache=Cache(tmp_path))


def test_a_worker_that_reads_late_gets_all_of_its_text() -> None:
    """More than a pipe holds, and no byte of it read before the first look at the answer."""
    late = "import sys, time; time.sleep(0.5); print(len(sys.stdin.read()))"
    done = cubins._ended([sys.executable, "-c", late], "x" * 1_000_000, 20.0, threading.Event())
    assert done is not None and done.stdout.strip() == "1000000"
