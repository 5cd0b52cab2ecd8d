import ctypes
from pathlib import Path

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.runtime import objects
from tatami.runtime.cache import Cache, open_cache
from tatami.runtime.objects import Unit, build, load

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
    from tatami.runtime.compiler import find_compiler

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
