"""Results of an SM90 tile leave by TMA, and an operand of the epilogue can arrive by TMA at the place of its result.

Each warpgroup has its own ring, whose slots hold chunks of its accumulator in the layout of the output:

    for each chunk: Wait(TokStore c - slots); StMatrix; FenceAsync; TmaStore

An operand with one element per result (a residual) may be fetched before the products begin. The ring then has a slot for each
chunk of the tile, TMA fills them during the products, and StMatrix reads each chunk before it overwrites it.

    Wait(TokStore); TmaFetch      products      Wait(TokLoad)  for each chunk: StMatrix over it; FenceAsync; TmaStore"""

from __future__ import annotations

import msgspec

from tatami.core.algebra.visit import step_of, substitute
from tatami.core.expr import ONE, ZERO, Expr, expr, var
from tatami.core.kernel import TensorMapSpec
from tatami.gpu.ir import Ring
from tatami.gpu.products.problem import Problem, Store
from tatami.gpu.products.tensor_map import refused, tensor_map
from tatami.gpu.statement_ir import (
    FenceAsync,
    Loop,
    StMatrix,
    Stmt,
    SyncWarpgroup,
    TmaFetch,
    TmaStore,
    Token,
    TokenKind,
    Wait,
    WideRead,
)
from tatami.plan.ir import Sm90Mma
from tatami.plan.views.product_limits import STORE_ROWS, span_columns, store_slots
from tatami.region.ir import Let, Read, Ref
from tatami.region.walk import nodes, rewrite

FETCHED, LANDED = "fetched", "landed"
"""Name of a fetched element in the epilogue, and name of the barrier at which fetched elements land."""
LAST = var("KB") - 1
"""The last block of a tile."""


class Results(msgspec.Struct, frozen=True):
    """The epilogue of a tile. `fetch` runs before the products, `wait` after them."""

    lets: tuple[Let, ...]
    stores: tuple[Stmt, ...]
    wide: tuple[WideRead, ...] = ()
    fetch: tuple[Stmt, ...] = ()
    wait: tuple[Stmt, ...] = ()
    rings: tuple[Ring, ...] = ()
    maps: dict[str, TensorMapSpec] = {}
    tokens: dict[str, TokenKind] = {}


def staged_results(p: Problem, plan: Sm90Mma, tail: tuple[str, ...], base: int) -> Results:
    """The epilogue through shared memory from byte `base`. A chunk is contiguous along n or m, like its output. Raises
    InvalidPlan if the outputs or the operand to fetch do not allow it."""
    columns = span_columns(plan.tile[1])
    along = {_contiguous(p, s) for s in p.stores}
    if len(along) > 1:
        raise refused(p, "its outputs are contiguous along different axes", "use epilogue_store direct")
    inner = along.pop()
    rows, width = (STORE_ROWS, columns) if inner == "n" else (columns, STORE_ROWS)
    slots = store_slots(plan)
    ring = Ring("smC", base, rows, width * 2, slots * plan.consumers, width * 2)
    pred = tuple(r for r in ("m", "n") if r in tail)

    def chunk_map(param: str, index: Expr) -> tuple[TensorMapSpec, tuple[Expr, ...]]:
        outer = "m" if inner == "n" else "n"
        pitch = step_of(index, outer)
        if pitch is None:
            raise refused(p, f"{param} has no even pitch along {outer}", "use epilogue_store direct")
        sizes = {"m": p.m, "n": p.n}
        rest = substitute(index, {"m": expr(0), "n": expr(0)})
        return tensor_map(p, param, ((sizes[inner], inner), (sizes[outer], outer)), pitch, rest, [width, rows])

    maps: dict[str, TensorMapSpec] = {}
    body: list[Stmt] = []
    fetched = _fetched(p, inner) if plan.epilogue_load == "tma" else None
    source = "" if fetched is None else fetched.tensor
    free = (Wait((Token("tStore", var("c") - slots),), "bulk_group", pending=slots - 1), SyncWarpgroup())
    for i, s in enumerate(p.stores):
        maps[f"C{i}_desc"], coords = chunk_map(s.param, s.index)
        body += [
            *(() if source else free),
            StMatrix("smC", s.param, s.value, pred, Token("tE", LAST), source),
            FenceAsync(),
            SyncWarpgroup(),
            TmaStore("smC", f"C{i}_desc", coords, Token("tStore", var("c"))),
        ]
    made = Results(p.lets, (Loop("chunks", tuple(body)),), rings=(ring,), maps=maps, tokens={"tStore": "TokStore"})
    if fetched is None:
        return made
    spec, coords = chunk_map(source, fetched.map[0])
    landed = Token("tFetch", LAST)
    return msgspec.structs.replace(
        made,
        lets=_read_where_it_lies(p.lets, fetched),
        fetch=(
            Wait((Token("tStore", LAST),), "bulk_group"),
            TmaFetch("smC", "R_desc", coords, LANDED, slots, slots * ring.slot_bytes, landed),
        ),
        wait=(Wait((landed,), "fetch", mbarrier=LANDED),),
        maps=maps | {"R_desc": spec},
        tokens=made.tokens | {"tFetch": "TokLoad"},
    )


def _fetched(p: Problem, inner: str) -> Read:
    """The 16-bit operand of the epilogue that is read once per result, contiguous along `inner` as the results are stored."""
    if len(p.stores) > 1:
        raise refused(p, f"{len(p.stores)} outputs share the ring that an operand is fetched to", "use epilogue_load direct")
    dtypes = {q.name: q.dtype for q in p.params}
    outer = "m" if inner == "n" else "n"
    read = [e for let in p.lets for e in nodes(let.expr) if isinstance(e, Read) and dtypes[e.tensor].is_narrow_float]
    for e in read:
        if step_of(e.map[0], inner) == ONE and step_of(e.map[0], outer) not in (None, ZERO):
            return e
    raise refused(p, f"its epilogue reads nothing of 16 bits that lies along {inner} as results do", "use epilogue_load direct")


def _read_where_it_lies(lets: tuple[Let, ...], fetched: Read) -> tuple[Let, ...]:
    """The epilogue with the fetched operand taken from shared memory."""
    return tuple(
        msgspec.structs.replace(let, expr=rewrite(let.expr, lambda e: Ref(FETCHED) if e == fetched else e)) for let in lets
    )


def _contiguous(p: Problem, s: Store) -> str:
    if not s.dtype.is_narrow_float:
        raise refused(p, f"stmatrix stores elements of 16 bits, output {s.param} is {s.dtype}", "use epilogue_store direct")
    for axis in ("n", "m"):
        if step_of(s.index, axis) == ONE:
            return axis
    raise refused(p, f"output {s.param} is contiguous along neither m nor n", "use epilogue_store direct")
