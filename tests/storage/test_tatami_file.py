"""f.save and tt.load: the same program from one file; a file of anybody's is refused or right, never run unasked."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tatami as tt
from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.core.files.container import Container, contained
from tatami.core.target import PRESETS
from tatami.storage import tatami_file as module

X = np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5)


def layered() -> tt.Graph:
    g = tt.Graph("layered")
    x = g.input("x", ("B", 5), tt.fp32)
    w = g.constant(np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32))
    g.output("y", (x @ w).softmax(axis=1))
    return g


def looping() -> tt.Graph:
    g = tt.Graph("looping")
    body = g.subgraph("body")
    body.input("i", (), tt.i64)
    go, s = body.input("c", (), tt.bool), body.input("s", ("B", 5), tt.fp32)
    body.output("go", go)
    body.output("next", s * 0.5 + g_constant(body))
    g.output("y", g.loop(body, [g.input("x", ("B", 5), tt.fp32)], trip=3))
    return g


def g_constant(g: Any) -> Any:
    return g.constant(np.arange(5, dtype=np.float32)).expand(("B", 5))


def hosted() -> tt.Graph:
    """A size that data decide: a Python step between kernels."""
    g = tt.Graph("hosted")
    g.output("y", (g.input("x", ("B", 5), tt.fp32) > 0.0).nonzero())
    return g


def sixteen_bits() -> tt.Graph:
    g = tt.Graph("sixteen")
    x = g.input("x", ("B", 5), tt.fp32)
    g.output("y", x.cast(tt.bf16) * g.constant(np.ones((), np.float32)).cast(tt.bf16))
    return g


PROGRAMS: dict[str, Callable[[], tt.Graph]] = {f.__name__: f for f in (layered, looping, hosted, sixteen_bits)}


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_loaded_computes_the_same(name: str, trust: bool, tmp_path: Path) -> None:
    f = tt.compile(PROGRAMS[name]())
    g = tt.load(f.save(tmp_path / "m.tatami"), trust=trust)
    for x in (X, X[:1], X[:0]):
        (y,), (z,) = f(x=x).values(), g(x=x).values()
        assert y.dtype == z.dtype and y.tobytes() == z.tobytes()
    assert bool(g.compilation.observer.seconds) is not trust, "machine code that is trusted needs no stage"
    assert g.stages["c"].json == f.stages["c"].json


def test_a_saved_program_loads_without_a_compiler_and_without_a_cache(tmp_path: Path) -> None:
    tt.compile(layered()).save(tmp_path / "m.tatami")
    code = "import sys, numpy as np, tatami as tt; f = tt.load(sys.argv[1], trust=True); print(f(x=np.ones((3, 5), 'f4'))['y'].sum())"
    root = Path(__file__).parents[2]
    env = {**os.environ, "CC": "/nowhere/cc", "TATAMI_CACHE_DIR": str(tmp_path / "empty"), "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "m.tatami"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(3.0, abs=1e-4)


def test_decisions_and_sizes_are_saved(tmp_path: Path) -> None:
    f = tt.compile(layered(), sizes={"B": (1, 64, 128)}, decisions={"calls": {"": "call"}})
    g = tt.load(f.save(tmp_path / "m.tatami"))
    assert g.compilation.decisions == f.compilation.decisions and g.compilation.hints == {"B": 64}
    assert g.stages["plan"].json == f.stages["plan"].json


def test_the_reference_is_saved_as_documents(tmp_path: Path) -> None:
    f = tt.compile(layered(), target="reference")
    g = tt.load(f.save(tmp_path / "m.tatami"), trust=True)
    assert g(x=X)["y"].tobytes() == f(x=X)["y"].tobytes()


def test_a_program_for_another_cpu_is_compiled_for_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    f = tt.compile(layered())
    monkeypatch.setattr(f.compilation, "target", PRESETS["cpu:neon"])
    path = f.save(tmp_path / "m.tatami")
    monkeypatch.undo()
    g = tt.load(path, trust=True)
    assert g.compilation.target.isa != "neon" and np.allclose(g(x=X)["y"], f(x=X)["y"], rtol=1e-5)


def test_code_of_another_version_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tt.compile(layered()).save(tmp_path / "m.tatami")
    monkeypatch.setattr(module, "code_stamp", lambda: "another")
    g = tt.load(path, trust=True)
    assert g.compilation.observer.seconds and g(x=X)["y"].shape == (2, 40)


def test_every_command_takes_a_saved_program(tmp_path: Path) -> None:
    path = tt.compile(layered()).save(tmp_path / "m.tatami")
    for command in (["run", str(path), "-D", "B=2", "--check"], ["explain", str(path)], ["check", str(path)]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output


# -- files of anybody's ----------------------------------------------------------------------------


def rewritten(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> Path:
    """The file with blocks changed and all checksums right again."""
    container = Container(path.read_bytes(), path.name)
    manifest, blocks = container.manifest, {n: bytes(container[n]) for n in container._places}
    change(manifest, blocks)
    path.write_bytes(b"".join(contained(manifest, blocks)))
    return path


def test_machine_code_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    f = tt.compile(layered())
    path = f.save(tmp_path / "m.tatami")
    rewritten(path, lambda _, blocks: blocks.update({"program.so": b"\x7fELF" + bytes(200)}))
    assert tt.load(path)(x=X)["y"].tobytes() == f(x=X)["y"].tobytes()
    with pytest.raises(TatamiError, match="E1704 CompilerFailed"):
        tt.load(path, trust=True)


def test_a_body_that_a_user_wrote_needs_trust(tmp_path: Path) -> None:
    g = tt.Graph("own")
    x = g.input("x", ("N",), tt.fp32)
    body = "for (ridx0 = 0; ridx0 < shape0; ++ridx0) output[ridx0] = input0[ridx0];"
    y = g.kernel_body(body, x, outputs=[(tt.fp32, ("N",))], meaning=lambda a: a)
    g.output("y", y)
    path = tt.compile(g).save(tmp_path / "m.tatami")
    with pytest.raises(TatamiError, match="Untrusted"):
        tt.load(path)
    assert tt.load(path, trust=True)(x=X[0])["y"].tolist() == X[0].tolist()


def test_a_damaged_file_is_one_diagnostic_or_the_same_program(tmp_path: Path) -> None:
    f = tt.compile(layered())
    good = f.save(tmp_path / "m.tatami").read_bytes()
    expected, draw = f(x=X)["y"].tobytes(), random.Random(0)
    path = tmp_path / "bad.tatami"
    lengths = [0, 1, 20, 80, 100, len(good) // 2, len(good) - 1]
    places = [*range(0, 120, 7), *(draw.randrange(len(good)) for _ in range(60))]
    damaged = [good[:n] for n in lengths] + [
        good[:i] + bytes([good[i] ^ 1 << draw.randrange(8)]) + good[i + 1 :] for i in places
    ]
    refused = 0
    for data in damaged:
        path.write_bytes(data)
        try:
            assert tt.load(path, trust=True)(x=X)["y"].tobytes() == expected
        except TatamiError as error:
            refused += 1
            assert len(error.diagnostics) == 1
    assert refused > len(damaged) // 2


def edit(block: str, old: str, new: str) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    def change(_: dict[str, Any], blocks: dict[str, bytes]) -> None:
        assert old.encode() in blocks[block]
        blocks[block] = blocks[block].replace(old.encode(), new.encode())

    return change


def other_constant(_: dict[str, Any], blocks: dict[str, bytes]) -> None:
    name = next(n for n in blocks if n.startswith("constants/"))
    blocks[name] = bytes(len(blocks[name]))


@pytest.mark.parametrize(
    "change",
    [
        other_constant,
        edit("frontend.json", '"tatami":1', '"tatami":99'),
        edit("frontend.json", '"stage":"frontend"', '"stage":"tiny"'),
        edit("frontend.json", "constants/", "../../etc/"),
        lambda _, blocks: blocks.pop("frontend.json"),
        lambda _, blocks: blocks.update({"frontend.json": b"[" * 100_000}),
        lambda manifest, _: manifest.update(stages=[]),
        lambda manifest, _: manifest.update(target=5),
        lambda manifest, _: manifest.update(hints={"nobody": 5}),
        lambda manifest, _: manifest.pop("decisions"),
        lambda _, blocks: blocks.update({"program.json": b"{}"}),
        lambda _, blocks: blocks.pop("program.so"),
        lambda _, blocks: blocks.pop("runtime.so"),
    ],
)
def test_a_file_that_contradicts_itself_is_one_diagnostic(change: Any, tmp_path: Path) -> None:
    path = rewritten(tt.compile(layered()).save(tmp_path / "m.tatami"), change)
    with pytest.raises(TatamiError) as caught:
        tt.load(path, trust=True)
    assert len(caught.value.diagnostics) == 1


@pytest.mark.parametrize("place", [[-1, 4, ""], [1 << 62, 4, ""], [0, -1, ""], [0], "x", [0, 1, 2, 3]])
def test_blocks_outside_the_file_are_refused(place: Any, tmp_path: Path) -> None:
    import hashlib

    table = json.dumps({"manifest": {}, "blocks": {"a": place}}).encode()
    data = b"tatami file 1\n" + hashlib.sha256(table).hexdigest().encode() + len(table).to_bytes(8, "little") + table + b"abcd"
    with pytest.raises(TatamiError, match="E1605 InvalidDocument"):
        Container(data, "x.tatami")["a"]


@pytest.mark.parametrize("name", ["m.onnx", "m", "no/such/folder\0/m.tatami"])
def test_a_name_that_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TatamiError, match="E1702 FileUnwritable"):
        tt.compile(layered()).save(tmp_path / name)


@pytest.mark.parametrize("name", ["m.onnx", "missing.tatami", "."])
def test_what_is_no_saved_program_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TatamiError, match=r"UnknownFormat|FileUnreadable"):
        tt.load(tmp_path / name)
