"""A gpu program as text: a kernel's frame, then one statement per line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tatami.core.kernel import condition_text
from tatami.core.lines import Line, ended, text_of
from tatami.core.module import Module
from tatami.gpu.ir import BodyKernel, Kernel, Program, Weights
from tatami.gpu.statement_ir import (
    BlockFold,
    CommitGroup,
    CopiesArrive,
    CpAsync,
    Epilogue,
    FenceAsync,
    Fma,
    GridDependency,
    LdMatrix,
    LoadTile,
    Loop,
    MBarrierArrive,
    MBarrierInit,
    Mma,
    Rescale,
    Role,
    SetMaxNReg,
    StBlocks,
    StGlobalVec,
    StMatrix,
    Stmt,
    StRows,
    SyncThreads,
    SyncWarpgroup,
    TmaFetch,
    TmaLoad,
    TmaStore,
    Token,
    Wait,
    Weigh,
    Wgmma,
    ZeroAcc,
)
from tatami.gpu.stream_ir import Fold, Running, SortKernel, StreamKernel, Write
from tatami.region.ir import Binary, Cast, Const, Index, Read, Reduce, Ref, RegionExpr, Select, Unary, Within


def show(module: Module[Program]) -> str:
    """Text of all programs: kernels, then a line per binding."""
    return text_of(show_lines(module))


def show_lines(module: Module[Program]) -> Iterator[Line]:
    """The same by lines, each of a kernel or, in a binding, of a Region."""
    return ended(_program(name, program) for name, program in module.programs.items())


def _program(name: str, program: Program) -> Iterator[Line]:
    yield Line(f"program {name}")
    for k in program.kernels:
        yield from (Line(text, (name, k.face.symbol)) for text in _kernel(k))
    for b in program.bindings:
        when = " and ".join(map(condition_text, b.conditions))
        yield Line(
            f"  run {b.kernel} for {b.region}({', '.join(b.buffers)}) sizes=[{', '.join(map(str, b.sizes))}] "
            f"grid=[{', '.join(map(str, b.grid))}] block={list(b.block)} shared={b.shared_bytes}"
            + (" dependent" if b.dependent else "")
            + (f" when {when}" if when else ""),
            (name, b.region),
        )


def _kernel(k: Kernel | StreamKernel | SortKernel | BodyKernel) -> list[str]:
    match k:
        case Kernel():
            return kernel_lines(k)
        case StreamKernel():
            return stream_lines(k)
        case SortKernel():
            return sort_lines(k)
        case BodyKernel():
            return body_lines(k)
        case _:
            assert_never(k)


def kernel_lines(k: Kernel) -> list[str]:
    """Lines of a contraction kernel: signature, operands, shared memory, statements."""
    params = ", ".join(f"{'out ' if p.written else ''}{p.name}: {p.dtype}" for p in k.params)
    out = [
        f"  kernel {k.face.symbol}({params}) {k.arch} {k.template} tile={list(k.tile)} stages={k.stages} threads={k.threads}"
        + (f" cluster={list(k.cluster)}" if k.ctas > 1 else ""),
        f"    C[{k.m}, {k.n}] += A * B over {k.k}" + (f" batch [{', '.join(map(str, k.batch))}]" if k.batch else ""),
        f"    tail {', '.join(k.tail) or 'none'}; grid {', '.join(f'{c}={r}' for c, r in sorted(k.grid.items()))}; "
        f"shared {k.shared_bytes} B; barriers {k.barrier_model}",
    ]
    if k.tile_rows is not None:
        first, count = k.tile_rows
        out.append(f"    rows of tiles {first} .. {first + count - 1}")
    if k.units:
        out.append(f"    {k.units} units share the blocks of k of all tiles evenly, in at most {k.split} pieces of a tile")
    if k.groups is not None:
        g = k.groups
        out.append(
            f"    matrix = how many of {g.ends}[{g.index}], e < {g.count}, are <= m; B is 0 unless matrix < {g.matrices}"
        )
    if k.weights is not None:
        out += _weights(k.weights)
    for o, name in ((k.a, "A"), (k.b, "B")):
        if o.gather is not None:
            guards = "".join(f", 0 where not 0 <= {g.index} < {g.size}" for g in o.guards)
            out.append(f"    {name} {o.dtype} {o.param}[{o.gather}]{guards}, {o.major}-major")
        elif o.param:
            place = f"{o.offset} + {'m' if name == 'A' else 'n'}*({o.stride_mn}) + k*({o.stride_k})"
            out.append(f"    {name} {o.dtype} {o.param}[{place}], {o.major}-major")
    for r in k.smem:
        swizzle = f", swizzle {r.swizzle}" if r.swizzle else ""
        out.append(f"    {r.name}: {r.slots} x {r.rows} rows of {r.row_bytes} B at {r.base}{swizzle}")
    for b in k.barriers:
        out.append(f"    {b.name}: {b.slots} mbarriers at {b.base}")
    return out + _body(k.body, 2)


def _weights(w: Weights) -> list[str]:
    out = []
    for i, f in enumerate(w.firsts):
        for o, name, row in ((f.left, f"left{i or ''}", "m"), (f.right, f"right{i or ''}", "key")):
            place = f"{o.offset} + {row}*({o.stride_mn}) + d*({o.stride_k})"
            out.append(f"    {name} {o.dtype} {o.param}[{place}], {o.major}-major")
    out += [f"    {x.name} = {x.param}[{x.index}]" for x in w.known]
    lets = "; ".join(f"{x.name} = {show_expr(x.expr)}" for x in w.lets)
    accs = "; ".join(f"acc{i or ''} = sum over d < {w.depth} of left{i or ''} * right{i or ''}" for i in range(len(w.firsts)))
    out.append(f"    {accs}{'; ' + lets if lets else ''}; {'weight' if w.direct else 'score'} = {show_expr(w.score)}")
    if w.excluded is not None:
        ends = [", ".join(map(str, e)) or "any" for e in (w.low, w.high)]
        seen = f", keys {ends[0]} to {ends[1]}" if w.low or w.high else ""
        whole = f", all where {w.nonfinite}[{w.nonfinite_at}] is not 0" if w.nonfinite else ""
        out.append(f"    where {show_expr(w.excluded)}{seen}{whole}")
    return out


def stream_lines(k: StreamKernel) -> list[str]:
    """Lines of a streaming kernel: signature, points, phases with their stores."""
    params = ", ".join(f"{'out ' if p.written else ''}{p.name}: {p.dtype}" for p in k.params)
    how = f"{k.threads} threads, {k.group} a point{' across' if k.across else ''}" + (
        f", {k.width} lanes" if k.width > 1 else ""
    )
    how += f" where {', '.join(f'{e} % {k.width} == 0' for e in k.even)}" if k.even else ""
    out = [f"  kernel {k.face.symbol}({params}) stream, {how}"]
    out.append(f"    for each [{', '.join(f'{a.name} < {a.size}' for a in k.points)}]:")
    if k.kept:
        kept = ", ".join(f"{r.tensor}[{r.map[0]}]" for r in k.kept)
        out.append(f"      {kept} kept, {k.turns} vectors a thread")
    if k.tile is not None:
        turned = ", ".join(f"{r.tensor}[{r.map[0]}]" for r in k.tile.reads)
        out.append(f"      {turned} along {k.tile.axis} by tiles of {k.tile.size} x {k.tile.size}")
    out += [f"      {x.name} : {x.dtype} = {show_expr(x.expr)}" for x in k.lets]
    out += [f"      {x.name} = {show_expr(x.value)}, {x.bounds} in {x.size}" for x in k.positions]
    sizes = {a.name: a.size for a in k.axes}
    for p in k.phases:
        loops = "".join(f"for {a} < {sizes[a]}: " for a in p.axes) if not isinstance(p, Fold) else ""
        match p:
            case Fold():
                value = f"{p.name} : {p.reduce.dtype} = {show_expr(p.reduce)}"
            case Running():
                way = (" exclusive" if p.scan.exclusive else "") + (" reverse" if p.scan.reverse else "")
                value = f"scan {p.scan.fn}{way} of {show_expr(p.scan.body)}"
            case Write():
                value = f"value : {p.dtype} = {show_expr(p.value)}"
            case _:
                assert_never(p)
        if not isinstance(p, Write) and p.part is not None:
            value += f", part {show_expr(p.part.number)} of {p.part.size}"
        if isinstance(p, Running) and p.start is not None:
            value += f" from {show_expr(p.start)}"
        if isinstance(p, Write) and p.share is not None:
            value += f" where {p.share.place} % {p.share.count} == {p.share.number}"
        out.append(f"      {loops}{value}" + (f", by {p.lane}" if p.lane else ""))
        out += [f"        {s.param}[{s.index}] {'wide ' if s.wide else ''}<-{_meeting(s.combine)}" for s in p.stores]
    return out


def _meeting(combine: str) -> str:
    return "" if combine == "set" else f" {combine}"


def sort_lines(k: SortKernel) -> list[str]:
    """Lines of a sort kernel: signature, then the lines it sorts."""
    params = ", ".join(f"{'out ' if p.written else ''}{p.name}: {p.dtype}" for p in k.params)
    way = "descending" if k.descending else "ascending"
    return [
        f"  kernel {k.face.symbol}({params}) sort by {k.step}, {k.threads} threads, {k.tile} in shared memory",
        f"    for each line of [{k.outer}, {k.length}, {k.inner}]: the first {k.keep}, {way}",
    ]


def body_lines(k: BodyKernel) -> list[str]:
    """Lines of a kernel with a custom body, its text included."""
    params = ", ".join(f"{'out ' if p.written else ''}{p.name}: {p.dtype}" for p in k.params)
    out = [f"  kernel {k.face.symbol}({params}) body, {k.threads} threads"]
    out.append(f"    for each [{', '.join(map(str, k.points))}], {', '.join(f'{s.name} = {s.value}' for s in k.sizes)}:")
    return [*out, *(f"    | {line}" for line in k.text.splitlines())]


LOOPS = {"blocks": "k in 0..KB", "tiles": "tile of this CTA", "chunks": "chunk c of the warpgroup's part"}
"""Text of a loop's variable, by the kind of loop."""


def _body(body: tuple[Stmt, ...], depth: int) -> list[str]:
    out: list[str] = []
    pad = "  " * depth
    for s in body:
        match s:
            case Loop():
                loop = LOOPS[s.over].replace("0..", f"{s.first}..")
                out += [f"{pad}for {loop}:", *_body(s.body, depth + 1)]
            case Role():
                who = "one thread" if s.elected else f"{s.count} warpgroup{'s' if s.count > 1 else ''}"
                turns = ", in turns" if s.turns else ""
                out += [f"{pad}{s.name} ({who} from warpgroup {s.first}{turns}):", *_body(s.body, depth + 1)]
            case _:
                out.append(pad + statement_text(s))
    return out


def statement_text(s: Stmt) -> str:
    """One line for one statement; a Loop or Role without its body."""
    match s:
        case CpAsync():
            return f"{_t(s.out_token)} = CpAsync {s.dst_smem}[{s.block}] of {s.tile} tile, {s.width} elements each{_inside(s.predicate)}"
        case CommitGroup():
            return "CommitGroup"
        case CopiesArrive():
            return f"CopiesArrive {s.mbarrier}[{s.block}]{' once stored' if s.stored else ''}"
        case TmaLoad():
            at = ", ".join(map(str, s.coords)) + (f" shifted by {', '.join(map(str, s.offsets))}" if s.offsets else "")
            return f"{_t(s.out_token)} = TmaLoad {s.dst_smem}[{s.block}] <- {s.desc}({at}), {s.bytes} B on {s.mbarrier}" + (
                f", a part by each CTA along {s.share}" if s.share else ""
            )
        case MBarrierInit():
            return f"MBarrierInit {s.mbarrier}, count {s.count}"
        case MBarrierArrive():
            token = f"{_t(s.out_token)} = " if s.out_token else ""
            expect = f", expect {s.expect_tx} B" if s.expect_tx else ""
            return f"{token}MBarrierArrive {s.mbarrier}[{s.block}]{f' of each CTA along {s.share}' if s.share else ''}{expect}"
        case Wait():
            how = f"{s.mbarrier}[{s.block}] phase {s.phase}" if s.model == "mbarrier" else f"{s.model} <= {s.pending} pending"
            return f"Wait({', '.join(map(_t, s.token))}) by {how}"
        case SyncThreads():
            token = f"{', '.join(map(_t, s.out_token))} = " if s.out_token else ""
            return f"{token}SyncThreads{' of the cluster' if s.cluster else ''}"
        case GridDependency():
            return "GridDependency"
        case SyncWarpgroup():
            return "SyncWarpgroup"
        case SetMaxNReg():
            return f"SetMaxNReg {s.action} {s.registers}"
        case ZeroAcc():
            return f"{s.acc} = 0"
        case LdMatrix():
            return f"LdMatrix{'.trans' if s.trans else ''} {s.src_smem}[{s.block}] after {_t(s.in_token)}"
        case Mma():
            return f"{_t(s.out_token)} = Mma {s.acc} {s.shape} x {s.k_steps} steps {s.dtype}"
        case Wgmma():
            trans = "".join(f" trans_{n}" for n, on in (("a", s.trans_a), ("b", s.trans_b)) if on)
            return (
                f"{_t(s.out_token)} = Wgmma {s.acc}{' fresh' if s.fresh else ''} {f'{s.a_smem}[{s.block}]' if s.a_smem else 'weights'},"
                f" {s.b_smem}[{s.block}] {s.shape} x {s.k_steps} steps"
                f" {s.dtype}{trans} after {', '.join(map(_t, s.in_token))}"
            )
        case Weigh():
            return f"{_t(s.out_token)} = Weigh {s.scores} after {_t(s.in_token)}"
        case Rescale():
            return f"{_t(s.out_token)} = Rescale {s.acc} after {_t(s.in_token)}"
        case LoadTile():
            return f"{_t(s.out_token)} = LoadTile {s.dst_smem}[{s.block}]{_inside(s.predicate)}"
        case Fma():
            return f"{_t(s.out_token)} = Fma {s.acc} after {', '.join(map(_t, s.in_token))}"
        case Epilogue():
            ops = "; ".join(f"{x.name} = {show_expr(x.expr)}" for x in s.ops)
            how = f"{' async' if s.async_ else ''}{f' by {s.ring}' if s.ring else ''}"
            how += f", {', '.join(f'{w.param}[{w.index}] {w.width} wide' for w in s.wide)}," if s.wide else ""
            return f"{_t(s.out_token)} = Epilogue{how} after {_t(s.in_token)}: {ops or 'nothing'}"
        case StGlobalVec():
            return f"StGlobalVec {s.ptr}[{s.index}] = {s.regs}, {s.width} wide{_inside(s.pred)} after {_t(s.in_token)}"
        case StRows():
            ops = "".join(f"; {x.name} = {show_expr(x.expr)}" for x in s.ops)
            return f"StRows {s.ptr}[{s.index}] = {s.regs} after {_t(s.in_token)}{ops}"
        case StBlocks():
            ops = "".join(f"; {x.name} = {show_expr(x.expr)}" for x in s.ops)
            return f"StBlocks {', '.join(map(_fold, s.folds))}{_inside(s.pred)} after {_t(s.in_token)}{ops}"
        case StMatrix():
            over = f" over {s.fetched}" if s.fetched else ""
            return f"StMatrix {s.dst_smem} = {s.regs} of {s.ptr}{over}{_inside(s.pred)} after {_t(s.in_token)}"
        case TmaFetch():
            at = ", ".join(map(str, s.coords))
            return f"{_t(s.out_token)} = TmaFetch {s.dst_smem} <- {s.desc}({at}) x{s.chunks}, {s.bytes} bytes on {s.mbarrier}"
        case FenceAsync():
            return "FenceAsync"
        case TmaStore():
            return f"{_t(s.out_token)} = TmaStore {s.desc}({', '.join(map(str, s.coords))}) <- {s.src_smem}"
        case Loop():
            return f"Loop over {s.over}"
        case Role():
            return f"Role {s.name}"
        case _:
            assert_never(s)


def _fold(f: BlockFold) -> str:
    what = f"exp({f.regs} - {f.top})" if f.top else f.regs
    return f"{f.ptr}[{f.index}] = {f.fn} of {what} over {'64 columns' if f.along == 'n' else '16 rows'}"


def _inside(axes: tuple[str, ...]) -> str:
    return f" if {', '.join(axes)} inside" if axes else ""


def _t(t: Token) -> str:
    return f"{t.name}[{t.block}]"


def show_expr(e: RegionExpr) -> str:
    """Text of an expression as an Epilogue or LoadTile holds it."""
    match e:
        case Read(tensor=t, map=m):
            return f"{t}[{', '.join(map(str, m))}]"
        case Ref(let=name):
            return name
        case Const(value=v):
            return str(v)
        case Index(value=v):
            return f"index({v})"
        case Within(guards=guards):
            return " and ".join(f"0 <= {g.index} < {g.size}" for g in guards) or "always"
        case Unary(fn=fn, x=x):
            return f"{fn}({show_expr(x)})"
        case Binary(fn=fn, x=x, y=y):
            return f"{fn}({show_expr(x)}, {show_expr(y)})"
        case Select(pred=p, then=t, other=o):
            return f"({show_expr(t)} where {show_expr(p)} else {show_expr(o)})"
        case Cast(x=x, to=to):
            return f"cast({show_expr(x)}, {to})"
        case Reduce(fn=fn, axes=axes, body=body):
            return f"{fn} over {', '.join(axes)} of {show_expr(body)}"
        case _:
            return type(e).__name__
