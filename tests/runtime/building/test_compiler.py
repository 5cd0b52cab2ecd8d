import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.runtime.building.compiler import Compiler, compile_flags, find_compiler, run_command, run_compiler

GENERIC = PRESETS["cpu:generic"]


def script(folder: Path, body: str) -> str:
    path = folder / "fakecc"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def kind_of(error: pytest.ExceptionInfo[TatamiError]) -> str:
    return error.value.diagnostics[0].kind


def test_a_compiler_is_found_and_has_a_fingerprint() -> None:
    compiler = find_compiler()
    assert compiler is find_compiler()
    assert len(compiler.fingerprint) == 64


def test_no_fast_math_and_contraction_only_where_asked() -> None:
    flags = compile_flags(find_compiler(), GENERIC)
    assert "-ffp-contract=off" in flags
    assert "-ffast-math" not in flags
    assert "-ffp-contract=fast" in compile_flags(find_compiler(), GENERIC, contract=True)


def test_a_quick_build_leaves_what_may_fuse_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gcc = find_compiler()
    usual = {contract: compile_flags(gcc, GENERIC, contract=contract) for contract in (False, True)}
    monkeypatch.setenv("TATAMI_QUICK_BUILD", "1")
    assert compile_flags(gcc, GENERIC) == tuple("-Og" if f == "-O2" else f for f in usual[False]) != usual[False]
    assert compile_flags(gcc, GENERIC, contract=True) == usual[True]


def test_gcc_optimises_less_what_calls_the_work() -> None:
    import msgspec

    for kind, level in (("gcc", "-O1"), ("clang", "-O2")):
        compiler = msgspec.structs.replace(find_compiler(), kind=kind)
        assert level in compile_flags(compiler, GENERIC, light=True)
        assert "-O2" in compile_flags(compiler, GENERIC)


def test_gcc_leaves_passes_out_for_long_kernels_only() -> None:
    import msgspec

    from tatami.runtime.building.compiler import STRAIGHT
    from tatami.runtime.building.joined_units import SMALL
    from tatami.runtime.building.objects import Unit, _CompilerCall, _unit_flags

    gcc, clang = (msgspec.structs.replace(find_compiler(), kind=kind) for kind in ("gcc", "clang"))
    long = Unit("x" * (SMALL + 1), kernel=True)
    plain = msgspec.structs.replace(long, text="x" * SMALL), msgspec.structs.replace(long, kernel=False)

    def has_fewer(compiler: Compiler, unit: Unit) -> bool:
        return set(STRAIGHT) <= set(_unit_flags(unit, _CompilerCall(compiler, GENERIC, {}, (), 1.0, None)))

    assert has_fewer(gcc, long) and not has_fewer(clang, long)
    assert not any(has_fewer(gcc, u) for u in (*plain, msgspec.structs.replace(long, light=True)))


def test_zig_spells_the_cpu_its_own_way() -> None:
    import msgspec

    zig = msgspec.structs.replace(find_compiler(), kind="zig")
    assert "-mcpu=x86_64_v4" in compile_flags(zig, PRESETS["cpu:avx512"])


def test_a_missing_compiler_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler-here")
    with pytest.raises(TatamiError) as error:
        find_compiler()
    assert kind_of(error) == "CompilerMissing"
    assert "tatami[zig]" in error.value.diagnostics[0].suggestion


def test_a_compiler_that_fails_is_reported_with_command_and_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", script(tmp_path, 'case "$1" in --version) echo fake 1.0;; *) echo out of luck >&2; exit 3;; esac'))
    compiler = find_compiler()
    with pytest.raises(TatamiError) as error:
        run_compiler(compiler, ("-c", "x.c"), cwd=tmp_path)
    assert kind_of(error) == "CompilerFailed"
    why = error.value.diagnostics[0].why
    assert "fakecc -c x.c" in why
    assert "exited with 3" in why
    assert "out of luck" in why


def test_a_compiler_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    command = script(tmp_path, f"(sleep 1; touch {marker}) &\nsleep 30")
    begin = time.monotonic()
    done = run_command((command,), timeout=0.3)
    assert done.returncode is None
    assert time.monotonic() - begin < 5
    time.sleep(1.1)
    assert not marker.exists()


def test_an_interrupt_leaves_no_child(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    cc = script(tmp_path, f'case "$1" in --version) echo fake 3.0;; *) echo $$ > {pid}; exec sleep 60;; esac')
    text = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored\n"
        "from tatami.core.target import PRESETS\n"
        "from tatami.runtime.building.cache import Cache\n"
        "from tatami.runtime.building.objects import Unit, build\n"
        "build((Unit('int a;'), Unit('int b;')), PRESETS['cpu:generic'], cache=Cache(None))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "CC": cc}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not pid.exists() or not pid.read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child = int(pid.read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(10) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_flood_of_output_keeps_only_its_end(tmp_path: Path) -> None:
    done = run_command((script(tmp_path, "head -c 20000000 /dev/zero; echo; echo last words; exit 1"),), timeout=30)
    assert done.returncode == 1
    assert len(done.tail) <= 8192
    assert "last words" in done.tail


def test_a_command_that_cannot_start_is_no_traceback(tmp_path: Path) -> None:
    assert run_command((str(tmp_path / "nothing"),), timeout=1).returncode == 127


def test_a_crash_names_the_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", script(tmp_path, 'case "$1" in --version) echo fake 2.0;; *) kill -SEGV $$;; esac'))
    with pytest.raises(TatamiError, match="SIGSEGV"):
        run_compiler(find_compiler(), (), cwd=tmp_path)


def test_the_environment_of_the_process_is_left_alone(tmp_path: Path) -> None:
    before = dict(os.environ)
    run_command((script(tmp_path, "exit 0"),), timeout=5)
    assert dict(os.environ) == before
