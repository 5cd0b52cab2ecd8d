"""A program is found again by its content, and whatever is wrong with an entry only costs a compilation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.runtime.building import objects
from tatami.runtime.building.cache import default_cache
from tatami.storage import program_cache

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def model(weight: float = 2.0) -> tt.Graph:
    g = tt.Graph("m")
    x = g.input("x", ("B", 3), tt.fp32)
    w = g.constant(np.full((3, 4), weight, np.float32))
    g.output("y", (x @ w).relu() + 1.0)
    return g


def was_found(f: Any) -> bool:
    """True if no stage behind the given one was made."""
    return not f.compilation.observer.seconds


def result(f: Any) -> np.ndarray:
    y: np.ndarray = f(x=X)["y"]
    return y


def test_a_second_compilation_makes_no_stage_and_computes_the_same() -> None:
    first, second = tt.compile(model()), tt.compile(model())
    assert not was_found(first) and was_found(second)
    assert np.array_equal(result(first), np.maximum(X @ np.full((3, 4), 2, np.float32), 0) + 1)
    assert result(second).tobytes() == result(first).tobytes()
    assert result(second)[:1].tobytes() == second(x=X[:1])["y"].tobytes()


def test_the_stages_of_a_program_that_was_found_are_made_when_asked_for() -> None:
    first, second = tt.compile(model()), tt.compile(model())
    assert was_found(second)
    for name in ("region", "execution", "c"):
        assert second.stages[name].json == first.stages[name].json
    assert second.explain() == first.explain()


@pytest.mark.parametrize(
    "other",
    [
        lambda: tt.compile(model(weight=3.0)),
        lambda: tt.compile(model(), target="cpu:generic"),
        lambda: tt.compile(model(), sizes={"B": 2}),
        lambda: tt.compile(model(), sizes={"B": (1, 64, 128)}),
        lambda: tt.compile(model(), precision="bf16"),
        lambda: tt.compile(model(), decisions={"calls": {"": "call"}}),
    ],
)
def test_what_decides_the_program_is_part_of_its_key(other: Callable[[], Any]) -> None:
    tt.compile(model())
    assert not was_found(other())
    assert was_found(other())


def test_a_change_of_tatami_itself_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    tt.compile(model())
    monkeypatch.setattr(program_cache, "own_files", lambda: "another version")
    assert not was_found(tt.compile(model()))


def entries(cache: Path) -> list[Path]:
    return sorted(p for p in cache.rglob("*") if p.is_file())


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]


@pytest.mark.parametrize("damage", [truncated, flipped, lambda data: b""])
def test_damaged_entries_are_made_again(cache: Path, damage: Callable[[bytes], bytes]) -> None:
    expected = result(tt.compile(model()))
    for path in entries(cache):
        path.write_bytes(damage(path.read_bytes()))
    again = tt.compile(model())
    assert not was_found(again) and np.array_equal(result(again), expected)
    assert was_found(tt.compile(model()))


def test_an_entry_without_its_shared_object_is_a_miss(cache: Path) -> None:
    expected = result(tt.compile(model()))
    for path in entries(cache):
        if b"ELF" in path.read_bytes()[:400]:
            path.unlink()
    again = tt.compile(model())
    assert not was_found(again) and np.array_equal(result(again), expected)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"programs": {"main": 1}, "constants": {}, "library": ""}', b"\xff"])
def test_an_entry_of_another_form_is_a_miss(text: bytes) -> None:
    f = tt.compile(model())
    default_cache().put(program_cache.program_key(f.compilation), text)
    again = tt.compile(model())
    assert not was_found(again) and np.array_equal(result(again), result(f))


def test_a_constant_made_on_the_way_is_in_the_entry() -> None:
    g = tt.Graph("folded")
    x = g.input("x", (3,), tt.fp32)
    g.output("y", x * g.constant(np.array([1, 2, 3], np.float32)) + g.iota((3,), 0, tt.i32).cast(tt.fp32))
    first, second = tt.compile(g), tt.compile(g)
    assert was_found(second)
    given = np.ones(3, np.float32)
    assert second(x=given)["y"].tolist() == first(x=given)["y"].tolist() == [1, 3, 5]


def test_a_fault_names_the_same_node() -> None:
    g = tt.Graph("lookup")
    table, index = g.input("table", (4, 2), tt.fp32), g.input("index", (3,), tt.i64)
    g.output("y", table[index])
    said = []
    for _ in range(2):
        f = tt.compile(g)
        with pytest.raises(TatamiError, match="E1804 IndexOutOfRange") as caught:
            f(table=np.zeros((4, 2), np.float32), index=np.array([0, 9, 1]))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_many_at_once_get_the_same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: results.append(result(tt.compile(model())))) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 6 and all(np.array_equal(r, results[0]) for r in results)
    monkeypatch.setattr(objects, "run_compiler", lambda *a, **k: pytest.fail("the C compiler ran"))
    assert was_found(tt.compile(model()))


def test_it_can_be_turned_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tt.compile(model())
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "0")
    assert not was_found(tt.compile(model()))


def test_a_program_with_a_size_longer_than_documents_may_have_is_compiled_and_saved(tmp_path: Path) -> None:
    g = tt.Graph("long")
    names = [f"{half}_{i}_of_a_size_with_{'quite' * 30}_a_long_name" for i in range(3) for half in ("first", "second")]
    sizes = tuple(f"{a} + {b}" for a, b in zip(names[::2], names[1::2]))
    g.output("y", -g.input("x", sizes, tt.fp32))
    f = tt.compile(g)
    assert any(len(str(b.elements)) > 4096 for b in f.compilation.stages["execution"].main.buffers)
    for function in (f, tt.load(f.save(tmp_path / "long.tatami"), trust=True)):
        function.sizes.update(dict.fromkeys(names, 1))
        assert np.array_equal(function(x=np.ones((2,) * 3, np.float32))["y"], np.full((2,) * 3, -1, np.float32))
