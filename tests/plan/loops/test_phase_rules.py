"""Each rule of plans of loops: a plan that breaks it has that one fault, and plans at its edge have none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.core.expr import expr
from tatami.core.target import PRESETS
from tatami.plan.ir import Blocks, CpuRows, LoopPass, LoopPhase, Scalar, Storage
from tatami.plan.loops.phase_rules import phase_rules
from tatami.plan.views.form_passes import Wish
from tatami.plan.views.wished_plans import rows_plan, scalar_plan
from tatami.region.ir import Binary, Cast, Let, Opaque, Ref, Region, RegionExpr, Scan, Unary, Yield
from tests.region import examples as ex

replace = msgspec.structs.replace
AVX512, AVX2 = PRESETS["cpu:avx512"], PRESETS["cpu:avx2"]
Plan = Scalar | CpuRows


def faults(plan: Plan, region: Region, target: Any = AVX512) -> list[str]:
    return [d.why for d in phase_rules(plan, region, target)]


def loops(axes: str, lets: str, vector: str = "", tile: str = "", **along: str) -> LoopPass:
    return LoopPass(tuple(axes.split()), tuple(lets.split()), vector, tile, along)


def phase(outer: str, *passes: LoopPass, threads: str = "", group: int = 1) -> LoopPhase:
    return LoopPhase(tuple(outer.split()), tuple(threads.split()), passes, group)


def stored(**storage: Storage) -> dict[str, Storage]:
    return storage


def rows(*phases: LoopPhase, width: int = 16, **fields: Any) -> CpuRows:
    """A plan whose lets are in registers but for those of `kept`."""
    names: dict[str, Storage] = {n: "register" for x in phases for p in x.passes for n in p.lets}
    kept = fields.pop("kept", {})
    return CpuRows(phases, {**names, **kept}, width, **fields)


def region(sizes: dict[str, Any], lets: list[Let], *yields: Yield, reduced: dict[str, Any] | None = None) -> Region:
    """A Region of one input X with all axes of `sizes`, and an output per yield."""
    extents = {**sizes, **(reduced or {})}
    by_name = {n.name: n for n in lets}
    outputs = tuple(
        ex.target(y.to, *(extents[a] for a in by_name[y.source].axes), dtype=by_name[y.source].dtype) for y in yields
    )
    inputs = (ex.param("X", *extents.values()),)
    return Region("r", ex.iters(**sizes), ex.iters(**(reduced or {})), inputs, outputs, tuple(lets), yields)


SOFTMAX = ex.softmax()
TOP, WEIGHTS, LAST = loops("", "top", top="n"), loops("n", "e z", "n"), loops("n", "p", "n")
ROW = stored(e="row")


def softmax(*passes: LoopPass, outer: str = "m", threads: str = "m", group: int = 1, kept: Any = ROW, **fields: Any) -> CpuRows:
    return rows(phase(outer, *(passes or (TOP, WEIGHTS, LAST)), threads=threads, group=group), kept=kept, **fields)


SCANNED = ex.running_sum()


def scan(axes: str = "m n", outer: str = "", threads: str = "", vector: str = "n", **fields: Any) -> CpuRows:
    return rows(phase(outer, loops(axes, "c y", vector), threads=threads), **fields)


def row_sum(fn: str = "sum", dtype: DType = ex.F32, size: Any = 4096) -> Region:
    return region({"m": "M"}, [ex.let("s", "m", ex.total("k", ex.read("X", "m", "k"), fn, dtype), dtype)], Yield("s", "Y"), reduced={"k": size})  # fmt: skip


SUMS = row_sum()
SUM = phase("m", loops("", "s", s="k"), threads="m")
BLOCKED = (
    phase("", loops("k.b m", "s.b", **{"s.b": "k.i"}), threads="k.b"),
    phase("", loops("m", "s", "m", s="k.b"), threads="m"),
)


BLOCK_SUMS: dict[str, Storage] = {"s.b": "workspace"}


def blocked(blocks: Blocks, **fields: Any) -> CpuRows:
    return rows(*BLOCKED, blocks=blocks, kept=BLOCK_SUMS, **fields)


MAP = region({"m": 64, "n": 128}, [ex.let("s", "m n", Unary("exp", ex.read("X", "m", "n")))], Yield("s", "Y"))


def mapped(axes: str = "m n", threads: str = "m", vector: str = "n", tile: str = "", **fields: Any) -> CpuRows:
    return rows(phase("", loops(axes, "s", vector, tile), threads=threads), **fields)


TURNED = Region(
    "turned",
    ex.iters(m="M", n="N"),
    (),
    (ex.param("X", "N", "M"),),
    (ex.target("Y", "M", "N"),),
    (ex.let("s", "m n", ex.read("X", "n", "m")),),
    (Yield("s", "Y"),),
)
GEMM = ex.gemm()
ATTENTION = ex.attention()
ATTEND = rows_plan(ATTENTION, Wish(), 16)
WINDOWS = ex.two_windows()
IN_TILES = rows(phase("", loops("i", "w", "i"), loops("j", "v", "j"), threads="j"), kept=stored(w="tile"))
NORM = ex.column_norm()
COLUMNS = phase("", loops("n", "s0", "n", s0="m"), threads="n")
SUBTRACT = phase("", loops("m n", "y", "n"), threads="m")
LAYER = ex.layer_norm()


def x(*axes: str) -> RegionExpr:
    return ex.read("X", *axes)


def along(axis: str, reverse: bool = False) -> Scan:
    return Scan("sum", axis, ex.F32, x("m", "n"), False, reverse)


def lone(*names: str, vector: str = "n", tile: str = "", axes: str = "m n", threads: str = "", **reduces: str) -> CpuRows:
    """One pass without outer axes."""
    return rows(phase("", loops(axes, " ".join(names), vector, tile, **reduces), threads=threads))


def sum_of(*axes: str, of: RegionExpr | None = None) -> RegionExpr:
    return ex.total(" ".join(axes), of or Ref("e"))


EXP = ex.let("e", "m n", Unary("exp", x("m", "n")))
FOLDED = region({"m": "M", "n": "N"}, [EXP, ex.let("s", "", sum_of("m", "n"))], Yield("s", "Y"))
FOLDS = region(
    {"m": "M", "n": "N"},
    [EXP, ex.let("s", "m", sum_of("n")), ex.let("v", "m", sum_of("n", of=ex.mul(Ref("e"), Ref("s"))))],
    Yield("v", "Y"),
)
NESTED = region(
    {"m": "M", "n": 64},
    [ex.let("q", "m n", sum_of("k", of=x("m", "n", "k"))), ex.let("s", "m", sum_of("n", of=Ref("q")))],
    Yield("s", "Y"),
    reduced={"k": 64},
)
INNER = region(
    {"m": "M", "n": 64},
    [ex.let("e", "m n", Unary("exp", x("m", "n", "0"))), ex.let("q", "m n", sum_of("k", of=x("m", "n", "k")))],
    Yield("e", "Z"),
    Yield("q", "Y"),
    reduced={"k": 64},
)
TWO_SCANS = {
    "alike": region(
        {"m": "M", "n": "N"}, [ex.let("c", "m n", along("n")), ex.let("d", "m n", along("n"))], Yield("c", "Y"), Yield("d", "Z")
    ),
    "both ways": region(
        {"m": "M", "n": "N"},
        [ex.let("c", "m n", along("n")), ex.let("d", "m n", along("n", True))],
        Yield("c", "Y"),
        Yield("d", "Z"),
    ),
    "of each other": region(
        {"m": "M", "n": "N"},
        [ex.let("c", "m n", along("n")), ex.let("d", "m n", Scan("sum", "n", ex.F32, Ref("c")))],
        Yield("d", "Z"),
    ),
    "and a map": region({"m": "M", "n": "N"}, [EXP, ex.let("c", "m n", along("n"))], Yield("e", "Y"), Yield("c", "Z")),
}
SHIFTED = region({"m": "M", "n": "N"}, [EXP, ex.let("y", "m n", ex.at("e", 0, "n"))], Yield("y", "Y"))
AGAIN = region(
    {"m": "M", "n": "N"},
    [EXP, ex.let("f", "m n", Unary("neg", Ref("e"))), ex.let("y", "m n", ex.at("f", 0, "n"))],
    Yield("e", "Z"),
    Yield("y", "Y"),
)
TWICE = region(
    {"m": "M", "n": "N"},
    [
        EXP,
        ex.let("y", "m n", ex.at("e", 0, "n")),
        ex.let("s", "m", sum_of("n")),
        ex.let("z", "m n", Binary("div", Ref("e"), Ref("s"))),
    ],
    Yield("y", "Y"),
    Yield("z", "Z"),
)
STEPS = (
    phase("m", loops("n", "e", "n"), loops("", "s", s="n"), loops("n", "z", "n"), threads="m"),
    phase("", loops("m n", "y", "n"), threads="m"),
)
PAIRS = region(
    {"m": "M"},
    [ex.let("s", "m", sum_of("k", of=x("m", "k"))), ex.let("t", "m", ex.total("k", x("m", "k"), "max"))],
    Yield("s", "Y"),
    Yield("t", "Z"),
    reduced={"k": "K"},
)
PLACES = region(
    {"m": "M"},
    [ex.let(n, "m", ex.total("k", x("m", "k"), fn, DType.i64), DType.i64) for n, fn in (("s", "argmax"), ("t", "argmin"))],
    Yield("s", "Y"),
    Yield("t", "Z"),
    reduced={"k": "K"},
)
TRUTH = region(
    {"m": "M"},
    [ex.let("s", "m", ex.total("k", Binary("lt", x("m", "k"), ex.const(0.0)), "argmax", DType.i64), DType.i64)],
    Yield("s", "Y"),
    reduced={"k": "K"},
)
ANY = region(
    {"m": "M"},
    [ex.let("s", "m", ex.total("k", Binary("lt", x("m", "k"), ex.const(0.0)), "max", DType.bool), DType.bool)],
    Yield("s", "Y"),
    reduced={"k": "K"},
)
SQUARE = region(
    {"m": "M"}, [ex.let("s", "m", sum_of("k", "l", of=x("m", "k", "l")))], Yield("s", "Y"), reduced={"k": 64, "l": 64}
)
PLACE = region(
    {"m": "M"},
    [ex.let("s", "m", ex.total("k l", x("m", "k", "l"), "argmax", DType.i64), DType.i64)],
    Yield("s", "Y"),
    reduced={"k": 64, "l": 64},
)
HIGH = region({"n": 4096}, [ex.let("s", "n", sum_of("k", of=ex.read("X", "n", "k")))], Yield("s", "Y"), reduced={"k": 64})
HIGH = replace(HIGH, inputs=(ex.param("X", 64, 4096),), lets=(ex.let("s", "n", sum_of("k", of=x("k", "n"))),))
BATCH = region({"b": "B", "m": "M", "n": "N"}, [ex.let("s", "b m n", x("b", "m", "n"))], Yield("s", "Y"))
BATCH = replace(BATCH, inputs=(ex.param("X", "B", "N", "M"),), lets=(ex.let("s", "b m n", x("b", "n", "m")),))
LINES = region(
    {"m": 8, "b": 4, "n": 64},
    [ex.let("e", "m b n", Unary("exp", x("m", "b", "n"))), ex.let("s", "m b", sum_of("n"))],
    Yield("s", "Y"),
)
ROW_AND_MAP = region(
    {"m": "M", "n": "N"},
    [ex.let("a", "n", Unary("exp", x("0", "n"))), ex.let("y", "m n", ex.add(Ref("a"), x("m", "n")))],
    Yield("y", "Y"),
)
PLANE = Region(
    "planes",
    ex.iters(b="B", i="L - 2", j="L - 4"),
    ex.iters(p=3, q=3),
    (ex.param("X", "B", "L"),),
    (ex.target("Y", "B", "L - 4"),),
    (ex.let("w", "b i", sum_of("p", of=x("b", "i + p"))), ex.let("v", "b j", ex.total("q", ex.at("w", "b", "j + q"), "max"))),
    (Yield("v", "Y"),),
)
PLANES = (loops("i", "w", "i"), loops("j", "v", "j"))
BOTH = Region(
    "both",
    ex.iters(i="L - 2", j="L - 4"),
    ex.iters(p=3, q=3),
    (ex.param("X", "L"),),
    (ex.target("Y", "L - 4"),),
    (
        ex.let("w", "i", sum_of("p", of=x("i + p"))),
        ex.let("u", "i", ex.total("p", x("i + p"), "min")),
        ex.let("v", "j", ex.total("q", ex.add(ex.at("w", "j + q"), ex.at("u", "j + q")), "max")),
    ),
    (Yield("v", "Y"),),
)
MOVED = Region(
    "moved",
    ex.iters(i="L", j="L - 2", c="C"),
    ex.iters(q=3),
    (ex.param("X", "L", "C"),),
    (ex.target("Y", "L - 2", "C"),),
    (ex.let("e", "i c", Unary("exp", x("i", "c"))), ex.let("v", "j c", ex.total("q", ex.at("e", "j + q", "c"), "max"))),
    (Yield("v", "Y"),),
)
SCATTERED = Region(
    "scatter",
    ex.iters(i="M", j="N"),
    ex.iters(k="K"),
    (ex.param("X", "M", "N", "K"), ex.param("I", "M", "N", dtype=DType.i32), ex.param("T", "M", "K")),
    (replace(ex.target("Y", "M", "K"), updates="T"),),
    (
        ex.let("w", "j i", sum_of("k", of=x("i", "j", "k"))),
        ex.let("v", "j i", Unary("neg", Ref("w"))),
        Let("where", ("j", "i"), DType.i64, Cast(ex.read("I", "i", "j"), DType.i64)),
    ),
    (Yield("v", "Y", map=(expr("i"), None), indices=("where",)),),
)


def scattered(lets: str, **storage: Storage) -> Scalar:
    """A plan that computes `lets` in one pass."""
    return Scalar((phase("", loops("j i", lets)),), storage)


GOOD: list[tuple[str, Plan, Region]] = [
    ("vectors of two", mapped(width=2), MAP),
    ("vectors as long as lines", mapped(), region({"m": 64, "n": 16}, [ex.let("s", "m n", Unary("exp", x("m", "n")))], Yield("s", "Y"))),
    ("sum in one block", rows(phase("", loops("k.b m", "s.b", **{"s.b": "k.i"}), threads="k.b"), phase("", loops("m", "s", "m"), threads="m"), blocks=Blocks("k", 4096), kept=BLOCK_SUMS), SUMS),
    ("joined sum in blocks", rows_plan(SQUARE, Wish(blocks=Blocks("k", 8)), 16), SQUARE),
    ("scans alike", rows(phase("m", loops("n", "c d", "n"), threads="m")), TWO_SCANS["alike"]),
    ("a point of an earlier phase", rows(phase("m", loops("n", "e f", "n"), threads="m"), phase("m", loops("n", "y", "n"), threads="m"), kept=stored(f="workspace")), AGAIN),
    ("a point of an earlier phase's second pass", rows(phase("m", loops("n", "e", "n"), loops("n", "f", "n"), threads="m"), phase("m", loops("n", "y", "n"), threads="m"), kept=stored(e="row", f="workspace")), AGAIN),
    ("a workspace read in its phase too", rows(*STEPS, kept=stored(e="workspace")), TWICE),
    ("lanes of the first of two reduces", rows(phase("m", loops("", "s t", s="k"), threads="m")), PAIRS),
    ("lanes of two places", rows(phase("m", loops("", "s t", s="k", t="k"), threads="m")), PLACES),
    ("lanes of the first of two axes", rows(phase("m", loops("", "s", s="k"), threads="m")), PLACE),
    ("lanes of the second of two axes", rows(phase("m", loops("", "s", s="l"), threads="m")), SQUARE),
    ("lanes of a truth value", rows(phase("m", loops("", "s", s="k"), threads="m")), ANY),
    ("a place of truth values without lanes", scalar_plan(TRUTH, Wish()), TRUTH),
    ("blocks of lanes, shared", lone("s", axes="b m n", tile="m", threads="b n"), BATCH),
    ("as many points together as there are", rows(phase("m", loops("n", "e s", "n"), threads="m", group=8)), region({"m": 8, "n": 64}, [EXP, ex.let("s", "m", sum_of("n"))], Yield("s", "Y"))),
    ("fewer points together than others", rows(phase("b m", loops("n", "e s", "n"), threads="b m", group=8)), LINES),
    ("windows in tiles of each batch", rows(phase("b", *PLANES, threads="b j"), kept=stored(w="tile")), PLANE),
    ("windows in two tiles", rows(phase("", loops("i", "w u", "i"), loops("j", "v", "j"), threads="j"), kept=stored(w="tile", u="tile")), BOTH),
    ("columns in tiles", rows(phase("", loops("i c", "e", "c"), loops("j c", "v", "c"), threads="j"), kept=stored(e="tile")), MOVED),
    ("writes of what is stored", scattered("w v", w="register", v="workspace", where="recompute"), SCATTERED),
    ("writes of what is computed of what is stored", scattered("w", w="workspace", v="recompute", where="recompute"), SCATTERED),
    ("softmax", softmax(), SOFTMAX),
    ("softmax of one element at a time", scalar_plan(SOFTMAX, Wish()), SOFTMAX),
    ("softmax, two points together", softmax(group=2), SOFTMAX),
    ("softmax, sixteen points together", softmax(group=16), SOFTMAX),
    ("softmax, a workspace where a row is enough", softmax(kept=stored(e="workspace")), SOFTMAX),
    ("softmax, one thread", softmax(threads=""), SOFTMAX),
    ("softmax without vectors along the largest", softmax(loops("", "top"), WEIGHTS, LAST), SOFTMAX),
    ("layer norm", rows_plan(LAYER, Wish(), 16), LAYER),
    ("scan", scan("n", "m", "m"), SCANNED),
    ("scan of lines by one thread", scan(), SCANNED),
    ("scan of lines by threads", scan(threads="m"), SCANNED),
    ("scan of columns", scan("n m", vector="m", threads="m"), SCANNED),
    ("scan in blocks of one", scan(blocks=Blocks("n", 1, 1)), SCANNED),
    ("scan in blocks, carried", scan("n", "m", "m", blocks=Blocks("n", 64, 0)), SCANNED),
    ("scan in blocks, shared", scan(blocks=Blocks("n", 64, 2)), SCANNED),
    ("sum", rows(SUM), SUMS),
    ("sum in blocks", blocked(Blocks("k", 64)), SUMS),
    ("sum in four blocks", blocked(Blocks("k", 1024)), SUMS),
    ("map", mapped(), MAP),
    ("map of one loop", mapped("m", joined=(("m", "n"),), threads="m", vector="m"), MAP),
    ("map past the caches", mapped(nontemporal=("Y",)), MAP),
    ("map, both axes shared", mapped(threads="m", vector="n"), MAP),
    ("map along rows", mapped("n m", threads="n", vector="m"), MAP),
    ("map, nothing shared", mapped(threads=""), MAP),
    ("map, vectors shared", mapped("m", joined=(("m", "n"),), threads="m", vector="m"), MAP),
    ("transpose", rows(phase("", loops("m n", "s", "n", "m"), threads="n")), TURNED),
    ("product", rows_plan(GEMM, Wish(), 16), GEMM),
    ("attention", ATTEND, ATTENTION),
    ("windows in tiles", IN_TILES, WINDOWS),
    ("columns", rows(COLUMNS, SUBTRACT, kept=stored(s0="workspace")), NORM),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "of"), [g[1:] for g in GOOD], ids=[g[0] for g in GOOD])
def test_a_plan_at_the_edge_of_a_rule_is_accepted(plan: Plan, of: Region) -> None:
    assert faults(plan, of) == []


def joined(*groups: tuple[str, ...]) -> Any:
    return {"joined": groups}


WRONG: list[tuple[str, Plan, Region, str]] = [
    ("joins one axis", mapped(joined=(("m",),)), MAP, "joined axes m"),
    ("joins an axis twice", mapped(joined=(("m", "m"),)), MAP, "joined axes m, m"),
    ("joins what is no axis", mapped(joined=(("m", "q"),)), MAP, "joined axes m, q"),
    ("joins what does not lie together", softmax(joined=(("m", "n"),)), SOFTMAX, "joined (('m', 'n'),): "),
    ("vectors wider than the target's", softmax(width=32), SOFTMAX, "vectors of 32 elements; cpu:avx512 has 64 bytes, 16 elements"),
    ("vectors of one", softmax(width=1), SOFTMAX, "vectors of 1 elements"),
    ("vectors of twelve", softmax(width=12), SOFTMAX, "vectors of 12 elements"),
    ("an output that is none", mapped(nontemporal=("Q",)), MAP, "Q past the caches, which is not an output"),
    ("an output twice", mapped(nontemporal=("Y", "Y")), MAP, "Y, Y past the caches"),
    ("an output that no thread shares", mapped(threads="", nontemporal=("Y",)), MAP, "Y past the caches, which no loop that threads share"),
    ("blocks of an axis of maps", mapped(blocks=Blocks("n", 8)), MAP, "blocks of 'n', along which nothing reduces or scans"),
    ("blocks of an iterated axis", softmax(blocks=Blocks("n", 8)), SOFTMAX, "blocks of 'n', along which nothing"),
    ("blocks of nothing", scan(blocks=Blocks("n", 0, 1)), SCANNED, "blocks of 0 elements, 1 at a time"),
    ("less than no block at a time", scan("n", "m", "m", blocks=Blocks("n", 8, -1)), SCANNED, "blocks of 8 elements, -1 at a time"),
    ("blocks longer than lines", blocked(Blocks("k", 4097)), SUMS, "blocks of 4097 of 4096 elements"),
    ("blocks of a reduce in turns", blocked(Blocks("k", 64, 1)), SUMS, "blocks of a reduce, 1 at a time"),
    ("an unknown outer axis", softmax(outer="q"), SOFTMAX, "'q' is neither an axis nor a let of these loops"),
    ("unknown threads", softmax(threads="q"), SOFTMAX, "'q' is neither"),
    ("an unknown axis of a pass", softmax(TOP, WEIGHTS, loops("q", "p", "n")), SOFTMAX, "'q' is neither"),
    ("unknown lanes", softmax(TOP, WEIGHTS, loops("n", "p", "q")), SOFTMAX, "'q' is neither"),
    ("lanes of an unknown tile", softmax(TOP, WEIGHTS, loops("n", "p", "n", "q")), SOFTMAX, "'q' is neither"),
    ("an unknown axis of a reduce", softmax(loops("", "top", top="q"), WEIGHTS, LAST), SOFTMAX, "'q' is neither"),
    ("an unknown let", softmax(loops("", "top q"), WEIGHTS, LAST), SOFTMAX, "'q' is neither"),
    ("an unknown reduce", softmax(loops("", "top", q="n"), WEIGHTS, LAST), SOFTMAX, "'q' is neither"),
    ("storage of an unknown let", softmax(kept={**ROW, "q": "row"}), SOFTMAX, "'q' is neither"),
    ("outer axes twice", softmax(outer="m m"), SOFTMAX, "loops over m, m"),
    ("threads twice", softmax(threads="m m"), SOFTMAX, "loops over m, m"),
    ("axes of a pass twice", softmax(TOP, WEIGHTS, loops("n n", "p", "n")), SOFTMAX, "loops over n, n"),
    ("nothing to turn", softmax(turned=("z",)), SOFTMAX, "an operand of z turned"),
    ("turned twice", replace(ATTEND, turned=("S", "S")), ATTENTION, "an operand of S turned"),
    ("a let without storage", replace(softmax(), storage={"top": "register", "e": "row", "z": "register"}), SOFTMAX, "let p has no storage"),
    ("a let in two passes", softmax(TOP, TOP, WEIGHTS, LAST), SOFTMAX, "let top is in 2 passes"),
    ("a let recomputed in a pass", softmax(kept=stored(e="recompute")), SOFTMAX, "let e is recomputed and in a pass"),
    ("a let in no pass", softmax(TOP, loops("n", "z", "n"), LAST), SOFTMAX, "let e is in no pass and not recomputed"),
    ("a reduce recomputed", softmax(WEIGHTS, LAST, kept={**ROW, "top": "recompute"}), SOFTMAX, "let top is a reduce and recomputed"),
    ("a result recomputed", softmax(TOP, WEIGHTS, kept={**ROW, "p": "recompute"}), SOFTMAX, "let p is yielded and recomputed"),
    ("a scan recomputed", rows(phase("m", loops("n", "y", "n"), threads="m"), kept=stored(c="recompute")), SCANNED, "let c is a scan and recomputed"),
    ("a copy recomputed", replace(ATTEND, phases=ATTEND.phases[1:], storage={**ATTEND.storage, "S.t": "recompute"}), ATTENTION, "let S.t is a copy and recomputed"),
    ("a phase without passes", replace(softmax(), phases=(*softmax().phases, phase("m", threads="m"))), SOFTMAX, "phase 1 has a pass without lets, or none"),
    ("a pass without lets", softmax(TOP, WEIGHTS, LAST, loops("n", "", "n")), SOFTMAX, "phase 0 has a pass without lets, or none"),
    ("an outer axis that a let lacks", rows(phase("m n", loops("", "s0 y"), threads="m n")), NORM, "outer axis m is not an axis of s0"),
    ("a pass without an axis of its let", softmax(TOP, WEIGHTS, loops("", "p")), SOFTMAX, "pass 2 of phase 0 loops over nothing, p needs n"),
    ("a pass with an axis too many", rows(phase("m", loops("k", "s q"), threads="m"), kept=stored(q="register")), region({"m": "M"}, [ex.let("s", "m", ex.total("k", ex.read("X", "m", "k"))), ex.let("q", "m", ex.read("X", "m", 0))], Yield("s", "Y"), Yield("q", "Z"), reduced={"k": 64}), "pass 0 of phase 0 loops over k, q needs nothing | pass 0 of phase 0: reduces over its loops stand before other lets"),
    ("a fold before another let", softmax(TOP, loops("n", "z e", "n"), LAST), SOFTMAX, "pass 1 of phase 0: reduces over its loops stand before other lets"),
    ("a let before one it uses", softmax(TOP, LAST, WEIGHTS), SOFTMAX, "p stands before z, which it uses | p stands before e, which it uses"),
    ("a phase before one it uses", rows(SUBTRACT, COLUMNS, kept=stored(s0="workspace")), NORM, "y stands before s0, which it uses"),
    ("a fold in a register of its own pass", rows(phase("m", TOP, loops("n", "e p z", "n"), threads="m"), kept=ROW), SOFTMAX, "p stands before z, which it uses"),
    ("a row in a register", softmax(kept=stored(e="register")), SOFTMAX, "e is in a register; its readers need a row"),
    ("a later phase's operand in a row", rows(COLUMNS, SUBTRACT, kept=stored(s0="row")), NORM, "s0 is in a row; its readers need a workspace"),
    ("a later phase's operand in a register", rows(COLUMNS, SUBTRACT), NORM, "s0 is in a register; its readers need a workspace"),
    ("what nobody reads in a row", softmax(kept={**ROW, "p": "row"}), SOFTMAX, "p is in a row; its readers need a register"),
    ("tiles that no window reads", softmax(kept=stored(e="tile")), SOFTMAX, "e in tiles, which the next pass does not read as a window"),
    ("passes without outer axes", rows(phase("", loops("i", "w", "i"), loops("j", "v", "j"), threads="j"), kept=stored(w="workspace")), WINDOWS, "phase 0 has 2 passes without outer axes"),
    ("lanes along an outer axis", softmax(TOP, WEIGHTS, loops("n", "p", "m")), SOFTMAX, "vectors along m | loops over n, which run in the order n, m"),
    ("lanes of a short axis", mapped(), region({"m": 64, "n": 3}, [ex.let("s", "m n", Unary("exp", ex.read("X", "m", "n")))], Yield("s", "Y")), "vectors along n | vectors of 16 elements along axes of at most 3"),
    ("lanes of a map by a reduce", softmax(TOP, WEIGHTS, loops("n", "p", "n", p="n")), SOFTMAX, "vectors along n for p"),
    ("lanes of a fold by a reduce", softmax(TOP, loops("n", "e z", "n", z="n"), LAST), SOFTMAX, "vectors along n for z"),
    ("lanes of a reduce along another axis", softmax(loops("", "top", top="m"), WEIGHTS, LAST), SOFTMAX, "vectors along m for top"),
    ("a tile without lanes", rows(phase("", loops("m n", "s", "", "m"), threads="n")), TURNED, "lanes in blocks outside m | loops over m, n, which run in the order n, m | vectors of 16 elements along axes of at most 0"),
    ("a tile along the lanes", rows(phase("", loops("m n", "s", "n", "n"), threads="m")), TURNED, "lanes in blocks outside n"),
    ("a tile inside outer axes", softmax(TOP, WEIGHTS, loops("n", "p", "n", "m")), SOFTMAX, "lanes in blocks outside m | loops over n, which run in the order m, n"),
    ("loops in another order", mapped("n m"), MAP, "loops over n, m, which run in the order m, n"),
    ("vectors longer than lines", rows(phase("", loops("m n", "s", "n"), threads="m")), region({"m": 64, "n": 8}, [ex.let("s", "m n", Unary("exp", ex.read("X", "m", "n")))], Yield("s", "Y")), "vectors of 16 elements along axes of at most 8"),
    ("threads share what is no outer axis", softmax(threads="n"), SOFTMAX, "threads share n"),
    ("threads share a scan", scan(threads="n"), SCANNED, "threads share n"),
    ("threads share lanes and more", mapped(threads="m n"), MAP, "threads share m, n"),
    ("threads share blocks", scan(threads="m", blocks=Blocks("n", 64, 2)), SCANNED, "threads share m"),
    ("threads share lines, not blocks", scan("n", "m", "m", blocks=Blocks("n", 64, 2)), SCANNED, "threads share 2 blocks of n at a time, which no lone pass scans"),
    ("threads share less of tiles", rows(phase("", loops("m n", "s", "n", "m"), threads="")), TURNED, "threads share nothing"),
    ("threads share other tiles", rows(phase("", *IN_TILES.phases[0].passes, threads="i"), kept=stored(w="tile")), WINDOWS, "threads share i of passes in tiles"),
    ("blocks of what is no axis", scan(blocks=Blocks("q", 8)), SCANNED, "blocks of 'q', along which nothing"),
    ("blocks of a joined axis", rows(phase("m", loops("", "s"), threads="m"), joined=(("k", "l"),), blocks=Blocks("l", 8)), SQUARE, "blocks of 'l', along which nothing"),
    ("a fold and another reduce", rows(phase("m", loops("n", "q s", "n"), threads="m")), NESTED, "pass 0 of phase 0 reduces over its loops and holds more than maps"),
    ("a map before a scan", rows(phase("m", loops("n", "e c", "n"), threads="m")), TWO_SCANS["and a map"], "pass 0 of phase 0 holds scans and map, scan"),
    ("scans both ways", rows(phase("m", loops("n", "c d", "n"), threads="m")), TWO_SCANS["both ways"], "pass 0 of phase 0 scans along several axes or both ways"),
    ("a scan along an outer axis", rows(phase("n", loops("m", "c y", "m"), threads="n")), SCANNED, "pass 0 of phase 0 scans along outer axis n"),
    ("a scan of a scan", rows(phase("m", loops("n", "c d", "n"), threads="m")), TWO_SCANS["of each other"], "d uses c, not complete at that point of their pass"),
    ("a fold of a fold", rows(phase("m", loops("n", "e s v", "n"), threads="m")), FOLDS, "v uses s, not complete"),
    ("another point of the same pass", rows(phase("", loops("m n", "e y", "n"), threads="m")), SHIFTED, "y uses e, not complete"),
    ("another point of the same phase", rows(phase("m", loops("n", "e", "n"), loops("n", "y", "n"), threads="m"), kept=ROW), SHIFTED, "y reads e at another point of m"),
    ("a row that a later phase reads", rows(*STEPS, kept=ROW), TWICE, "e is in a row; its readers need a workspace"),
    ("one of two tiles in a row", rows(phase("", loops("i", "w u", "i"), loops("j", "v", "j"), threads="j"), kept=stored(w="tile", u="row")), BOTH, "w in tiles, which the next pass does not read"),
    ("tiles, and a row for nobody", softmax(kept=stored(e="tile", p="row")), SOFTMAX, "e in tiles"),
    ("two passes, and a register", rows(phase("", loops("i", "w", "i"), loops("j", "v", "j"), threads="j")), WINDOWS, "phase 0 has 2 passes without outer axes"),
    ("lanes of the second of two reduces", rows(phase("m", loops("", "s t", t="k"), threads="m")), PAIRS, "vectors along k for t"),
    ("lanes along columns and rows", lone("s", axes="n", threads="n", s="k"), HIGH, "vectors along k for s"),
    ("lanes of a reduce where all points have lanes", lone("q", vector="n", threads="m", q="k"), region({"m": "M", "n": 64}, [ex.let("q", "m n", sum_of("k", of=x("m", "n", "k")))], Yield("q", "Y"), reduced={"k": 64}), "q reduces by vectors of k where every point has lanes"),
    ("lanes of a short reduce", rows(phase("m", loops("", "s", s="k"), threads="m"), width=4), row_sum(size=3), "vectors along k for s | vectors of 4 elements along axes of at most 3"),
    ("lanes of the second axis of a place", rows(phase("m", loops("", "s", s="l"), threads="m")), PLACE, "vectors along l for s"),
    ("lanes of the place of a truth value", rows(phase("m", loops("", "s", s="k"), threads="m")), TRUTH, "vectors along k for s, the place of a truth value"),
    ("blocks of lanes inside outer axes", rows(phase("b", loops("m n", "s", "n", "m"), threads="b")), BATCH, "lanes in blocks outside m"),
    ("blocks of lanes of a fold", lone("e", "s", tile="m"), FOLDED, "lanes in blocks outside m"),
    ("blocks of lanes of a reduce", lone("q", tile="m"), region({"m": "M", "n": 64}, [ex.let("q", "m n", sum_of("k", of=x("m", "n", "k")))], Yield("q", "Y"), reduced={"k": 64}), "lanes in blocks outside m"),
    ("blocks of lanes of a map and a reduce", lone("e", "q", tile="m"), INNER, "lanes in blocks outside m"),
    ("blocks outside another pass's axis", rows(phase("", loops("n", "a", "n", "m")), phase("", loops("m n", "y", "n"), threads="m"), kept=stored(a="workspace")), ROW_AND_MAP, "lanes in blocks outside m | loops over n, which run in the order m, n"),
    ("blocks of lanes of tiles", rows(phase("", loops("i c", "e", "c", "i"), loops("j c", "v", "c"), threads="j"), kept=stored(e="tile")), MOVED, "lanes in blocks outside i"),
    ("threads share a fold", lone("e", "s", threads="m"), FOLDED, "threads share m"),
    ("threads share the lanes of a fold", lone("e", "s", axes="n", threads="n"), region({"n": "N"}, [ex.let("e", "n", Unary("exp", x("n"))), ex.let("s", "", sum_of("n"))], Yield("s", "Y")), "threads share n"),
    ("threads share the axis of a scan", scan("m n", vector="m", threads="n"), SCANNED, "loops over m, n, which run in the order n, m"),
    ("threads share the axis of a scan of lanes", scan("n m", vector="m", threads="n"), SCANNED, "threads share n"),
    ("threads share lanes of blocks", scan("n m", vector="m", threads="m", blocks=Blocks("n", 64, 2)), SCANNED, "threads share m"),
    ("nine points of eight together", rows(phase("m", loops("n", "e s", "n"), threads="m", group=16)), region({"m": 8, "n": 64}, [EXP, ex.let("s", "m", sum_of("n"))], Yield("s", "Y")), "16 neighbouring points together"),
    ("more points together than the last axis has", rows(phase("m b", loops("n", "e s", "n"), threads="m b", group=8)), LINES, "8 neighbouring points together"),
    ("points of a scan and a map together", rows(phase("m", loops("n", "c", "n"), loops("n", "y", "n"), threads="m", group=2), kept=stored(c="row")), SCANNED, "2 neighbouring points together"),
    ("points of no axis together", rows(phase("", loops("m n", "s", "n"), group=2)), MAP, "2 neighbouring points together"),
    ("points of batches in tiles together", rows(phase("b", *PLANES, threads="b", group=2), kept=stored(w="tile")), PLANE, "2 neighbouring points together | threads share b of passes in tiles"),
    ("writes of what is in registers", scattered("w v", w="register", v="register", where="recompute"), SCATTERED, "v is in a register; its readers need a workspace"),
    ("writes of what is computed of registers", scattered("w", w="register", v="recompute", where="recompute"), SCATTERED, "w is in a register; its readers need a workspace"),
    ("three points together", softmax(group=3), SOFTMAX, "3 neighbouring points together"),
    ("no point together", softmax(group=0), SOFTMAX, "0 neighbouring points together"),
    ("thirty-two points together", softmax(group=32), SOFTMAX, "32 neighbouring points together"),
    ("points of one thread together", softmax(group=2, threads=""), SOFTMAX, "2 neighbouring points together"),
    ("points of a scan together", rows(phase("m", loops("n", "c y", "n"), threads="m", group=2)), SCANNED, "2 neighbouring points together"),
    ("points of a lone pass together", rows(phase("", loops("m n", "s", "n"), threads="m", group=2)), MAP, "2 neighbouring points together"),
    ("points of tiles together", rows(phase("", *IN_TILES.phases[0].passes, threads="j", group=2), kept=stored(w="tile")), WINDOWS, "2 neighbouring points together"),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "of", "why"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_broken_rule_is_the_one_fault(plan: Plan, of: Region, why: str) -> None:
    found = faults(plan, of)
    wanted = why.split(" | ")
    assert len(found) == len(wanted) and all(f.startswith(w) for f, w in zip(found, wanted)), found


def test_a_routine_has_no_loops() -> None:
    sort = replace(SOFTMAX, lets=(), yields=(), opaque=Opaque("sort"))
    empty = Scalar((), {})
    assert faults(empty, sort) == []
    for fields in ({"phases": (SUM,)}, {"storage": ROW}, joined(("m", "n"))):
        assert faults(replace(empty, **fields), sort) == ["loops for the routine sort"]


def chain(count: int, wide: bool = False) -> tuple[Region, Scalar]:
    """Maps that read the one before, all but the last recomputed. `wide`: each reads the first one too."""

    def body(i: int) -> RegionExpr:
        e: RegionExpr = Unary("exp", Ref(f"l{i - 1}") if i else ex.read("X", "m"))
        return Binary("add", e, Ref("l0")) if wide and i > 1 else e

    lets = [ex.let(f"l{i}", "m", body(i)) for i in range(count + 1)]
    storage: dict[str, Storage] = {f"l{i}": "recompute" for i in range(count)}
    storage[f"l{count}"] = "register"
    return region({"m": "M"}, lets, Yield(f"l{count}", "Y")), Scalar((phase("m", loops("", f"l{count}")),), storage)


@pytest.mark.parametrize("wide", [False, True])
def test_forty_lets_are_evaluated_inside_each_other(wide: bool) -> None:
    of, plan = chain(40, wide)
    assert faults(plan, of) == []
    of, plan = chain(41, wide)
    assert faults(plan, of) == ["41 lets are evaluated inside each other"]
    first = replace(plan, phases=(phase("m", loops("", "l0 l41")),), storage={**plan.storage, "l0": "register"})
    assert faults(first, of) == []  # a stored one counts for nothing


def test_one_let_more_than_forty_follows_a_stored_one() -> None:
    of, plan = chain(42)
    first = replace(plan, phases=(phase("m", loops("", "l0 l42")),), storage={**plan.storage, "l0": "register"})
    assert faults(first, of) == ["41 lets are evaluated inside each other"]


def test_the_name_of_an_axis_stands_once_in_a_pass() -> None:
    assert faults(softmax(TOP, WEIGHTS, loops("n n", "p", "n")), SOFTMAX) == ["loops over n, n"]
