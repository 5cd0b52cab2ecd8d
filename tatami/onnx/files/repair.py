"""Checks and harmless repairs of a model's file, as far as the import needs them.

    nodes out of order                  sorted, in branches and bodies too
    an axis of size -1, named `?`       a size of its own
    an initialiser named twice          the last one is used, as in ONNX Runtime
    operands, attributes                as the operator's version requires (repair_node)
    states of a Loop that nobody reads  left out (dead_states)
    no opset, a newer one than known    that of the IR version; the newest known

Shapes and types of inner values and of results are not needed: the importer infers them. A model that cannot be run is
refused: values that are read and never made, made twice, or in a cycle. The given model is never changed, and only changed
parts are copied: it may be larger than one message can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
import onnx

from tatami.core.diagnostic import Diagnostic, diagnostic, fail
from tatami.onnx.files.dead_states import without_dead_states
from tatami.onnx.files.definitions import Holder, Stored, check_default, check_definitions, holders, is_constant, tensor_of
from tatami.onnx.files.order import Reads, graphs_of, ordered, words_of
from tatami.onnx.files.repair_node import repaired_node
from tatami.onnx.files.schemas import DEFAULT, opset_of_ir
from tatami.onnx.files.text import check_text

MAX_DEPTH = 100
"""Maximum number of graphs inside graphs; the protobuf reader has the same limit."""
_NO_NAME = re.compile(r"[^\w]*|-?1|None")
"""Names of axes that stand for no name: exporters write `?`, `-1` or nothing for an open size."""


class Repair(msgspec.Struct, frozen=True):
    """One change. `at`: its place; `what`: the change as text; `is_warning`: True if the user should be told."""

    at: str
    what: str
    is_warning: bool = False


@dataclass(frozen=True)
class Repaired:
    """A model that can be imported. Nodes, tensors and functions are the file's own if unchanged, else copies.

    `tensors`: initialisers and tensors of Constant nodes, by name; `nodes` has no Constant nodes. `overridable`: inputs
    that are initialisers too, which a caller may replace (IR version 4 and later); `inputs` are the others.
    """

    inputs: tuple[onnx.ValueInfoProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]
    nodes: tuple[onnx.NodeProto, ...]
    functions: tuple[onnx.FunctionProto, ...]
    opsets: Mapping[str, int]
    tensors: Mapping[str, Stored]
    overridable: Mapping[str, onnx.ValueInfoProto]
    repairs: tuple[Repair, ...] = ()

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return self.opsets[""]

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The repairs that the user should be told, as diagnostics."""
        how = "export the model again with a newer exporter; nothing need be done where the results are right"
        return tuple(diagnostic("ModelRepaired", r.at, r.what, how) for r in self.repairs if r.is_warning)


def repaired(model: onnx.ModelProto) -> Repaired:
    """The model after harmless repairs. Raises TatamiError if it cannot be run."""
    check_text(model)
    graph = model.graph
    if not graph.output:
        raise fail("UnsupportedModel", "model", "it has no graph with outputs", "export the model again")
    work = _Repairs({(f.domain, _called(f.name, f.overload)) for f in model.functions}, _opsets(model))
    work.note_opset(model)
    found = holders(graph, work.note)
    initialised = {name for name, h in found.items() if not isinstance(h, onnx.NodeProto)}
    check_definitions(graph, _alive(graph, found), set(), set(found), initialised)
    tensors = {name: t for name, h in found.items() if (t := tensor_of(h) if isinstance(h, onnx.NodeProto) else h) is not None}
    rest = [n for n in _alive(graph, found) if tensor_of(n) is None]
    nodes = work.nodes(rest, set(tensors) | {p.name for p in graph.input}, {p.name for p in graph.output}, 0)
    for p in graph.input:
        check_default(p, tensors.get(p.name))
    overridable = {p.name: work.port(p) for p in graph.input if p.name in initialised and model.ir_version >= 4}
    return Repaired(
        tuple(work.port(p) for p in graph.input if p.name not in tensors),
        tuple(graph.output),
        tuple(nodes),
        tuple(work.function(f) for f in model.functions),
        work.opsets,
        tensors,
        overridable,
        tuple(dict.fromkeys(work.found)),
    )


def _alive(graph: onnx.GraphProto, found: Mapping[str, Holder]) -> list[onnx.NodeProto]:
    """The nodes without Constants that a later definition of the same name replaces."""
    return [n for n in graph.node if not is_constant(n) or found[n.output[0]] is n]


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    """Versions by domain, ONNX's own domain spelt "" (with both spellings the newer one, as in ONNX Runtime)."""
    out: dict[str, int] = {}
    for o in model.opset_import:
        domain = "" if o.domain in DEFAULT else o.domain
        out[domain] = max(o.version, out.get(domain, 0))
    return out


@dataclass
class _Repairs:
    functions: set[tuple[str, str]]
    """Domains and names of the model's own functions."""
    opsets: dict[str, int]
    found: list[Repair] = field(default_factory=list)
    reads: Reads = field(default_factory=Reads)
    in_function: bool = False
    """True in the body of a function, whose attributes may refer to those of the call."""

    def note(self, at: str, what: str, is_warning: bool) -> None:
        self.found.append(Repair(at, what, is_warning))

    def note_opset(self, model: onnx.ModelProto) -> None:
        newest = onnx.defs.onnx_opset_version()
        given = self.opsets.get("", 0)
        if given < 1:
            self.opsets[""] = opset_of_ir(model.ir_version)
            what = f"no opset is named: {self.opsets['']} is taken, that of IR version {model.ir_version}"
            is_meant = any(n.domain in DEFAULT for n in model.graph.node)
            self.note("model", what, model.ir_version >= 3 and is_meant)
        elif given > newest:
            self.note("model", f"opset {given} is newer than the newest known, {newest}, whose operators are taken", True)

    def function(self, given: onnx.FunctionProto) -> onnx.FunctionProto:
        outer, self.in_function = self.opsets, True
        own = {("" if o.domain in DEFAULT else o.domain): o.version for o in given.opset_import}
        self.opsets = {**outer, **own}
        nodes = self.nodes(list(given.node), set(given.input), set(given.output), 0)
        self.opsets, self.in_function = outer, False
        if _same(nodes, given.node) and not given.overload:
            return given
        copy = onnx.FunctionProto()
        copy.CopyFrom(given)
        copy.name = _called(given.name, given.overload)
        copy.ClearField("overload")
        del copy.node[:]
        copy.node.extend(nodes)
        return copy

    def graph(self, given: onnx.GraphProto, around: set[str], depth: int) -> onnx.GraphProto:
        """A branch or body: itself, or a copy."""
        if depth > MAX_DEPTH:
            raise fail("RecursionDepth", given.name, f"graphs inside graphs more than {MAX_DEPTH} deep", "flatten the model")
        found = holders(given, self.note)
        kept = [t for t in given.initializer if found[t.name] is t]
        sparse = [t for t in given.sparse_initializer if found[t.values.name] is t]
        own = {name for name, h in found.items() if not isinstance(h, onnx.NodeProto)}
        alive = _alive(given, found)
        check_definitions(given, alive, around, set(found), own)
        results = {p.name for p in given.output}
        nodes = self.nodes(alive, around | own | {p.name for p in given.input}, results, depth)
        same = len(kept) == len(given.initializer) and len(sparse) == len(given.sparse_initializer)
        if same and _same(nodes, given.node):
            return given
        copy = onnx.GraphProto(name=given.name, node=nodes, initializer=kept, sparse_initializer=sparse)
        copy.input.extend(given.input)
        copy.output.extend(given.output)
        return copy

    def nodes(self, given: list[onnx.NodeProto], visible: set[str], results: set[str], depth: int) -> list[onnx.NodeProto]:
        """The nodes in order and repaired, with their branches and bodies. results: names that the graph gives."""
        order = ordered(given, self.reads)
        if order != list(range(len(given))):
            late = next(i for i, j in enumerate(order) if i != j)
            self.note(words_of(given[order[late]], order[late]), "nodes are not in the order in which they are computed", False)
        everything = visible | {o for n in given for o in n.output if o}
        has_loop = any(n.op_type == "Loop" for n in given)
        read = results.union(*(self.reads.of_node(n) for n in given)) if has_loop else results
        out = []
        for i in order:
            at = words_of(given[i], i)
            node = given[i]
            refers = next((a.ref_attr_name for a in node.attribute if a.ref_attr_name), "")
            if refers and not self.in_function:
                why = f"an attribute refers to {refers!r} of a function, and the node is in none"
                raise fail("InvalidAttribute", at, why, "give the attribute a value")
            if node.overload:
                node = onnx.NodeProto.FromString(node.SerializeToString())
                node.op_type = _called(node.op_type, node.overload)
                node.ClearField("overload")
            if (node.domain, node.op_type) not in self.functions:
                version = self.opsets.get("" if node.domain in DEFAULT else node.domain, 1 << 30)
                node = repaired_node(node, version, at, partial(self.note, at))
                if node.op_type == "Loop" and node.domain in DEFAULT:
                    node = self._without_dead_states(node, read, at)
            out.append(self._with_graphs(node, everything, depth))
        return out

    def _without_dead_states(self, node: onnx.NodeProto, read: set[str], at: str) -> onnx.NodeProto:
        made = without_dead_states(node, read, self.reads)
        if made is not node:
            self.note(at, f"{len(node.input) - len(made.input)} states that nothing reads are left out", False)
        return made

    def _with_graphs(self, node: onnx.NodeProto, visible: set[str], depth: int) -> onnx.NodeProto:
        before = list(graphs_of(node))
        if not before:
            return node
        after = [self.graph(g, visible, depth + 1) for g in before]
        if _same(after, before):
            return node
        copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name, input=node.input, output=node.output)
        rest = iter(after)
        for a in node.attribute:
            if a.HasField("g"):
                copy.attribute.add(name=a.name, type=a.type, g=next(rest))
            elif a.graphs:
                copy.attribute.add(name=a.name, type=a.type, graphs=[next(rest) for _ in a.graphs])
            else:
                copy.attribute.append(a)
        return copy

    def port(self, given: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        """An input whose open axes have neither a name nor a number."""
        dims = given.type.tensor_type.shape.dim if given.type.HasField("tensor_type") else ()
        open_axes = [i for i, d in enumerate(dims) if d.dim_value < 0 or (d.HasField("dim_param") and _is_no_name(d.dim_param))]
        if not open_axes:
            return given
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(given)
        for i in open_axes:
            dim = copy.type.tensor_type.shape.dim[i]
            said = dim.dim_param or dim.dim_value
            self.note(given.name, f"axis {i} of size {said!r} is a size of its own", False)
            dim.Clear()
        return copy


def _called(name: str, overload: str) -> str:
    """Name of a function in the import: overloads of one name (IR version 10) are separate functions."""
    return f"{name}:{overload}" if overload else name


def _is_no_name(name: str) -> bool:
    return _NO_NAME.fullmatch(name) is not None


def _same(a: Iterable[object], b: Iterable[object]) -> bool:
    left, right = list(a), list(b)
    return len(left) == len(right) and all(x is y for x, y in zip(left, right, strict=True))
