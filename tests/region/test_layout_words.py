"""Layouts, alignment, noalias and materialize of a Region document's MemRefs are obeyed or refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import tatami as tt
from tatami.api import Compilation, build, prepare
from tatami.c.check_launches import check_launches
from tatami.core.diagnostic import TatamiError
from tatami.core.module import Module
from tatami.core.signature import Input
from tatami.gpu.ir import Kernel
from tatami.runtime.arrays import take
from tatami.stages import show
from tests.rows.models import f16

DOCUMENT = json.loads((Path(__file__).parents[2] / "examples" / "spec" / "3-6.8.1-gemm-bias-relu.json").read_text())


def document(**memref: Any) -> dict[str, Any]:
    """The specification's Region of gemm, bias and relu with other words for B."""
    made = copy.deepcopy(DOCUMENT)
    made["region"]["inputs"][1]["memref"].update(memref)
    return made


REFUSED = [
    ({"layout": {"kind": "swizzled", "swizzle": "banana"}}, "swizzle 'banana' is none of xor32, xor64, xor128"),
    ({"layout": {"kind": "swizzled", "swizzle": "xor32", "vec_bytes": 4}}, "vec_bytes 4"),
    ({"layout": {"swizzle": "xor32", "vec_bytes": 16}}, "layout row_major has no swizzle"),
    ({"layout": {"kind": "row_major", "strides": [40, 1]}}, "nothing reads the field `$.strides`"),
    ({"layout": {"kind": "row_major", "blocks": [[1, 4]]}}, "layout row_major has no order, blocks or padding"),
    ({"layout": {"kind": "blocked", "order": [0, 0]}}, "order [0, 0] does not order 2 axes"),
    ({"layout": {"kind": "blocked", "blocks": [[2, 4]]}}, "block [2, 4]: an axis below 2"),
    ({"layout": "banana"}, "a layout is an object"),
    ({"alignment": 3}, "alignment 3"),
    ({"noalias": "no"}, "noalias 'no'"),
]


@pytest.mark.parametrize(("memref", "words"), REFUSED, ids=[w for _, w in REFUSED])
def test_a_word_without_a_meaning_is_refused(memref: dict[str, Any], words: str) -> None:
    with pytest.raises(TatamiError) as error:
        prepare(document(**memref))
    assert words in str(error.value)


def test_shared_memory_is_no_place_of_an_output() -> None:
    made = document()
    made["region"]["outputs"][0]["materialize"] = "smem"
    with pytest.raises(TatamiError, match="materialize 'smem'"):
        prepare(made)
    made = document()
    made["region"]["outputs"][0]["memref"]["layout"] = {"kind": "swizzled", "swizzle": "xor32"}
    with pytest.raises(TatamiError, match="output C is swizzled"):
        prepare(made)


def kernels(compilation: Compilation) -> list[Kernel]:
    return [k for k in compilation.stages["gpu"].main.kernels if isinstance(k, Kernel)]


@pytest.mark.parametrize(("word", "span"), [("xor32", 32), ("xor64", 64), ("xor128", 128)])
@pytest.mark.parametrize("target", ["emulated-sm80", "emulated-sm90"])
def test_a_swizzle_is_that_of_the_tile_in_shared_memory(word: str, span: int, target: str) -> None:
    made = document(layout={"kind": "swizzled", "swizzle": word, "vec_bytes": 16})
    compilation = prepare(made, target=target)
    found = {ring.swizzle for k in kernels(compilation) for ring in k.smem if ring.name == "smB"}
    assert found == {span} and list(compilation.warnings) == []
    x = {"A": f16(33, 40), "B": f16(40, 24), "bias": f16(24)}
    want = np.maximum(x["A"].astype(float) @ x["B"].astype(float) + x["bias"].astype(float), 0)
    assert np.abs(np.asarray(build(compilation, 1)(x)["C"], float) - want).max() < 1e-2


def test_a_swizzle_that_no_kernel_has_is_a_warning() -> None:
    compilation = prepare(document(layout={"kind": "swizzled", "swizzle": "xor32"}), target="cpu:avx2")
    assert compilation.stages["plan"]
    assert [d.code for d in compilation.warnings] == ["W2503"]


def test_buffers_that_may_overlap_are_not_declared_apart() -> None:
    for target in ("sm80", "sm90"):
        apart, alias = (show("cu", prepare(document(noalias=n), target=target).stages["cu"]) for n in (True, False))
        assert "* __restrict__ p1" in apart and "* __restrict__ p1" not in alias and "* p1" in alias


def test_an_argument_lies_at_a_multiple_of_its_alignment() -> None:
    memory = np.zeros(4 * 64 + 4096, np.uint8)
    start = -memory.ctypes.data % 4096 + 16
    odd = memory[start : start + 256].view(np.float32)
    for alignment, copied in ((0, False), (16, False), (32, True), (256, True), (4096, True)):
        taken = take(odd, Input("x", tt.fp32, (64,), alignment=alignment))  # type: ignore[arg-type]
        assert taken.copied == copied and taken.array.ctypes.data % max(1, alignment) == 0
        assert np.array_equal(taken.array, odd)


def test_alignment_is_part_of_the_signature() -> None:
    g = tt.Graph("g")
    g.output("y", g.input("x", (64,), tt.fp32, alignment=256) + 1.0)
    compilation = prepare(g)
    assert [compilation.stages[s].main.signature.inputs[0].alignment for s in ("frontend", "region", "execution")] == [256] * 3
    f = build(compilation, 1)
    for shift in range(4):
        x = np.arange(68, dtype=np.float32)[shift : shift + 64]
        for _ in range(3):
            assert np.array_equal(f(x=x)["y"], x + 1)
    signature = prepare(document()).stages["region"].main.signature
    assert signature.inputs[1].alignment == 128 and signature.outputs[0].alignment == 128
    for wrong in (3, -1, 8192):
        with pytest.raises(TatamiError, match=f"alignment {wrong}"):
            tt.Graph("h").input("x", (4,), tt.fp32, alignment=wrong)
        made = {"tensor": "x", "dtype": "fp32", "shape": [4], "alignment": wrong}
        uops = [{"id": "n1", "uop": "NEG", "dtype": "fp32", "src": ["x"]}]
        with pytest.raises(TatamiError):
            prepare({"signature": {"inputs": [made], "outputs": [{"tensor": "n1"}]}, "uops": uops})


def softened(alignment: int, target: str = "cpu:avx2") -> Compilation:
    g = tt.Graph("g")
    x = g.input("x", ("B", 64), tt.fp32, alignment=alignment)
    g.output("y", x * 2.0 + 1.0)
    g.output("z", x.softmax(1))
    return prepare(g, target=target)


def test_code_relies_on_a_promised_alignment() -> None:
    """The C compiler is told of the larger alignment, in the kernels that read the argument and in no others."""
    plain, aligned = (show("c", softened(n).stages["c"]) for n in (0, 64))
    assert "__builtin_assume_aligned" not in plain
    assert "p0 = __builtin_assume_aligned(buffers[0], 64)" in aligned and "p1 = __builtin_assume_aligned" not in aligned
    f = build(softened(64), 1)
    for shift in (0, 1, 2, 16):
        x = np.arange(16 + 3 * 64, dtype=np.float32)[shift : shift + 3 * 64].reshape(3, 64)
        assert np.array_equal(f(x=x)["y"], 2 * x + 1)


def test_equal_kernels_of_other_promises_are_two() -> None:
    g = tt.Graph("g")
    for k, n in enumerate((0, 64, 64)):
        g.output(f"y{k}", g.input(f"x{k}", (64,), tt.fp32, alignment=n).exp().sum(0))
    (program,) = prepare(g).stages["loop"].programs.values()
    assert sorted(p.alignment for k in program.kernels.values() for p in k.params if not p.written) in ([0, 64], [0, 64, 64])


def test_a_promise_that_nothing_keeps_is_refused() -> None:
    stages = softened(0).stages
    loop, execution = stages["loop"], stages["execution"]
    symbol, kernel = next(iter(loop.main.kernels.items()))
    params = (replace(kernel.params[0], alignment=64), *kernel.params[1:])
    edited = Module({"main": replace(loop.main, kernels={**loop.main.kernels, symbol: replace(kernel, params=params)})})
    (fault,) = check_launches(edited, execution)
    assert fault.code == "E1503" and "at multiples of 64 bytes, which nothing says of" in fault.why


def test_results_lie_at_multiples_of_their_alignment() -> None:
    made = document()
    made["region"]["outputs"][0]["memref"]["alignment"] = 1024
    x = {"A": f16(33, 40), "B": f16(40, 24), "bias": f16(24)}
    for f in (build(prepare(made), 1), build(prepare(made, target="emulated-sm80"), 1)):
        for _ in range(4):
            assert f(x)["C"].ctypes.data % 1024 == 0
        bound = f.bind(x)
        assert np.array_equal(bound()["C"], f(x)["C"]) and np.asarray(bound.outputs["C"]).ctypes.data % 1024 == 0
    made["region"]["outputs"][0]["memref"]["alignment"] = 8192
    with pytest.raises(TatamiError, match="alignment 8192"):
        prepare(made)
