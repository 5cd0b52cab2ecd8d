"""A Region that no MMA template takes, as a list of kernels: one per pass, a thread per point (DESIGN §3 gpu).

    m = max over k of x[i, k]        k0: a thread per i, result to scratch
    s = sum over k of exp(x - m)     k1
    y = exp(x - m) / s               k2: a thread per (i, k), result to the output

Lets that reduce or scan, and lets read at moved coordinates, are stored; all others are computed where they are used.
"""

from __future__ import annotations

import msgspec

from tatami.core.bounds import linearize
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import ONE, Expr, ceildiv, free_vars, product, substitute, var
from tatami.core.kernel import Binding, Condition
from tatami.core.layout import MemRef, address
from tatami.gpu.ir import NO_FACE, Param, StreamKernel, StreamStore
from tatami.plan.ir import GpuStream
from tatami.region.ir import (
    At,
    Binary,
    Cast,
    Index,
    Iter,
    Let,
    Random,
    Read,
    ReadAt,
    Reduce,
    Ref,
    Region,
    RegionExpr,
    Scan,
    Within,
)
from tatami.region.walk import all_axes, is_widening, lets_by_name, nodes, rewrite, used_lets


def lower_stream(region: Region, plan: GpuStream, conditions: tuple[Condition, ...]) -> list[tuple[StreamKernel, Binding]]:
    """Kernels in order with their bindings. Raises InvalidPlan for what has no CUDA text yet."""
    return _Stream(region, plan, conditions).kernels()


class _Stream:
    def __init__(self, region: Region, plan: GpuStream, conditions: tuple[Condition, ...]) -> None:
        self.region = region
        self.plan = plan
        self.conditions = conditions
        self.lets = lets_by_name(region)
        self.extents = all_axes(region)
        self.memrefs: dict[str, MemRef] = {p.name: p.memref for p in region.inputs}
        self.memrefs |= {t.name: t.memref for t in region.outputs}
        rows = {n for n, where in plan.storage.items() if where in ("row", "workspace")}
        self.stored = stored_lets(region) | (rows & self.lets.keys())
        for let in region.lets:
            for e in nodes(let.expr):
                if isinstance(e, ReadAt | Random):
                    raise self.refuse(f"let {let.name} holds {type(e).__name__}")
        for y in region.yields:
            if y.indices or y.combine != "set":
                raise self.refuse(f"output {y.to} is scattered")

    def refuse(self, why: str) -> TatamiError:
        return fail("InvalidPlan", self.region.name, f"no GPU template takes this Region: {why}", "compile for the CPU")

    def kernels(self) -> list[tuple[StreamKernel, Binding]]:
        out = []
        declared: set[str] = set()
        for let in self.region.lets:
            yields = tuple(y for y in self.region.yields if y.source == let.name)
            if let.name in self.stored or yields:
                out.append(self.kernel(let, declared))
        return out

    def kernel(self, let: Let, declared: set[str]) -> tuple[StreamKernel, Binding]:
        """The kernel that computes one let at all its points and writes it to scratch and to the outputs."""
        local = self.locals_of(let)
        targets: list[tuple[str, DType, Expr]] = []
        mine = tuple(var(a) for a in let.axes)
        shape = tuple(self.extents[a] for a in let.axes)
        if let.name in self.stored and self.is_read(let.name):
            targets.append((self.scratch_name(let.name), let.dtype, linearize(mine, shape)))
        for y in self.region.yields:
            if y.source == let.name:
                memref = self.memrefs[y.to]
                where = tuple(e for e in y.map if e is not None) if y.map is not None else mine
                targets.append((y.to, memref.dtype, address(memref.layout, memref.shape, where)))
        exprs = [x.expr for x in (*local, let)]
        names: dict[str, DType] = {}
        for e in exprs:
            for n in nodes(e):
                if isinstance(n, Read):
                    names.setdefault(n.tensor, self.memrefs[n.tensor].dtype)
                elif isinstance(n, Ref | At) and n.let in self.stored:
                    names.setdefault(self.scratch_name(n.let), self.lets[n.let].dtype)
        written = [t for t, _, _ in targets]
        for t, d, _ in targets:
            names.setdefault(t, d)
        param = {name: f"p{i}" for i, name in enumerate(names)}
        reduce_axes = [a for e in exprs for n in nodes(e) if isinstance(n, Reduce) for a in n.axes]
        axes = list(dict.fromkeys([*let.axes, *reduce_axes]))
        rename: dict[str, Expr] = {a: var(f"i{j}") for j, a in enumerate(axes)}
        symbols = self.symbols(exprs, axes, [e for _, _, e in targets])
        rename |= {s: var(f"s{j}") for j, s in enumerate(symbols)}
        let_name = {x.name: f"v{j}" for j, x in enumerate(local)}

        def text_form(e: RegionExpr) -> RegionExpr:
            return rewrite(e, lambda n: self.renamed(n, param, rename, let_name))

        scan = let.expr if isinstance(let.expr, Scan) else None
        value = scan.body if scan is not None else let.expr
        kernel = StreamKernel(
            face=NO_FACE,
            params=tuple(Param(param[n], d, n in written) for n, d in names.items()),
            axes=tuple(Iter(str(rename[a]), substitute(self.extents[a], rename)) for a in let.axes),
            reduce_axes=tuple(Iter(str(rename[a]), substitute(self.extents[a], rename)) for a in axes if a not in let.axes),
            lets=tuple(
                Let(let_name[x.name], tuple(str(rename[a]) for a in x.axes), x.dtype, text_form(self.widened(x.expr, x.dtype)))
                for x in local
            ),
            dtype=let.dtype,
            value=text_form(self.widened(value, let.dtype)),
            stores=tuple(StreamStore(param[t], substitute(e, rename)) for t, _, e in targets),
            threads=self.plan.threads,
            scan=None
            if scan is None
            else msgspec.structs.replace(scan, axis=str(rename[scan.axis]), body=text_form(scan.body)),
        )
        points = product(self.extents[a] for a in let.axes if scan is None or a != scan.axis)
        scratch = tuple(
            (n, product(shape) * let.dtype.itemsize) for n in written if n == self.scratch_name(let.name) and n not in declared
        )
        declared.update(n for n, _ in scratch)
        binding = Binding(
            self.region.name,
            "",
            tuple(names),
            tuple(var(s) for s in symbols),
            conditions=self.conditions,
            scratch=scratch,
            grid=(ceildiv(points, self.plan.threads), ONE, ONE),
            block=(self.plan.threads,),
        )
        return kernel, binding

    # -- parts -----------------------------------------------------------------------------------
    def scratch_name(self, let: str) -> str:
        return f"let{list(self.lets).index(let)}"

    def is_read(self, name: str) -> bool:
        return any(name in used_lets(x.expr) for x in self.region.lets)

    def locals_of(self, let: Let) -> tuple[Let, ...]:
        """Lets that are not stored and that `let` uses, directly or through each other, in order."""
        need: set[str] = set()
        stack = list(used_lets(let.expr))
        while stack:
            n = stack.pop()
            if n not in self.stored and n not in need:
                need.add(n)
                stack += used_lets(self.lets[n].expr)
        return tuple(x for x in self.region.lets if x.name in need)

    def widened(self, e: RegionExpr, dtype: DType) -> RegionExpr:
        """D2.21: a product of narrow operands that is wanted wide is exact: its operands are cast up."""
        from tatami.region.walk import Types

        types = Types(self.region)

        def step(x: RegionExpr, wanted: DType) -> RegionExpr:
            if isinstance(x, Binary) and x.fn == "mul":
                d = types.of(x.x)
                if d is not None and is_widening("mul", d, wanted):
                    return Binary("mul", Cast(x.x, wanted), Cast(x.y, wanted))
            if isinstance(x, Reduce):
                return msgspec.structs.replace(x, body=step(x.body, x.dtype))
            return x

        return step(e, dtype)

    def renamed(self, n: RegionExpr, param: dict[str, str], names: dict[str, Expr], let_name: dict[str, str]) -> RegionExpr:
        def index(e: Expr) -> Expr:
            return substitute(e, names)

        match n:
            case Read(tensor=t, map=m):
                ref = self.memrefs[t]
                return Read(param[t], (index(address(ref.layout, ref.shape, m)),))
            case Ref(let=name) if name in self.stored:
                x = self.lets[name]
                at = linearize(tuple(var(a) for a in x.axes), tuple(self.extents[a] for a in x.axes))
                return Read(param[self.scratch_name(name)], (index(at),))
            case At(let=name, map=m):
                x = self.lets[name]
                return Read(param[self.scratch_name(name)], (index(linearize(m, tuple(self.extents[a] for a in x.axes))),))
            case Ref(let=name):
                return Ref(let_name[name])
            case Index(value=v, dtype=d):
                return Index(index(v), d)
            case Within(guards=guards):
                return Within(tuple(type(g)(index(g.index), index(g.size)) for g in guards))
            case Reduce(axes=axes):
                return msgspec.structs.replace(n, axes=tuple(str(names[a]) for a in axes))
            case _:
                return n

    def symbols(self, exprs: list[RegionExpr], axes: list[str], more: list[Expr]) -> tuple[str, ...]:
        """Size symbols that the kernel needs, in order."""
        out: dict[str, None] = {}

        def see(e: Expr) -> None:
            for name in sorted(free_vars(e)):
                if name not in self.extents:
                    out.setdefault(name)

        for a in axes:
            see(self.extents[a])
        for e in more:
            see(e)
        for expr_ in exprs:
            for n in nodes(expr_):
                match n:
                    case Read(tensor=t, map=m):
                        see(address(self.memrefs[t].layout, self.memrefs[t].shape, m))
                    case Ref(let=name) | At(let=name):
                        for a in self.lets[name].axes:
                            see(self.extents[a])
                        if isinstance(n, At):
                            for i in n.map:
                                see(i)
                    case Index(value=v):
                        see(v)
                    case Within(guards=guards):
                        for g in guards:
                            see(g.index)
                            see(g.size)
                    case Reduce(axes=inner):
                        for a in inner:
                            see(self.extents[a])
                    case _:
                        pass
        return tuple(out)


def stored_lets(region: Region) -> frozenset[str]:
    """Lets that live in memory between kernels."""
    out = {let.name for let in region.lets if any(isinstance(n, Reduce | Scan) for n in nodes(let.expr))}
    out |= {n.let for let in region.lets for n in nodes(let.expr) if isinstance(n, At)}
    return frozenset(out)
