import ctypes
import platform

import msgspec
import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.runtime.machine import host
from tatami.targets import resolve_target


def test_this_machine_is_a_target_that_runs_here() -> None:
    target = resolve_target("cpu")
    assert target.kind == "cpu"
    assert target.cores >= 1
    host.check_runs_here(target)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(TatamiError, match="cpu:avx512"):
        resolve_target("cpu:mmx")


def test_a_target_this_machine_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_cpu_flags", lambda: frozenset({"sse2"}))
    with pytest.raises(TatamiError, match="lacks"):
        host.check_runs_here(PRESETS["cpu:avx512"])
    assert resolve_target("cpu:avx512").isa == "avx512"


def test_tiles_are_a_feature_only_where_linux_lets_the_process_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = frozenset({"avx512f", "amx_tile", "amx_int8"})
    assert not host._has_tiles(flags - {"amx_tile"})
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not host._has_tiles(flags)
    asked: list[tuple[int, ...]] = []

    class Refuses:
        @staticmethod
        def syscall(*words: ctypes.c_long) -> int:
            asked.append(tuple(w.value for w in words))
            return -1

    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Refuses)
    assert not host._has_tiles(flags) and asked == [(158, 0x1023, 18)]


def test_a_program_for_tiles_is_refused_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_has", lambda isa: True)
    monkeypatch.setattr(host, "_cpu_flags", lambda: frozenset({"avx512_vnni"}))
    target = msgspec.structs.replace(PRESETS["cpu:avx512"], features=("vnni", "amx_int8"))
    with pytest.raises(TatamiError, match="lacks amx_int8"):
        host.check_runs_here(target)


def test_an_emulated_gpu_is_a_target() -> None:
    target = resolve_target("emulated-sm90")
    assert target.emulated
    assert target.isa == "sm90"
