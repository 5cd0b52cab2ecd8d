"""Outputs that may share the memory of an input: those that the statements of a kernel allow, and no others."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import Expr, expr, minimum, var
from tatami.loop.ir import Assign, BufferParam, Const, Declare, For, IndexOf, Load, Op, Parallel, Pointer, Reg, Stmt, Store
from tatami.loop.ir import Call as CallFunction
from tatami.loop.passes.in_place import in_place
from tatami.loop.passes.run_writes import MOST_RUNS
from tatami.loop.verify import verify_kernel
from tests.loop.compiled import kernel_of
from tests.loop.zoo import ZOO

F32 = DType.fp32
PARAMS = (BufferParam("p0", F32), BufferParam("p1", F32, written=True))
x, y, i = var("x"), var("y"), var("i")


def copied(to: Expr, source: Expr | None = None, lanes: int = 1) -> Store:
    """p1[to] = -p0[source], one vector."""
    return Store("p1", to, Op("neg", (Load("p0", to if source is None else source, F32, lanes),)))


def along(*body: Stmt, stop: int = 64, step: int = 1) -> For:
    return For("x", expr(0), expr(stop), body, step)


def index(value: Expr) -> Declare:
    return Declare(Reg("i", DType.i64), IndexOf(value, DType.i64), integer=True)


SAFE: dict[str, tuple[Stmt, ...]] = {
    "vectors": (along(copied(x, lanes=16), step=16),),
    "vectors and the rest": (along(copied(x, lanes=16), stop=48, step=16), For("x", expr(48), expr(61), (copied(x),))),
    "threads and rows": (Parallel("y", expr(3), expr(1), (along(copied(x + 64 * y, lanes=16), step=16),)),),
    "balanced parts": (Parallel("y", expr(3), expr(1), (index((10 * y) // 3), For("x", i, (10 * y + 10) // 3, (copied(x),)))),),
    "tiles": (along(For("y", expr(0), expr(8), (copied(x + 8 * y),)), stop=8),),
    "the last vector is cut": (
        along(Store("p1", x, Load("p0", x, F32, 16, minimum(expr(16), 61 - x)), minimum(expr(16), 61 - x)), stop=61, step=16),
    ),
    "read into a register": (along(Declare(Reg("v", F32), Load("p0", x, F32)), Store("p1", x, Reg("v", F32))),),
}
UNSAFE: dict[str, tuple[Stmt, ...]] = {
    "the neighbour is read": (along(copied(x, x + 1)),),
    "turned around": (along(copied(x, 63 - x)),),
    "vectors overlap": (along(copied(x, lanes=16), step=16), copied(expr(50), lanes=16)),
    "rows overlap": (Parallel("y", expr(3), expr(1), (along(copied(x + 60 * y)),)),),
    "gone over twice": (along(Declare(Reg("v", F32), Load("p0", x, F32))), along(copied(x))),
    "written before it is read": (along(Store("p1", x, Const(0, F32)), Declare(Reg("v", F32), Load("p0", x, F32))),),
    "a routine reads it": (along(copied(x)), CallFunction("f", (Pointer("p0", expr(0)),))),
    "the output is read": (along(copied(x)), Declare(Reg("v", F32), Load("p1", expr(0), F32))),
    "every index twice": (along(copied(x // 2)),),
    "an index that moves": (
        index(expr(0)),
        along(copied(i), Assign(Reg("i", DType.i64), IndexOf(i + 1, DType.i64))),
    ),
    "too many runs": (For("y", expr(0), expr(MOST_RUNS + 1), (along(copied(x + 64 * y)),)),),
}


@pytest.mark.parametrize("name", SAFE)
def test_what_is_read_only_where_it_is_written_may_share_memory(name: str) -> None:
    assert in_place(PARAMS, SAFE[name]) == ((0, 1),)


@pytest.mark.parametrize("name", UNSAFE)
def test_what_may_be_read_later_may_not(name: str) -> None:
    assert in_place(PARAMS, UNSAFE[name]) == ()


def test_elements_of_other_sizes_and_unknown_sizes_stay_apart() -> None:
    body = SAFE["vectors"]
    assert in_place((BufferParam("p0", DType.fp64), PARAMS[1]), body) == ()
    (loop,) = body
    assert in_place(PARAMS, (msgspec.structs.replace(loop, stop=var("s0")),)) == ()


def test_a_kernel_that_claims_too_much_is_refused() -> None:
    kernel = kernel_of(ZOO["bias_relu"]())
    claimed = msgspec.structs.replace(kernel, face=msgspec.structs.replace(kernel.face, in_place=((0, 2),)))
    assert any("may not take the place" in d.why for d in verify_kernel(claimed))


def test_a_kernel_of_many_results_is_walked_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of many results, as of an unrolled loop: the work grows linearly with the kernel, not as its square."""
    from tatami.loop.passes import run_writes

    walk, walked = vars(run_writes)["nodes"], []

    def counted(s: object) -> Iterator[object]:
        for n in walk(s):
            walked.append(1)
            yield n

    monkeypatch.setattr(run_writes, "nodes", lambda s: list(counted(s)))
    counts = []
    for n in (20, 80):
        params = [BufferParam(f"{k}{j}", F32, written=k == "o") for j in range(n) for k in ("i", "o")]
        body = tuple(along(Store(f"o{j}", x, Load(f"i{j}", x, F32))) for j in range(n))
        walked.clear()
        assert in_place(params, body) == tuple((2 * j, 2 * j + 1) for j in range(n))
        counts.append(len(walked))
    assert counts[1] < 6 * counts[0]
