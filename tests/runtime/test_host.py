import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.runtime import host


def test_this_machine_is_a_target_that_runs_here() -> None:
    target = host.resolve_target("cpu")
    assert target.kind == "cpu"
    assert target.cores >= 1
    host.check_runs_here(target)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(TatamiError, match="cpu:avx512"):
        host.resolve_target("cpu:mmx")


def test_a_target_this_machine_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_cpu_flags", lambda: frozenset({"sse2"}))
    with pytest.raises(TatamiError, match="lacks"):
        host.check_runs_here(PRESETS["cpu:avx512"])
    assert host.resolve_target("cpu:avx512").isa == "avx512"


def test_an_emulated_gpu_is_a_target() -> None:
    target = host.resolve_target("emulated-sm90")
    assert target.emulated
    assert target.isa == "sm90"
