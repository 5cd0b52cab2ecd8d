"""Operands of an epilogue are read as vectors where the layout proves them aligned, and one by one elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tatami as tt
from tatami.api import build, prepare
from tatami.compilation import Compilation
from tatami.core.algebra.visit import evaluate
from tatami.core.expr import var
from tatami.core.tensor import numpy_dtype
from tatami.decisions import Decisions
from tatami.frontend.graph_api.tensor import Tensor
from tatami.gpu.ir import Kernel
from tatami.gpu.proof.program import all_statements
from tatami.gpu.proof.verify_memory import check_memory
from tatami.gpu.statement_ir import Epilogue, StGlobalVec, WideRead
from tatami.gpu.streaming.axes import unconditional_reads
from tatami.plan.choose_gpu import measurable
from tatami.plan.ir import Sm90Mma
from tatami.plan.key import plan_key
from tatami.runtime.building.nvrtc import has_nvrtc
from tests.cu.machine_code import compiled, machine_code
from tests.cuda.programs import same_as_reference

Make = Callable[[tt.Graph, Tensor], Tensor]
ROWS = 72


def row(dtype: tt.DType = tt.fp16) -> Make:
    return lambda g, y: y + g.input("bias", (y.shape[-1],), dtype).expand(y.shape).cast(y.dtype)


def matrix(dtype: tt.DType = tt.fp16) -> Make:
    return lambda g, y: y + g.input("r", y.shape, dtype).cast(y.dtype)


def scaled(g: tt.Graph, y: Tensor) -> Tensor:
    return y * g.input("s", (y.shape[-1],), y.dtype).expand(y.shape) + g.input("r", y.shape, y.dtype)


def of_rows(g: tt.Graph, y: Tensor) -> Tensor:
    return y * g.input("s", (ROWS, 1), y.dtype).expand(y.shape)


def repeated(g: tt.Graph, y: Tensor) -> Tensor:
    """A residual of half the columns, twice side by side."""
    return y + g.input("r", (ROWS, y.shape[-1] // 2), y.dtype).tile((1, 2))


def chosen(g: tt.Graph, y: Tensor) -> Tensor:
    """A residual that some results do not read."""
    r = g.input("r", y.shape, y.dtype)
    return g.where(y > 0.0, r, y)


def product(make: Make, columns: int, dtype: tt.DType) -> tt.Graph:
    g = tt.Graph("g")
    y = g.input("a", (ROWS, 64), dtype) @ g.input("b", (64, columns), dtype)
    g.output("y", make(g, y))
    return g


def by_ring(plan: Any, *_: Any) -> Any:
    (edge,) = plan.local_edges
    return msgspec.structs.replace(plan, local_edges=(msgspec.structs.replace(edge, buffer="smem_ring", depth=2),))


def in_order(store: str) -> Callable[..., Any]:
    """The first plan whose operands are not exchanged, with this way of storing."""

    def change(*plans: Any) -> Any:
        first = next(p for p in plans if isinstance(p, Sm90Mma) and not p.swap_ab)
        return msgspec.structs.replace(first, epilogue_store=store, epilogue_load="direct")

    return change


def single(plan: Any, *_: Any) -> Any:
    return msgspec.structs.replace(plan, vectorize=msgspec.structs.replace(plan.vectorize, width=1))


def as_chosen(plan: Any, *_: Any) -> Any:
    return plan


CASES: dict[str, tuple[str, tt.DType, int, Make, Callable[..., Any], list[int]]] = {
    "pairs of 16 bits": ("emulated-sm80", tt.fp16, 136, scaled, as_chosen, [2, 2]),
    "pairs of bf16, 2 wide": ("emulated-sm80", tt.bf16, 134, row(tt.bf16), as_chosen, [2]),
    "pairs of fp32 at results of 16 bits": ("emulated-sm80", tt.fp16, 136, matrix(tt.fp32), as_chosen, [2]),
    "four of fp32": ("emulated-sm80", tt.fp32, 136, scaled, as_chosen, [4, 4]),
    "two of fp32": ("emulated-sm80", tt.fp32, 134, scaled, as_chosen, [2, 2]),
    "eight through shared memory": ("emulated-sm80", tt.fp16, 136, scaled, by_ring, [8, 8]),
    "two times four through shared memory": ("emulated-sm80", tt.fp16, 136, matrix(tt.fp32), by_ring, [4]),
    "chunks that TMA stores": ("emulated-sm90", tt.fp16, 136, scaled, in_order("stmatrix_tma"), []),
    "fragments of warpgroups": ("emulated-sm90", tt.fp16, 136, scaled, in_order("direct"), []),
    "columns twice": ("emulated-sm80", tt.fp16, 136, repeated, as_chosen, [2]),
    "fours of columns twice": ("emulated-sm80", tt.fp32, 136, repeated, as_chosen, [4]),
    "no even rows": ("emulated-sm80", tt.fp16, 135, scaled, as_chosen, []),
    "one for each row": ("emulated-sm80", tt.fp16, 136, of_rows, as_chosen, []),
    "not by every result": ("emulated-sm80", tt.fp16, 136, chosen, as_chosen, []),
    "single elements by the plan": ("emulated-sm80", tt.fp16, 136, scaled, single, []),
}
"""Target, dtype, columns, epilogue, changed fields of the plan, widths of the epilogue's vectors."""


def compilation_of(name: str) -> tuple[tt.Graph, Compilation]:
    target, dtype, columns, make, change, _ = CASES[name]
    g = product(make, columns, dtype)
    free = prepare(g, target=target)
    region, plan = free.stages["region"].main.body[0], free.stages["plan"].main.regions[0].choices[0].plan
    others = (c.plan for c in measurable(region, free.target, {}))
    decisions = Decisions(plans={plan_key(region, free.target): change(plan, *others)})
    return g, prepare(g, target=target, decisions=decisions)


def kernel_of(compilation: Compilation) -> Kernel:
    (kernel,) = (k for k in compilation.stages["gpu"].main.kernels if isinstance(k, Kernel))
    return kernel


def epilogue_of(kernel: Kernel) -> Epilogue:
    (found,) = (s for s in all_statements(kernel.body) if isinstance(s, Epilogue))
    return found


@pytest.mark.parametrize("name", CASES)
def test_operands_are_read_as_wide_as_their_layout_allows(name: str) -> None:
    """The numbers are those of the reference, without a report of the emulated GPU."""
    g, compilation = compilation_of(name)
    assert [w.width for w in epilogue_of(kernel_of(compilation)).wide] == CASES[name][-1]
    f = build(compilation, 1)
    rng = np.random.default_rng(0)
    given = {
        p.tensor: (rng.integers(-8, 9, [int(evaluate(s, {})) for s in p.shape]) / 8).astype(numpy_dtype(p.dtype))
        for p in f.signature.inputs
    }
    same_as_reference(f, g, 2e-2, **given)


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
@pytest.mark.parametrize(
    ("name", "loads"),
    [
        ("pairs of 16 bits", {"LDG.E.CONSTANT"}),
        ("four of fp32", {"LDG.E.128.CONSTANT"}),
        ("eight through shared memory", {"LDG.E.128.CONSTANT"}),
    ],
)
def test_loads_in_machine_code(name: str, loads: set[str], tmp_path: Path) -> None:
    """There are no loads of single elements of 16 bits (LDG.E.U16) and none of single fp32."""
    _, compilation = compilation_of(name)
    source = compilation.stages["cu"].main
    (unit,) = source.units
    counts = machine_code(compiled(unit, source.headers), tmp_path)
    assert {op for op in counts if op.startswith("LDG.E")} == loads


N = var("n")
FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "one element": ("pairs of 16 bits", {"width": 1}, "1 elements of p2 at once"),
    "3 elements": ("pairs of 16 bits", {"width": 3}, "3 elements of p2 at once"),
    "more than the columns of a thread": ("pairs of 16 bits", {"width": 4}, "4 elements of p2 at once; a thread has 2 columns"),
    "more than the columns of a thread of fma": ("four of fp32", {"width": 8}, "8 elements of p2 at once; a thread has 4 columns"),
    "more than an access": ("two times four through shared memory", {"width": 8}, "8 elements of p2 at once; a thread has 8 columns"),
    "every second element": ("pairs of 16 bits", {"index": N * 2}, "which no result is made of"),
    "another tensor": ("pairs of 16 bits", {"param": "p0"}, "which no result is made of"),
}  # fmt: skip


def with_epilogue(kernel: Kernel, **fields: Any) -> Kernel:
    body = tuple(msgspec.structs.replace(s, **fields) if isinstance(s, Epilogue) else s for s in kernel.body)
    return msgspec.structs.replace(kernel, body=body)


def with_stores(kernel: Kernel, *widths: int) -> Kernel:
    """The kernel with each of its stores in these widths one after the other."""
    body: list[Any] = []
    for s in kernel.body:
        body += [msgspec.structs.replace(s, width=w) for w in widths] if isinstance(s, StGlobalVec) else [s]
    return msgspec.structs.replace(kernel, body=tuple(body))


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[0] == "emulated-sm80"])
def test_vectors_of_lowering_are_accepted(name: str) -> None:
    assert check_memory(kernel_of(compilation_of(name)[1])) == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_vector_that_is_none_is_refused(name: str) -> None:
    case, changes, why = FAULTS[name]
    kernel = kernel_of(compilation_of(case)[1])
    first, *others = epilogue_of(kernel).wide
    (fault,) = check_memory(with_epilogue(kernel, wide=(msgspec.structs.replace(first, **changes), *others)))
    assert why in fault.why


def test_a_vector_is_read_once_and_of_a_parameter() -> None:
    kernel = kernel_of(compilation_of("pairs of 16 bits")[1])
    wide = epilogue_of(kernel).wide
    assert [d.why for d in check_memory(with_epilogue(kernel, wide=(*wide, wide[0])))] == ["a vector is read twice"]
    params = tuple(p for p in kernel.params if p.name != wide[0].param)
    why = f"a vector of {wide[0].param}[{wide[0].index}], which no result is made of"
    assert why in [d.why for d in check_memory(msgspec.structs.replace(kernel, params=params))]


def test_columns_of_a_thread_behind_shared_memory_are_those_of_its_widest_store() -> None:
    ring, pairs = (kernel_of(compilation_of(n)[1]) for n in ("eight through shared memory", "pairs of 16 bits"))
    assert (
        check_memory(with_stores(ring, 1, 8))
        == check_memory(with_stores(ring, 8, 1))
        == check_memory(with_stores(pairs, 1))
        == []
    )
    for widths, columns in (((4,), 4), ((), 1)):
        said = {d.why.split("; ")[1].split(",")[0] for d in check_memory(with_stores(ring, *widths))}
        assert said == {f"a thread has {columns} columns"}


def test_a_column_is_no_vector() -> None:
    """An operand that each result reads at every second place is not a vector, even where the kernel says so."""
    kernel = kernel_of(compilation_of("one for each row")[1])
    (read,) = (r for let in epilogue_of(kernel).ops for r in unconditional_reads(let.expr, {}))
    wide = (WideRead(read.tensor, read.map[0], 2),)
    (fault,) = check_memory(with_epilogue(kernel, wide=wide))
    assert "not neighbours in memory" in fault.why
