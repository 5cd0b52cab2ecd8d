"""Each rule of streaming plans: a plan that breaks it has that one fault, and plans at its edge have none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.plan.ir import GpuStream, Pass, Storage
from tatami.plan.loops.rules import schedule_rules
from tatami.region.ir import Binary, Cast, Let, Opaque, Ref, Region, Scan, Unary, Yield
from tests.region import examples as ex

replace = msgspec.structs.replace


def faults(plan: GpuStream, region: Region) -> list[str]:
    return [d.why for d in schedule_rules(plan, region)]


def loops(axes: str, lets: str) -> Pass:
    return Pass(tuple(axes.split()), tuple(lets.split()))


def stored(**storage: Storage) -> dict[str, Storage]:
    return storage


def stream(outer: str, *passes: Pass, kept: Any = None, **fields: Any) -> GpuStream:
    """A plan whose lets are in registers but for those of `kept`."""
    names: dict[str, Storage] = {n: "register" for p in passes for n in p.lets}
    return GpuStream(tuple(outer.split()), passes, {**names, **(kept or {})}, 256, 16, **fields)


SOFTMAX = ex.softmax()
TOP, WEIGHTS, LAST = loops("n", "top"), loops("n", "e z"), loops("n", "p")
ROW = stored(e="row")


def softmax(*passes: Pass, outer: str = "m", kept: Any = ROW, **fields: Any) -> GpuStream:
    return stream(outer, *(passes or (TOP, WEIGHTS, LAST)), kept=kept, **fields)


SCANNED, NORM, GEMM, LAYER = ex.running_sum(), ex.column_norm(), ex.gemm(), ex.layer_norm()
PRODUCT = (loops("m n k", "acc"), loops("m n", "c1 c2"))
COLUMNS = (loops("n m", "s0"), loops("m n", "y"))
SORT = replace(SOFTMAX, lets=(), yields=(), opaque=Opaque("sort"))
EMPTY = GpuStream((), (), {}, 256, 16)
X = ex.read("X", "m", "n")


def maps(*lets: Let, **yielded: str) -> Region:
    """A Region over m and n of one input."""
    by_name = {n.name: n for n in lets}
    sizes = {"m": "M", "n": "N"}
    outputs = tuple(ex.target(to, *(sizes[a] for a in by_name[n].axes)) for n, to in yielded.items())
    yields = tuple(Yield(n, to) for n, to in yielded.items())
    return Region("r", ex.iters(**sizes), (), (ex.param("X", "M", "N"),), outputs, lets, yields)


EXP = ex.let("e", "m n", Unary("exp", X))
SUM = ex.let("s", "m", ex.total("n", Ref("e")))
CHAIN = maps(EXP, ex.let("f", "m n", Unary("neg", Ref("e"))), ex.let("g", "m n", Unary("abs", Ref("f"))), g="Y")
SHIFTED = maps(EXP, ex.let("y", "m n", ex.at("e", 0, "n")), y="Y")
LINES = maps(EXP, SUM, ex.let("t", "m n", Scan("sum", "n", ex.F32, X)), s="Y", t="Z")
OTHER = maps(ex.let("a", "m", ex.read("X", "m", 0)), ex.let("b", "m n", Binary("add", Ref("a"), X)), b="Y")
WEIGHED = maps(EXP, SUM, ex.let("y", "m n", Binary("div", Ref("e"), Ref("s"))), y="Y")
PLACED = Region(
    "scatter",
    ex.iters(i="M", j="N"),
    (),
    (ex.param("X", "M", "N"), ex.param("I", "M", "N", dtype=DType.i32), ex.param("T", "M", "K")),
    (replace(ex.target("Y", "M", "K"), updates="T"),),
    (ex.let("v", "j i", ex.read("X", "i", "j")), Let("where", ("j", "i"), DType.i64, Cast(ex.read("I", "i", "j"), DType.i64))),
    (Yield("v", "Y", map=(expr("i"), None), indices=("where",)),),
)
BOTH = loops("j i", "v where")
GOOD: list[tuple[str, GpuStream, Region]] = [
    ("softmax", softmax(), SOFTMAX),
    ("softmax without outer axes", stream("", loops("m n", "top"), loops("m n", "e z"), loops("m n", "p"), kept=stored(top="row", e="row", z="row")), SOFTMAX),
    ("softmax in groups", softmax(groups=(32, 64, 1)), SOFTMAX),
    ("softmax in one kernel", softmax(groups=(32, 32, 32), fused=True), SOFTMAX),
    ("softmax, a line in parts", softmax(groups=(2, 1, 1), parts=(16, 0, 0)), SOFTMAX),
    ("softmax of weights computed again", stream("m", TOP, loops("n", "z"), LAST, kept=stored(e="recompute")), SOFTMAX),
    ("layer norm", stream("m", loops("n", "s"), loops("", "mean"), loops("n", "d v"), loops("", "r"), loops("n", "y"), kept=stored(d="row")), LAYER),
    ("scan", stream("m", loops("n", "c"), loops("n", "y"), kept=stored(c="row")), SCANNED),
    ("scan and map at the same points", stream("m", loops("n", "c y")), SCANNED),
    ("scan in parts", stream("m", loops("n", "c"), loops("n", "y"), kept=stored(c="row"), groups=(2, 1), parts=(1024, 0)), SCANNED),
    ("product", stream("", *PRODUCT, kept=stored(acc="row")), GEMM),
    ("product of outer axes", stream("m n", loops("k", "acc"), loops("", "c1 c2")), GEMM),
    ("column sums", stream("", *COLUMNS, kept=stored(s0="row")), NORM),
    ("column sums in one kernel", stream("n", loops("m", "s0"), loops("m", "y"), fused=True), NORM),
    ("a chain of maps", stream("m", loops("n", "e f g")), CHAIN),
    ("a chain of maps in one kernel", stream("m", loops("n", "e"), loops("n", "f g"), kept=ROW, fused=True), CHAIN),
    ("another point of an earlier pass", stream("n", loops("m", "e"), loops("m", "y"), kept=ROW), SHIFTED),
    ("another point computed again", stream("m n", loops("", "y"), kept=stored(e="recompute")), SHIFTED),
    ("a map that lacks an outer axis", stream("m n", loops("", "a b")), OTHER),
    ("writes at computed places", stream("j i", loops("", "v where"), owners=1), PLACED),
    ("a chain in one kernel, one link computed again", stream("m", loops("n", "e"), loops("n", "g"), kept=stored(e="row", f="recompute"), fused=True), CHAIN),
    ("writes by many owners and one", stream("", BOTH, owners=2), replace(PLACED, outputs=(*PLACED.outputs, ex.target("Z", "N", "M")), yields=(*PLACED.yields, Yield("v", "Z")))),
    ("writes by many owners", stream("", BOTH, owners=1024), PLACED),
    ("a routine", EMPTY, SORT),
    ("a sort in parts of 16", replace(EMPTY, parts=(16,)), SORT),
    ("a sort in parts of 1024", replace(EMPTY, parts=(1024,)), SORT),
    ("the first of a line in parts", replace(EMPTY, parts=(64,)), replace(SORT, opaque=Opaque("topk"))),
    ("another routine", EMPTY, replace(SORT, opaque=Opaque("solve"))),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "of"), [g[1:] for g in GOOD], ids=[g[0] for g in GOOD])
def test_a_plan_at_the_edge_of_a_rule_is_accepted(plan: GpuStream, of: Region) -> None:
    assert faults(plan, of) == []


WRONG: list[tuple[str, GpuStream, Region, str]] = [
    ("outer axes of a routine", replace(EMPTY, outer=("m",)), SORT, "loops for the routine sort"),
    ("vectors of a routine", replace(EMPTY, vector_bytes=8), SORT, "vector_bytes 8 for the routine sort"),
    ("threads of a routine", replace(EMPTY, threads=128, owners=2), SORT, "128 threads, 2 owners for the routine sort"),
    ("no owner of a routine", replace(EMPTY, owners=0), SORT, "0 owners for the routine sort"),
    ("groups of a routine", replace(EMPTY, groups=(2,), fused=True), SORT, "groups 2, fused for the routine sort"),
    ("passes of a routine", replace(EMPTY, passes=(TOP,)), SORT, "loops for the routine sort"),
    ("storage of a routine", replace(EMPTY, storage=ROW), SORT, "loops for the routine sort"),
    ("parts of another routine", replace(EMPTY, parts=(64,)), replace(SORT, opaque=Opaque("solve")), "the routine solve in parts of 64"),
    ("two parts of a sort", replace(EMPTY, parts=(64, 64)), SORT, "the routine sort in parts of 64, 64"),
    ("parts of eight", replace(EMPTY, parts=(8,)), SORT, "the routine sort in parts of 8"),
    ("parts of 2048", replace(EMPTY, parts=(2048,)), SORT, "the routine sort in parts of 2048"),
    ("parts of 48", replace(EMPTY, parts=(48,)), SORT, "the routine sort in parts of 48"),
    ("an unknown outer axis", softmax(outer="q"), SOFTMAX, "'q' is neither an axis nor a let"),
    ("an unknown axis of a pass", softmax(TOP, WEIGHTS, loops("q", "p")), SOFTMAX, "'q' is neither"),
    ("an unknown let", replace(softmax(TOP, WEIGHTS, loops("n", "p q")), storage=softmax().storage), SOFTMAX, "'q' is neither"),
    ("storage of an unknown let", softmax(kept={**ROW, "q": "row"}), SOFTMAX, "'q' is neither"),
    ("axes twice in two places", softmax(TOP, WEIGHTS, loops("n n", "p"), outer="m m"), SOFTMAX, "loops over m, m"),
    ("a tile beside what is recomputed", stream("m", loops("n", "e g"), kept=stored(e="tile", f="recompute")), CHAIN, "e in a tile"),
    ("a workspace in one kernel", softmax(kept=stored(e="workspace"), fused=True), SOFTMAX, "e in a workspace"),
    ("a row in a register of one kernel", softmax(kept=None, fused=True), SOFTMAX, "e is in a register of pass 1 and used in pass 2 | e is in a register; its readers need a row"),
    ("groups of more passes", softmax(groups=(32,) * 4), SOFTMAX, "4 groups for 3 passes"),
    ("groups and parts of some passes", softmax(groups=(32, 32), parts=(0, 0)), SOFTMAX, "2 groups for 3 passes"),
    ("an outer axis that a reduce lacks, which is no result", stream("n", loops("m", "e"), loops("m", "s"), loops("m", "y"), kept=stored(e="row", s="row")), WEIGHED, "pass 1 loops over m, let s needs m, n | outer axis n is not an axis of s"),
    ("outer axes twice", softmax(outer="m m"), SOFTMAX, "loops over m, m"),
    ("axes of a pass twice", softmax(TOP, WEIGHTS, loops("n n", "p")), SOFTMAX, "loops over n, n"),
    ("a let twice", softmax(TOP, WEIGHTS, LAST, LAST), SOFTMAX, "let p is in pass 2 and in pass 3"),
    ("a let without storage", replace(softmax(), storage=stored(top="register", e="row", z="register")), SOFTMAX, "let p has no storage"),
    ("a let recomputed in a pass", stream("m", loops("n", "e f g"), kept=stored(f="recompute")), CHAIN, "let f is recomputed and in a pass"),
    ("a let in no pass", stream("m", loops("n", "e g"), kept=stored(f="register")), CHAIN, "let f is in no pass and not recomputed"),
    ("a reduce recomputed", stream("m", loops("n", "e z"), LAST, kept=stored(top="recompute", e="row")), SOFTMAX, "let top is a reduce and recomputed"),
    ("a scan recomputed", stream("m", loops("n", "y"), kept=stored(c="recompute")), SCANNED, "let c is a reduce and recomputed"),
    ("lets in another order", stream("m", loops("n", "e g f")), CHAIN, "pass 0 lists e, g, f"),
    ("a pass without an axis", stream("m", loops("", "e f g")), CHAIN, "pass 0 loops over nothing, let e needs n | pass 0 loops over nothing, let f needs n | pass 0 loops over nothing, let g needs n"),
    ("a pass with an axis too many", stream("", loops("m n", "a"), loops("m n", "b"), kept=stored(a="row")), OTHER, "pass 0 loops over m, n, let a needs m"),
    ("a reduced axis outside", stream("", loops("k m n", "acc"), PRODUCT[1], kept=stored(acc="row")), GEMM, "pass 0 does not end with k, which acc reduces"),
    ("an outer axis that a reduce lacks", stream("m n", loops("", "s0 y")), NORM, "pass 0 loops over nothing, let s0 needs m | outer axis m is not an axis of s0, which would be computed again | y uses s0, not complete in pass 0"),
    ("an outer axis that a result lacks", stream("m n", loops("", "a"), loops("", "b")), replace(OTHER, yields=(*OTHER.yields, Yield("a", "Z"))), "outer axis n is not an axis of a, which would be computed again"),
    ("another point of an outer axis", stream("m n", loops("", "e"), loops("", "y")), SHIFTED, "y reads e elsewhere along outer axis m"),
    ("a pass before one it uses", stream("m", loops("n", "f"), loops("n", "e"), loops("n", "g"), kept=stored(e="row", f="row")), CHAIN, "f in pass 0 uses e of pass 1"),
    ("a reduce in its own pass", stream("", loops("m n k", "acc"), loops("m n", "c1 c2")), GEMM, "acc is in a register of pass 0 and used in pass 1"),
    ("a reduce used where it is made", stream("n", loops("m", "s0 y")), NORM, "y uses s0, not complete in pass 0"),
    ("another point of the same pass", stream("n", loops("m", "e y")), SHIFTED, "y uses e, not complete in pass 0"),
    ("a row in a register", softmax(kept=None), SOFTMAX, "e is in a register of pass 1 and used in pass 2"),
    ("a tile", stream("m", loops("n", "e f g"), kept=stored(e="tile")), CHAIN, "e in a tile"),
    ("a workspace", softmax(kept=stored(e="workspace")), SOFTMAX, "e in a workspace"),
    ("a row in one kernel that none reads", softmax(kept={**ROW, "p": "row"}, fused=True), SOFTMAX, "p is in a row; its readers need a register"),
    ("a row of a single number", softmax(kept={**ROW, "top": "row"}, fused=True), SOFTMAX, "top is in a row; its readers need a register"),
    ("a row that its own pass reads", stream("m", loops("n", "e f g"), kept=ROW, fused=True), CHAIN, "e is in a row; its readers need a register"),
    ("no owner", stream("", BOTH, owners=0), PLACED, "0 owners of what is written"),
    ("more owners than threads", stream("", BOTH, owners=1025), PLACED, "1025 owners of what is written"),
    ("owners of what has its place", softmax(owners=2), SOFTMAX, "2 owners of what is written, which no data place"),
    ("groups of one kernel", softmax(groups=(32, 64, 32), fused=True), SOFTMAX, "groups of 32, 64, 32 in one kernel"),
    ("groups of some passes", softmax(groups=(32, 32)), SOFTMAX, "2 groups for 3 passes"),
    ("parts of some passes", softmax(groups=(32, 32, 32), parts=(0, 0)), SOFTMAX, "2 parts for 3 passes"),
    ("parts of one kernel", softmax(groups=(2, 2, 2), parts=(16, 0, 0), fused=True), SOFTMAX, "pass 0 in parts of 16: it is fused, or holds more than reduces and scans"),
    ("parts of a map", softmax(groups=(2, 2, 2), parts=(0, 0, 16)), SOFTMAX, "pass 2 in parts of 16: it is fused, or holds more"),
    ("parts of a map and a reduce", softmax(groups=(2, 2, 2), parts=(0, 16, 0)), SOFTMAX, "pass 1 in parts of 16: it is fused, or holds more"),
    ("parts of fifteen", softmax(groups=(2, 1, 1), parts=(15, 0, 0)), SOFTMAX, "pass 0 in parts of 15 by groups of 2"),
    ("parts of seventeen", softmax(groups=(2, 1, 1), parts=(17, 0, 0)), SOFTMAX, "pass 0 in parts of 17 by groups of 2"),
    ("parts of less than nothing", softmax(groups=(2, 1, 1), parts=(-16, 0, 0)), SOFTMAX, "pass 0 in parts of -16 by groups of 2"),
    ("parts without groups", softmax(parts=(16, 0, 0)), SOFTMAX, "pass 0 in parts of 16 by groups of 1"),
    ("parts of single threads", softmax(groups=(1, 2, 2), parts=(16, 0, 0)), SOFTMAX, "pass 0 in parts of 16 by groups of 1"),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "of", "why"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_broken_rule_is_the_one_fault(plan: GpuStream, of: Region, why: str) -> None:
    found, wanted = faults(plan, of), why.split(" | ")
    assert len(found) == len(wanted) and all(f.startswith(w) for f, w in zip(found, wanted)), found
