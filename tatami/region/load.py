"""Region documents of spec 3 §6.8: ``{"region": {…}}``, or ``{"regions": [{…}, …]}`` joined by tensor names.

Inferred if a document leaves it out: sizes of iters from the output or the reads, reduce axes from the reduces, the axes of a
let from the names it uses, dtypes of lets from their expressions. A MemRef without dtype has the dtype that the yields cast
to, else fp32. Reduces inside other expressions get lets of their own, named ``<op>_<axis>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tatami.core.diagnostic import diagnostic, fail, raise_errors
from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.layout import Layout, MemRef, layout_fault
from tatami.core.module import Module
from tatami.core.signature import Input, Output, Signature
from tatami.region.ir import Iter, Let, Param, Program, Reduce, Ref, Region, RegionExpr, Scan, Target, Yield
from tatami.region.loading.expressions import ExprLoader, index_of
from tatami.region.loading.infer import infer_constants, let_axes, read_sizes, reduce_names, with_broadcast
from tatami.region.verify import verify
from tatami.region.walk import Types, children, with_children

REGION_FIELDS = frozenset(["name", "iters", "reduce_axes", "inputs", "outputs", "lets", "yield", "yields"])
"""Fields that a Region of a document may have."""


def load(document: Any) -> Module[Program]:
    """The module of one program of a Region document, in explicit form. Raises TatamiError with every fault."""
    if not isinstance(document, dict) or not document.keys() & {"region", "regions"}:
        raise fail(
            "InvalidDocument", "document", "neither 'region' nor 'regions' stands at the top", "wrap the Region in one of them"
        )
    given = document.get("regions", [document.get("region")])
    if not isinstance(given, list) or not given:
        raise fail("InvalidDocument", "regions", "regions is not a list of Regions", "list them in order")
    bodies = [r.get("region", r) if isinstance(r, dict) else r for r in given]
    regions = [load_region(body, f"region {i}") for i, body in enumerate(bodies)]
    module = Module({"main": join(regions, frozenset(n for body in bodies for n in _aligned(body)))})
    faults = [
        diagnostic("NeutralInvalid", d.at, d.why, d.suggestion) if d.kind == "GuardNotNeutral" else d for d in verify(module)
    ]
    raise_errors(faults)
    return module


def _aligned(body: object) -> list[str]:
    """The tensors whose MemRefs in the JSON of a Region, which is well-formed, say an alignment."""
    ports = (*body.get("inputs", ()), *body.get("outputs", ())) if isinstance(body, dict) else ()
    return [p["name"] for p in ports if "alignment" in p["memref"]]


def join(regions: list[Region], aligned: frozenset[str]) -> Program:
    """The program of Regions joined by names: its inputs are tensors that no Region makes, its outputs tensors that no Region
    reads. `aligned`: tensors whose alignment is part of the signature."""
    made = {t.name: t for r in regions for t in r.outputs}
    read = {p.name: p for r in regions for p in r.inputs}
    inputs = {n: p for n, p in read.items() if n not in made}
    outputs = {n: t for n, t in made.items() if n not in read}
    signature = Signature(
        tuple(
            Input(
                n,
                p.memref.dtype,
                p.memref.shape,
                layout=p.memref.layout if p.memref.layout.kind != "row_major" else None,
                alignment=p.memref.alignment if n in aligned else 0,
            )
            for n, p in inputs.items()
        ),
        tuple(
            Output(
                n,
                t.memref.dtype,
                t.memref.shape,
                t.updates or None,
                alignment=t.memref.alignment if n in aligned and not t.updates else 0,
            )
            for n, t in outputs.items()
        ),
    )
    return Program(signature, tuple(inputs), tuple(outputs), tuple(regions))


def load_region(value: Any, at: str) -> Region:
    """One Region of a document. Raises TatamiError for the first malformed part."""
    if not isinstance(value, dict):
        raise fail("InvalidDocument", at, "a Region is an object", "see docs, spec 3 §6.8")
    at = str(value.get("name", at))
    if unknown := sorted(value.keys() - REGION_FIELDS):
        raise fail("InvalidDocument", at, f"unknown field {unknown[0]!r}", f"the fields are {', '.join(sorted(REGION_FIELDS))}")
    yields = _list(value, "yield" if "yield" in value else "yields", at)
    casts = {y["cast"] for y in yields if isinstance(y, dict) and y.get("cast")}
    default = _dtype(casts.pop(), at) if len(casts) == 1 else DType.fp32
    inputs = tuple(Param(_name(p, at), _memref(p, default, at)) for p in _list(value, "inputs", at))
    outputs = tuple(
        Target(_name(t, at), _memref(t, default, at), _materialize(t, at), t.get("updates", ""))
        for t in _list(value, "outputs", at)
    )
    parts = _Parts(at, {p.name: p for p in inputs}, [str(_name(i, at)) for i in _list(value, "iters", at)])
    for item in _list(value, "lets", at):
        parts.let(item)
    written = tuple(_yield(y, at) for y in yields)
    sizes = {_name(i, at): index_of(i["size"], at) for i in _list(value, "iters", at) if "size" in i}
    sizes |= {_name(i, at): index_of(i["size"], at) for i in _list(value, "reduce_axes", at) if "size" in i}
    return parts.region(outputs, written, sizes)


class _Parts:
    """The lets of a document, read one after the other."""

    def __init__(self, at: str, tensors: Mapping[str, Param], iters: list[str]) -> None:
        self.at = at
        self.tensors = tensors
        self.iters = iters
        self.lets: dict[str, RegionExpr] = {}
        self.declared: dict[str, tuple[tuple[str, ...] | None, DType | None]] = {}

    def let(self, item: Any) -> None:
        """Read one let of the document. Raises TatamiError for a missing or repeated name."""
        name = item.get("let") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise fail("InvalidDocument", self.at, "a let has no name", 'write {"let": name, "expr": …}')
        at = f"{self.at}: {name}"
        if name in self.lets:
            raise fail("DuplicateId", at, "the let is assigned twice", "a let is assigned once (SSA)")
        loader = ExprLoader(at, self.lets, self.tensors)
        loader.axes = frozenset(self.iters) | frozenset(reduce_names(item.get("expr")))
        e = self.hoist(loader.value(item.get("expr")), root=True)
        self.lets[name] = e
        axes = item.get("axes")
        self.declared[name] = (
            None if axes is None else tuple(axes),
            None if "dtype" not in item else loader.dtype(item["dtype"]),
        )

    def hoist(self, e: RegionExpr, root: bool) -> RegionExpr:
        """The expression with every inner reduce and scan moved to a let of its own."""
        parts = tuple(self.hoist(c, False) for c in children(e))
        e = with_children(e, parts)
        if root or not isinstance(e, Reduce | Scan):
            return e
        base = f"{e.fn}_{'_'.join(e.axes) if isinstance(e, Reduce) else e.axis}"
        name, number = base, 1
        while name in self.lets:
            number += 1
            name = f"{base}_{number}"
        self.lets[name] = e
        self.declared[name] = (None, None)
        return Ref(name)

    def region(self, outputs: tuple[Target, ...], yields: tuple[Yield, ...], sizes: dict[str, Expr]) -> Region:
        """The Region with axes, sizes and dtypes filled in."""
        reduced = [a for e in self.lets.values() if isinstance(e, Reduce) for a in e.axes if a not in self.iters]
        known = [*self.iters, *dict.fromkeys(reduced)]
        axes: dict[str, tuple[str, ...]] = {}
        for name, e in self.lets.items():
            axes[name] = self.declared[name][0] or let_axes(e, axes, known)
        targets = {t.name: t for t in outputs}
        for y in yields:
            if y.map is None and y.to in targets and y.source in axes:
                for a, size in zip(axes[y.source], targets[y.to].memref.shape):
                    sizes.setdefault(a, size)
        for a, size in read_sizes(self.lets.values(), {n: p.memref.shape for n, p in self.tensors.items()}, known).items():
            sizes.setdefault(a, size)
        if missing := [a for a in known if a not in sizes]:
            raise fail(
                "UnboundSymbol",
                self.at,
                f"the size of axis {missing[0]} is not known",
                f'give {{"name": "{missing[0]}", "size": …}}',
            )
        draft = Region(
            self.at,
            tuple(Iter(a, sizes[a]) for a in self.iters),
            tuple(Iter(a, sizes[a]) for a in known if a not in self.iters),
            tuple(self.tensors.values()),
            outputs,
            (),
            yields,
        )
        lets: list[Let] = []
        for name, e in self.lets.items():
            types = Types(msgspec.structs.replace(draft, lets=tuple(lets)))
            e = with_broadcast(e, axes[name], sizes, axes)
            e = infer_constants(e, types)
            wanted = self.declared[name][1]
            dtype = wanted or types.of(e) or _fallback(e, types)
            lets.append(Let(name, axes[name], dtype, e))
        return msgspec.structs.replace(draft, lets=tuple(lets))


def _fallback(e: RegionExpr, types: Types) -> DType:
    """A dtype for a let whose expression has none by the rules; the verifier then gives the reason."""
    found = [d for c in children(e) if (d := types.of(c) or _fallback(c, types)) != DType.unknown]
    return max(found, key=lambda d: (d.is_float, d.itemsize), default=DType.unknown)


def _list(value: Mapping[str, Any], name: str, at: str) -> list[Any]:
    items = value.get(name, [])
    if not isinstance(items, list):
        raise fail("InvalidDocument", at, f"{name} is not a list", f"write {name} as a list")
    return items


def _name(item: Any, at: str) -> str:
    if isinstance(item, str):
        return item
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise fail("InvalidDocument", at, f"{str(item)[:60]} has no name", 'write {"name": …}')
    return str(item["name"])


def _dtype(name: Any, at: str) -> DType:
    try:
        return DType(name)
    except ValueError:
        raise fail("UnknownDType", at, f"{name!r} is not a dtype", f"use one of {', '.join(d.value for d in DType)}") from None


def _materialize(item: Mapping[str, object], at: str) -> Literal["gmem", "deferred"]:
    match item.get("materialize", "gmem"):
        case "gmem":
            return "gmem"
        case "deferred":
            return "deferred"
        case word:
            raise fail("InvalidDocument", f"{at}: {item.get('name')}", f"materialize {word!r}", "write gmem or deferred")


def _memref(item: Any, default: DType, at: str) -> MemRef:
    ref = item.get("memref", {}) if isinstance(item, dict) else {}
    where = f"{at}: {_name(item, at)}"
    if not isinstance(ref, dict) or not isinstance(ref.get("shape"), list):
        raise fail("InvalidDocument", where, "a MemRef has a shape", 'write {"memref": {"shape": […]}}')
    if unknown := sorted(ref.keys() - {"dtype", "shape", "alignment", "noalias", "layout"}):
        raise fail(
            "InvalidDocument", where, f"unknown MemRef field {unknown[0]!r}", "use dtype, shape, alignment, noalias, layout"
        )
    dtype = _dtype(ref["dtype"], where) if "dtype" in ref else default
    shape = tuple(index_of(s, where) for s in ref["shape"])
    alignment = ref.get("alignment", 64)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise fail("LayoutMismatch", where, f"alignment {alignment}", "use a power of two of bytes")
    return MemRef(dtype, shape, alignment, _flag(ref, "noalias", where), _layout(ref.get("layout", {}), len(shape), where))


def _flag(ref: Mapping[str, object], name: str, at: str) -> bool:
    if not isinstance(value := ref.get(name, True), bool):
        raise fail("InvalidDocument", at, f"{name} {value!r}", "write true or false")
    return value


def _layout(value: Any, rank: int, at: str) -> Layout:
    from tatami.core.codec import from_builtins

    if not isinstance(value, dict):
        raise fail("InvalidDocument", at, "a layout is an object", 'write {"kind": "row_major"}')
    fields = {k: v for k, v in value.items() if k != "params"} | dict(value.get("params", {}))
    if "pattern" in fields:  # the specification's field
        fields["swizzle"] = fields.pop("pattern")
    layout: Layout = from_builtins(fields, Layout, at)
    if why := layout_fault(layout, rank):
        raise fail("LayoutMismatch", at, why, "write the layout's own fields")
    return layout


def _yield(item: Any, at: str) -> Yield:
    if not isinstance(item, dict) or not isinstance(item.get("from"), str) or not isinstance(item.get("to"), str):
        raise fail("InvalidDocument", at, "a yield names a let and an output", 'write {"from": …, "to": …}')
    entries = item.get("map")
    return Yield(
        item["from"],
        item["to"],
        None if item.get("cast") is None else _dtype(item["cast"], at),
        None if entries is None else tuple(None if m is None else index_of(m, at) for m in entries),
        tuple(item.get("indices", ())),
        item.get("combine", "set"),
        item.get("bounds", "wrap"),
    )
