"""A target that is a document, or stands in one, is a machine that there may be, or one diagnostic per field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError
from tatami.core.faults.target_check import GREATEST, check_target
from tatami.core.files.container import Container, contained
from tatami.core.target import PRESETS
from tatami.targets import resolve_target


def graph() -> tt.Graph:
    g = tt.Graph("g")
    g.output("y", g.input("x", ("N", 4), tt.fp32).softmax(1))
    return g


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_machines(name: str) -> None:
    assert check_target(PRESETS[name]) == PRESETS[name]


BAD: list[tuple[str, Any]] = [
    ("l2_bytes", 10**30), ("l2_bytes", 1e30), ("l1_bytes", -1), ("l3_bytes", 0), ("cores", True), ("cores", 1 << 20),
    ("vector_bytes", 24), ("vector_bytes", 1 << 12), ("vector_registers", 0), ("flops_fp32", 0.0), ("flops_fp32", 1e300),
    ("bandwidth", -1.0), ("launch_seconds", 1e9), ("name", "../../x"), ("name", ""), ("name", 'a"; system("x")'),
    ("arch", "sm_80 -fplugin=x"), ("features", ["a\nb"]), ("features", ["x"] * 100), ("isa", "avx9"), ("kind", "tpu"),
    ("more", 1),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_number_that_no_machine_has_is_one_diagnostic(field: str, value: Any, tmp_path: Path) -> None:
    document = {**to_builtins(PRESETS["cpu:avx2"]), field: value}
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(document))
    for target in (document, str(path)):
        with pytest.raises(TatamiError) as error:
            tt.compile(graph(), target=target)
        (d,) = error.value.diagnostics
        assert d.kind in ("UnknownTarget", "InvalidDocument") and field in f"{d.at} {d.why}", d


def test_a_target_of_python_is_checked_too() -> None:
    with pytest.raises(TatamiError, match=r"target\.l2_bytes"):
        resolve_target(msgspec.structs.replace(PRESETS["cpu:avx2"], l2_bytes=10**30))


@pytest.mark.parametrize(("field", "value"), BAD[:4] + BAD[13:17])
def test_a_target_in_a_saved_program_is_checked(field: str, value: Any, tmp_path: Path) -> None:
    path = tt.compile(graph()).save(tmp_path / "p.tatami")
    box = Container(path.read_bytes(), "p")
    manifest = {**box.manifest, "target": {**box.manifest["target"], field: value}}
    forged = tmp_path / "forged.tatami"
    forged.write_bytes(b"".join(map(bytes, contained(manifest, {n: bytes(box[n]) for n in box._places}))))
    for trust in (False, True):
        with pytest.raises(TatamiError) as error:
            tt.load(forged, trust=trust)
        assert len(error.value.diagnostics) == 1


def test_blocks_that_were_swapped_are_one_diagnostic(tmp_path: Path) -> None:
    g = graph()
    g.output("z", g.input("w", ("N", 4), tt.fp32) @ g.constant(np.ones((4, 1), np.float32)))
    path = tt.compile(g).save(tmp_path / "p.tatami")
    box = Container(path.read_bytes(), "p")
    names = [n for n in box._places if n != "program.so"]
    for k, name in enumerate(names):
        blocks = {n: bytes(box[n]) for n in box._places}
        other = names[(k + 1) % len(names)]
        blocks[name], blocks[other] = blocks[other], blocks[name]
        forged = tmp_path / "forged.tatami"
        forged.write_bytes(b"".join(map(bytes, contained(box.manifest, blocks))))
        with pytest.raises(TatamiError) as error:
            tt.load(forged, trust=True)
        assert len(error.value.diagnostics) == 1 and error.value.diagnostics[0].kind != "InternalError", name


def test_every_number_has_a_limit() -> None:
    numbers = {f.name for f in msgspec.structs.fields(tt.Target) if f.type in (int, float)}
    assert numbers == set(GREATEST)
