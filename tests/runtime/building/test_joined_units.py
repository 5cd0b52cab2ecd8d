"""Kernels that one run of the compiler takes together: each keeps the names, types and macros that it defines for itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.core.target import PRESETS
from tatami.runtime.building import objects
from tatami.runtime.building.cache import Cache
from tatami.runtime.building.joined_units import EARLY, LEAST_RUNS, SMALL, TOGETHER, Runs, joined_text, may_join
from tatami.runtime.building.objects import Unit, build, load
from tatami.storage.dump import write_dump

GENERIC = PRESETS["cpu:generic"]
EXPORT = '__attribute__((visibility("default"))) '

TWICE = f"""#include <stdint.h>
#include <string.h>
typedef int32_t few __attribute__((vector_size(16)));
typedef int32_t T;
struct frame {{ T x; }};
static inline T t_change(T x) {{ return x * 2; }}
#if 1
#define FUSED
#endif
static __attribute__((noinline)) T chunk(struct frame f) {{ few v = {{f.x}}; return t_change(v[0]); }}
{EXPORT}int twice(int x) {{ return (int)chunk((struct frame){{x}}); }}
"""
HALF = f"""#include <math.h>
typedef double few __attribute__((vector_size(16)));
typedef double T;
struct frame {{ T low, x; }};
#ifdef FUSED
#error the macro of another unit
#endif
static inline T t_change(T x) {{ return floor(x / 2); }}
static T chunk(const struct frame* f) {{ few v = {{f->low, f->x}}; return t_change(v[1]); }}
{EXPORT}int half(int x) {{ const struct frame f = {{1, x}}; return (int)chunk(&f); }}
"""


def test_units_keep_what_they_define_for_themselves() -> None:
    kernels = [Unit(t, kernel=True) for t in (TWICE, HALF)]
    others = [Unit(f"int other{i}(void) {{ return {i}; /* {'-' * 300} */ }}\n", kernel=True) for i in range(2 * LEAST_RUNS)]
    library = load(build([*others, *kernels], GENERIC, cache=Cache(None)))
    assert (library.twice(21), library.half(85)) == (42, 42)


def test_names_are_what_keeps_them_apart() -> None:
    """The same files without names of their own are not C."""
    text = joined_text(["a.c", "b.c"], [TWICE, HALF])
    includes = [line for line in text.splitlines() if line.startswith("#include")]
    files = {"a.c": TWICE, "b.c": HALF}
    good = Unit(text + "int whole(void) { return 0; }\n")
    assert load(build([good], GENERIC, headers=files, cache=Cache(None))).half(9) == 4
    with pytest.raises(tt.TatamiError, match=r"redefinition|conflicting"):
        build([Unit("\n".join(includes) + "\n")], GENERIC, headers=files, cache=Cache(None))


def runs(texts: list[str], kinds: list[int | None], least: int = LEAST_RUNS) -> tuple[list[tuple[int, ...]], int]:
    """All runs, and the number of units after which the first of several units started."""
    made, found, first = Runs(least), [], len(texts)
    for i, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        started = made.add(i, text, kind)
        first = min(first, i) if any(len(run) > 1 for run in started) else first
        found += started
    return found + made.rest(), first


def test_runs_take_small_units_of_one_kind() -> None:
    texts = ["x" * 1000] * 100
    found, first = runs(texts, [k % 2 if k < 90 else None for k in range(100)])
    assert sorted(i for run in found for i in run) == list(range(100))
    assert all(len({i % 2 for i in run}) == 1 for run in found if len(run) > 1)
    assert all(len(run) == 1 for run in found if run[0] >= 90)
    assert LEAST_RUNS // 2 <= len([run for run in found if run[0] < 90]) <= 2 * LEAST_RUNS
    assert first < 50
    many, first = runs(["x" * 5000] * 300, [0] * 300)
    assert all(sum(5000 for _ in run) <= TOGETHER for run in many) and 25 <= len(many) <= 40
    assert 5000 * (first + 1) >= EARLY > 5000 * first
    assert runs(["x"] * 4, [0] * 4) == ([(0,), (1,), (2,), (3,)], 4)
    assert runs(["x"] * 4, [0, 1, None, 0], least=1) == ([(2,), (0, 3), (1,)], 4)
    assert runs(["x" * 1000] * 100, [0] * 100, least=1)[1] == 100, "nothing starts before the end"


def test_what_concerns_later_text_is_compiled_alone() -> None:
    assert may_join(TWICE)
    assert not may_join('#pragma GCC optimize ("schedule-insns")\n' + TWICE)
    assert not may_join(TWICE + " " * SMALL)


def many() -> tt.Graph:
    g = tt.Graph("many")
    x = y = g.input("x", ("N", 12), tt.fp32)
    for i in range(1, 25):
        table = g.constant(np.linspace(-1, 1, 12 * (12 + i), dtype=np.float32).reshape(12, 12 + i))
        y = ((y.exp() if i % 3 else y.tanh()) @ table).softmax(1)[:, :12] + x / float(i)
    g.output("y", y)
    return g


def test_a_program_of_many_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of many kinds give what the reference gives, from fewer runs of the compiler than there are kernels."""
    g = many()
    run = vars(objects)["run_compiler"]
    started: list[object] = []

    def counted(*arguments: object, **options: object) -> None:
        started.append(arguments)
        run(*arguments, **options)

    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(objects, "run_compiler", counted)
    f = tt.compile(g)
    assert len(started) < len(f.stages["c"].value.main.units) / 2
    sample = np.random.default_rng(0).standard_normal((7, 12)).astype(np.float32)
    wanted = tt.compile(g, target="reference")(x=sample)["y"]
    np.testing.assert_allclose(f(x=sample)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_kernels_are_compiled_while_others_are_lowered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler runs before all units are known; in a quick build it does not."""
    started = threading.Event()
    run, complete = vars(objects)["run_compiler"], objects.Units.complete
    kernels: list[bool] = []

    def seen(compiler: object, arguments: Sequence[str], **options: object) -> None:
        if any(a.startswith("t") and a.endswith(".c") for a in arguments):  # kernels, which are joined here
            started.set()
        run(compiler, arguments, **options)

    def completed(units: objects.Units, all_units: Sequence[Unit]) -> None:
        if any(u.kernel for u in all_units):
            kernels.append(started.wait(20 if not kernels else 0))
        complete(units, all_units)

    monkeypatch.setattr(objects, "run_compiler", seen)
    monkeypatch.setattr(objects.Units, "complete", completed)
    for quick in ("0", "1"):
        monkeypatch.setenv("TATAMI_QUICK_BUILD", quick)
        monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / quick))
        started.clear()
        f = tt.compile(many())
        assert f.compilation.stages.told is None
    assert kernels == [True, False]


def test_edited_text_is_compiled_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trusted document of the stage may define what no printer does; here each kernel has a table of its own."""
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))
    f = tt.compile(many())
    write_dump(tmp_path, f.compilation.values(), ("c",), f.compilation.target)
    (path,) = tmp_path.glob("*_c.json")
    document = json.loads(path.read_text())
    for k, unit in enumerate(document["programs"]["main"]["units"].values()):
        unit["text"].append(f"static __attribute__((unused)) const int table[] = {{{k}}};")
    path.write_text(json.dumps(document))
    sample = np.random.default_rng(0).standard_normal((7, 12)).astype(np.float32)
    assert np.array_equal(tt.compile(path, trust=True)(x=sample)["y"], f(x=sample)["y"])
