import ctypes
from pathlib import Path

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.runtime.building import objects
from tatami.runtime.building.cache import Cache, open_cache
from tatami.runtime.building.objects import Unit, build, load

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


def test_each_part_of_the_key_counts(tmp_path: Path) -> None:
    from tatami.runtime.building.compiler import find_compiler

    compiler = find_compiler()
    base = objects._unit_key(unit(1), GENERIC, compiler, {"a.h": "x"}, ())
    others = {
        objects._unit_key(unit(2), GENERIC, compiler, {"a.h": "x"}, ()),
        objects._unit_key(Unit(unit(1).text, contract=True), GENERIC, compiler, {"a.h": "x"}, ()),
        objects._unit_key(unit(1), PRESETS["cpu:avx2"], compiler, {"a.h": "x"}, ()),
        objects._unit_key(unit(1), GENERIC, compiler, {"a.h": "y"}, ()),
        objects._unit_key(unit(1), GENERIC, compiler, {"a.h": "x"}, ("-g",)),
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
    base = objects._unit_key(unit(1), GENERIC, compiler, {"a.h": "x"}, ())
    for changed in (
        msgspec.structs.replace(compiler, fingerprint="other"),
        msgspec.structs.replace(compiler, kind="gcc" if compiler.kind == "zig" else "zig"),
    ):
        assert objects._unit_key(unit(1), GENERIC, changed, {"a.h": "x"}, ()) != base
    assert objects._unit_key(unit(1), GENERIC, compiler, {"b.h": "x"}, ()) != base
    assert objects._unit_key(unit(1), GENERIC, compiler, {"a.h": "x", "b.h": ""}, ()) != base


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
