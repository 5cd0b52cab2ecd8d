import contextvars
import ctypes
import threading
from pathlib import Path

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS, Target
from tatami.runtime.building import objects
from tatami.runtime.building.apart import Apart, apart
from tatami.runtime.building.cache import Cache, open_cache
from tatami.runtime.building.compiler import Compiler
from tatami.runtime.building.objects import Unit, Units, build, build_keyed, load

GENERIC = PRESETS["cpu:generic"]
EXPORT = '__attribute__((visibility("default"))) '


def unit(value: int) -> Unit:
    return Unit(f"int part{value}(void) {{ return {value}; }}\n")


ENTRY = Unit(f"int part1(void); int part2(void);\n{EXPORT}int total(void) {{ return part1() + part2(); }}\n")


def test_units_are_linked_with_the_entry(tmp_path: Path) -> None:
    library = load(build((unit(1), unit(2), ENTRY, unit(1)), GENERIC, cache=Cache(None)))
    assert library.total() == 3


def test_a_second_build_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache(tmp_path / "c")
    first = build((unit(1), unit(2), ENTRY), GENERIC, cache=cache)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(objects, "run_compiler", refuse)
    assert build((unit(1), unit(2), ENTRY), GENERIC, cache=open_cache(tmp_path / "c")) == first


@pytest.mark.parametrize("offset", range(0, 100, 10))
def test_damaged_entries_are_made_again(tmp_path: Path, offset: int) -> None:
    cache = open_cache(tmp_path / "c")
    units = (Unit(f"{EXPORT}int answer(void) {{ return 42; }}\n"),)
    build(units, GENERIC, cache=cache)
    for path in (tmp_path / "c").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            path.write_bytes(data[: len(data) * offset // 100])
    assert load(build(units, GENERIC, cache=cache)).answer() == 42


def call(target: Target, compiler: Compiler, headers: dict[str, str], extra: tuple[str, ...] = ()) -> objects._CompilerCall:
    return objects._CompilerCall(compiler, target, headers, extra, 60.0, None)


def test_each_part_of_the_key_counts(tmp_path: Path) -> None:
    from tatami.runtime.building.compiler import find_compiler

    compiler = find_compiler()
    base = objects._unit_key(unit(1), call(GENERIC, compiler, {"a.h": "x"}, ()))
    others = {
        objects._unit_key(unit(2), call(GENERIC, compiler, {"a.h": "x"}, ())),
        objects._unit_key(Unit(unit(1).text, contract=True), call(GENERIC, compiler, {"a.h": "x"}, ())),
        objects._unit_key(unit(1), call(PRESETS["cpu:avx2"], compiler, {"a.h": "x"}, ())),
        objects._unit_key(unit(1), call(GENERIC, compiler, {"a.h": "y"}, ())),
        objects._unit_key(unit(1), call(GENERIC, compiler, {"a.h": "x"}, ("-g",))),
    }
    assert len(others) == 5
    assert base not in others


def test_wrong_text_names_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(TatamiError, match="CompilerFailed"):
        build((Unit("this is not C\n"),), GENERIC, cache=Cache(None))


def test_what_is_no_library_is_refused() -> None:
    with pytest.raises(TatamiError, match="cannot be loaded"):
        load(b"not an object")


def test_libraries_with_one_symbol_name_stay_apart() -> None:
    made = [load(build((Unit(f"{EXPORT}int who(void) {{ return {i}; }}\n"),), GENERIC, cache=Cache(None))) for i in range(3)]
    assert [library.who() for library in made] == [0, 1, 2]
    assert isinstance(made[0], ctypes.CDLL)


def test_each_part_of_the_link_counts() -> None:
    import msgspec

    from tatami.runtime.building.compiler import find_compiler

    compiler = find_compiler()
    keys = ["a" * 64, "b" * 64]
    plain = objects._link_flags((), ())
    base = objects._link_key(keys, compiler, plain)
    other = msgspec.structs.replace(compiler, fingerprint="other")
    others = {
        objects._link_key(["a" * 64, "c" * 64], compiler, plain),
        objects._link_key(keys[::-1], compiler, plain),
        objects._link_key(keys[:1], compiler, plain),
        objects._link_key(keys, other, plain),
        objects._link_key(keys, compiler, objects._link_flags((), ("-g",))),
    }
    assert len(others) == 5
    assert base not in others
    assert objects._link_key(list(keys), compiler, plain) == base


def test_a_unit_of_another_compiler_or_kind_is_another_unit() -> None:
    import msgspec

    from tatami.runtime.building.compiler import find_compiler

    compiler = find_compiler()
    base = objects._unit_key(unit(1), call(GENERIC, compiler, {"a.h": "x"}, ()))
    for changed in (
        msgspec.structs.replace(compiler, fingerprint="other"),
        msgspec.structs.replace(compiler, kind="gcc" if compiler.kind == "zig" else "zig"),
    ):
        assert objects._unit_key(unit(1), call(GENERIC, changed, {"a.h": "x"}, ())) != base
    assert objects._unit_key(unit(1), call(GENERIC, compiler, {"b.h": "x"}, ())) != base
    assert objects._unit_key(unit(1), call(GENERIC, compiler, {"a.h": "x", "b.h": ""}, ())) != base


@pytest.mark.parametrize("part", ["text", "header", "runtime", "fingerprint"])
def test_nothing_stale_is_loaded_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """The cache has the object of an earlier version; a change of any ingredient builds a new one."""
    import msgspec

    from tatami.runtime.building.compiler import find_compiler

    cache = open_cache(tmp_path / "c")
    compiler = find_compiler()
    text = f'#include "v.h"\n{EXPORT}int version(void) {{ return V; }}\n'
    assert load(build((Unit(text),), GENERIC, headers={"v.h": "#define V 1\n"}, cache=cache)).version() == 1
    compiled: list[str] = []
    run = vars(objects)["run_compiler"]

    def count(*arguments: object, **options: object) -> None:
        compiled.append("run")
        run(*arguments, **options)

    monkeypatch.setattr(objects, "run_compiler", count)
    units = [Unit(text)]
    headers, expected = {"v.h": "#define V 1\n"}, 1
    if part == "text":
        units = [Unit(text.replace("return V", "return V + 1"))]
        expected = 2
    elif part == "header":
        headers, expected = {"v.h": "#define V 2\n"}, 2
    elif part == "runtime":
        units.append(Unit("int tatami_more(void) { return 0; }\n"))
    else:
        compiler = msgspec.structs.replace(compiler, fingerprint="a newer one")
    assert load(build(units, GENERIC, headers=headers, cache=cache, compiler=compiler)).version() == expected
    assert compiled


def test_every_flipped_byte_of_every_entry_is_noticed(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "c")
    units = (Unit(f"{EXPORT}int answer(void) {{ return 42; }}\n"),)
    good = build(units, GENERIC, cache=cache)
    files = [p for p in (tmp_path / "c").rglob("*") if p.is_file()]
    assert len(files) == 2
    for path in files:
        data = path.read_bytes()
        key = path.parent.name + path.name
        for position in [*range(0, 150, 7), *range(150, len(data), max(1, len(data) // 60))]:
            torn = bytearray(data)
            torn[position] ^= 0x10
            path.write_bytes(torn)
            assert cache.get(key) is None
            path.write_bytes(data)
    for one, two in (files, files[::-1]):
        one.write_bytes(two.read_bytes())
    assert build(units, GENERIC, cache=cache) == good


def padded(name: str, value: int) -> Unit:
    """A kernel of 10,000 bytes."""
    return Unit(f"{EXPORT}int {name}(void) {{ return {value}; }}\n/* {'-' * 10_000} */\n", kernel=True)


def test_early_units_are_compiled_while_others_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last units are given when runs of the compiler for the first have ended; one early unit is not needed after all, and
    the units that were compiled together with it are in the library nevertheless."""
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TATAMI_QUICK_BUILD", raising=False)
    ended = threading.Event()
    run = vars(objects)["run_compiler"]

    def seen(*arguments: object, **options: object) -> None:
        run(*arguments, **options)
        ended.set()

    monkeypatch.setattr(objects, "run_compiler", seen)
    kernels = [padded(f"k{i}", i) for i in range(9)]
    made = Units()

    def meanwhile() -> None:
        for kernel in kernels[:8]:
            made.early(kernel)
        assert ended.wait(60), "nothing is compiled before all units are known"
        made.complete([*kernels[:2], *kernels[3:], ENTRY, unit(1), unit(2)])

    body, key = apart(lambda _: build_keyed(made, GENERIC), meanwhile)
    library = load(body)
    assert [getattr(library, f"k{i}")() for i in (0, 1, 3, 4, 5, 6, 7, 8)] == [0, 1, 3, 4, 5, 6, 7, 8]
    assert not hasattr(library, "k2") and library.total() == 3
    again = Units([*kernels[:2], *kernels[3:], ENTRY, unit(1), unit(2)])
    ended.clear()
    assert build_keyed(again, GENERIC) == (body, key), "the library is found by its units"
    assert not ended.is_set()


def test_an_error_while_units_are_made_ends_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TATAMI_QUICK_BUILD", raising=False)
    made = Units()
    slow = Unit("#include <unistd.h>\n" + "\n".join(f"double f{i}(double x) {{ return x * {i}; }}" for i in range(20_000)))
    stops: list[threading.Event] = []

    def meanwhile() -> None:
        made.early(slow)
        raise KeyError("the next unit")

    def work(seen: Apart) -> object:
        stops.append(seen.stop)
        return build_keyed(made, GENERIC)

    with pytest.raises(KeyError, match="the next unit"):
        apart(work, meanwhile)
    assert stops[0].is_set()
    assert not [t for t in threading.enumerate() if t.name == "tatami-apart"]


def test_a_fault_of_an_early_unit_is_told_once() -> None:
    made = Units()

    def meanwhile() -> None:
        made.early(Unit("this is not C\n"))
        made.complete([Unit("this is not C\n"), unit(1)])

    with pytest.raises(TatamiError, match="CompilerFailed"):
        apart(lambda _: build_keyed(made, GENERIC), meanwhile)


def test_an_early_unit_that_comes_twice_is_compiled_once() -> None:
    made = Units()
    for early in (unit(1), unit(2), unit(1)):
        made.early(early)
    made.complete([unit(1), unit(2)])
    stop = threading.Event()
    assert [made.next(stop) for _ in range(3)] == [unit(1), unit(2), (unit(1), unit(2))]


def test_a_library_that_fails_does_not_stop_another() -> None:
    """Inside of one work, as the library that stays is compiled in parallel with the first program."""

    def work(_: Apart) -> bytes:
        failed: list[BaseException] = []

        def other() -> None:
            try:
                build((Unit("this is not C\n"),), GENERIC, cache=Cache(None))
            except TatamiError as error:
                failed.append(error)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(other,))
        thread.start()
        thread.join()
        assert len(failed) == 1
        return build((unit(1), unit(2), ENTRY), GENERIC, cache=Cache(None))

    assert load(apart(work)).total() == 3
