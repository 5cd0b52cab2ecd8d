"""A library without Python agrees with the reference, under sanitizers of addresses, arithmetic and threads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.bench.inputs import gather_inputs
from tatami.compilation import Compilation
from tatami.core.diagnostic import TatamiError
from tatami.core.dtype import DType
from tatami.core.target import Target
from tatami.deploy.library import make_library, needed_bits
from tatami.execution.arena import Planner
from tatami.execution.frames import Layouts
from tatami.frontend.graph import Graph
from tatami.runtime.building.compiler import find_compiler
from tatami.runtime.machine.host import FEATURES
from tatami.targets import resolve_target
from tests.deploy.built import THREADS, Built, Refused, build
from tests.runtime.test_compiled_models import F32, Arrays, floats, layers, looping

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = str(EXAMPLES / "digits" / "digits.onnx")


def agree(made: Built, model: Graph | str, *calls: Arrays, threads: int = 1) -> None:
    reference = tt.compile(model, target="reference")
    for inputs in calls:
        want = reference({n: a.copy() for n, a in inputs.items()})
        got = made.run(inputs, threads=threads, repeats=2)
        assert got.keys() == want.keys()
        for name, array in want.items():
            assert got[name].shape == array.shape and got[name].dtype == array.dtype
            np.testing.assert_allclose(got[name], array, rtol=1e-3, atol=1e-5)


def test_a_network_with_prepared_constants_at_several_sizes(tmp_path: Path) -> None:
    made = build(tmp_path, DIGITS)
    assert "setup" in made.compilation.stages["execution"].programs
    agree(made, DIGITS, *({"image": floats(n, 1, 8, 8)} for n in (0, 1, 5)))


def test_calls_and_branches(tmp_path: Path) -> None:
    g = Graph()
    for name, make in (("double", lambda t: (t + t).exp()), ("half", lambda t: t * 0.5)):
        sub = g.subgraph(name)
        sub.output("r", make(sub.input("d", ("K",), F32)))
    x, c = g.input("x", ("N",), F32), g.input("c", (), DType.bool)
    g.output("y", g.cond(c, "double", "half", g.call("double", x)))
    agree(build(tmp_path, g), g, *({"x": floats(n) / 8, "c": np.asarray(n > 3)} for n in (0, 1, 3, 9)))


def test_loops_with_carried_and_scanned_values(tmp_path: Path) -> None:
    g = looping(lambda g: 5)
    agree(build(tmp_path, g), g, {"x": floats(6), "w": floats(6, seed=1)}, {"x": floats(0), "w": floats(0)})


def test_a_state_is_updated_in_the_buffer_of_its_input(tmp_path: Path) -> None:
    g = Graph()
    s, x = g.input("s", ("B", 8), F32, mutability="mutable"), g.input("x", ("B", 8), F32)
    new = s * 0.5 + x
    g.update(s, new)
    g.output("y", (s @ new.permute(1, 0)).relu())
    agree(build(tmp_path, g), g, {"s": floats(3, 8), "x": floats(3, 8, seed=1)})


def test_sizes_are_solved_and_checked(tmp_path: Path) -> None:
    g = Graph()
    x, y = g.input("x", ("N", "2*H + 1"), F32), g.input("y", ("H", "N"), F32)
    g.output("z", y.permute(1, 0).sum(axis=1) + x.sum(axis=1))
    made = build(tmp_path, g)
    agree(made, g, {"x": floats(4, 7), "y": floats(3, 4)}, {"x": floats(1, 1), "y": floats(0, 1)})
    with pytest.raises(Refused, match=r"error 2: input 0 \(x\), axis 1: the size is 6 where 7 is needed"):
        made.run({"x": floats(4, 6), "y": floats(3, 4)})
    with pytest.raises(Refused, match=r"error 2: input 1 \(y\), axis 1: the size is 5 where 4 is needed"):
        made.run({"x": floats(4, 7), "y": floats(3, 5)})


def test_a_size_that_a_multiple_decides(tmp_path: Path) -> None:
    g = Graph()
    g.output("y", g.input("x", ("3*M",), F32).reshape(("M", 3)).sum(axis=1))
    made = build(tmp_path, g)
    agree(made, g, {"x": floats(12)}, {"x": floats(0)})
    with pytest.raises(Refused, match=r"error 2: input 0 \(x\), axis 0: the size is 7, which is not 3\\?\*M for any size"):
        made.run({"x": floats(7)})


def test_products_of_sizes_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    g = Graph()
    x = g.input("x", ("N", 0), F32)
    y = g.input("y", ("M", 0), F32)
    g.output("z", x @ y.permute(1, 0))
    made = build(tmp_path, g)
    assert made.run({"x": np.zeros((3, 0), np.float32), "y": np.zeros((2, 0), np.float32)})["z"].shape == (3, 2)
    huge = np.zeros((1 << 47, 0), np.float32)
    with pytest.raises(Refused, match="error 2: "):
        made.run({"x": huge, "y": huge})


def test_an_index_outside_its_data_is_told_with_the_node(tmp_path: Path) -> None:
    g = Graph()
    x, i = g.input("x", ("N", 3), F32), g.input("i", ("M",), DType.i64)
    g.output("y", x.take(i, 0) * 2.0)
    made = build(tmp_path, g)
    agree(made, g, {"x": floats(5, 3), "i": np.array([1, 4, -1])})
    with pytest.raises(Refused, match=r"error 4: .*an index points outside its data"):
        made.run({"x": floats(5, 3), "i": np.array([7])})


def test_threads_share_a_call_and_callers_share_a_model(tmp_path: Path) -> None:
    g = layers()
    made = build(tmp_path, g, THREADS)
    inputs = {"x": floats(64, 32)}
    want = tt.compile(g, target="reference")(inputs)["y"]
    np.testing.assert_allclose(made.run(inputs, threads=3, repeats=6, callers=4)["y"], want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("damage", [b"", b"x", b"flip"], ids=["cut", "other", "digest"])
def test_constants_of_another_model_are_refused(damage: bytes, tmp_path: Path) -> None:
    made = build(tmp_path, layers(), ())
    file = tmp_path / "constants.bin"
    data = bytearray(file.read_bytes())
    if damage == b"":
        del data[-1]
    elif damage == b"x":
        data = bytearray(b"x")
    else:
        data[40] ^= 1
    file.write_bytes(data)
    with pytest.raises(Refused, match=r"error 3: constants\.bin: "):
        made.run({"x": floats(1, 32)})
    file.unlink()
    with pytest.raises(Refused, match=r"error 3: constants\.bin: cannot be opened"):
        made.run({"x": floats(1, 32)})


def test_names_of_a_user_are_strings_only(tmp_path: Path) -> None:
    hostile = 'y"); system("touch x"); /* ??/\n%s%n\\'
    g = Graph()
    g.output(hostile, g.input('in"\\', ("N",), F32) * 2.0)
    made = build(tmp_path, g)
    texts = "".join(p.read_text() for p in tmp_path.glob("u*.c"))
    assert 'system("touch' not in texts
    agree(made, g, {'in"\\': floats(3)})
    assert not (tmp_path / "x").exists()


def test_names_that_c_cannot_hold_are_refused() -> None:
    """Two of them could be one name in the library."""
    g = Graph()
    g.output("y", g.input("a\0b", ("N",), F32) * 2.0)
    with pytest.raises(TatamiError, match=r"E1802 .*names of inputs or outputs that C cannot hold"):
        make_library(prepare(g, target="cpu:generic"))


@pytest.mark.parametrize("name", ["power_iteration", "search", "kv_cache"])
def test_programs_of_the_language_give_the_same_bits(name: str, tmp_path: Path) -> None:
    path = str(EXAMPLES / "harp" / f"{name}.harp")
    f = tt.compile(path, target="cpu:generic")
    arrays, bound = gather_inputs(f.signature, f.arguments, (), {})
    f.sizes.update(bound)
    want = f({n: a.copy() for n, a in arrays.items()})
    got = build(tmp_path, path).run(arrays, threads=2)
    assert got.keys() == want.keys() and all(np.array_equal(got[n], a) for n, a in want.items())


def test_the_arena_is_no_larger_than_the_one_that_python_plans(tmp_path: Path) -> None:
    made = build(tmp_path, DIGITS, ())
    planner = Planner(Layouts(made.compilation.stages["execution"]), 1)
    text = '#include <stdio.h>\n#include <stdlib.h>\n#include "library.h"\n'
    text += "int main(void) { int64_t s[2] = {7, 1}, *o = calloc(4096, 8); printf("
    text += '"%lld", (long long)tatami_plan(tatami_described.main, s, o)); free(o); return 0; }\n'
    (tmp_path / "driver.c").write_text(text)
    sources = sorted(p.name for p in tmp_path.glob("*.c"))
    subprocess.run([*find_compiler().argv, "-w", *sources, "-lm", "-pthread", "-o", "plan"], cwd=tmp_path, check=True)
    done = subprocess.run(["./plan"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 1.1 * planner.plan("main", {"N": 7}).bytes


def test_a_library_asks_for_every_instruction_that_its_code_has() -> None:
    """AVX512-BF16 too: without it the first product would end the process."""
    for isa, feature in FEATURES:
        target = msgspec.structs.replace(resolve_target(f"cpu:{isa}"), features=(feature,))
        (*_, last) = needed_bits(compilation_for(target))
        assert plain(last.name) == plain(FEATURES[isa, feature])


def plain(name: str) -> str:
    """A name's letters and digits."""
    return "".join(c for c in name.lower() if c.isalnum())


def compilation_for(target: Target) -> Compilation:
    g = Graph()
    g.output("y", g.input("a", ("N",), F32) * 2.0)
    return prepare(g, target=target)


def test_a_library_has_the_depth_of_calls_that_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_CALL_DEPTH", "24")
    header = make_library(compilation_for(resolve_target("cpu:generic"))).headers["library.h"]
    assert "TATAMI_MOST_DEPTH = 24," in header
