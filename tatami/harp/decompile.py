"""A frontend module as `.harp` text: reading it back gives the module, node for node.

The order of the nodes is kept. A value that is used once, is short and has no name of its own stands where it is used, if
its nodes directly precede its reader's; every other value is a statement. Names that are not legal in the language are
replaced by similar ones.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import to_builtins
from tatami.core.diagnostic import TatamiError, fail, raise_errors
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.numbers.collectives import COLLECTIVES
from tatami.core.scalar import number
from tatami.core.signature import Input
from tatami.frontend.graph import Graph as Scratch
from tatami.frontend.ir import Graph, Node
from tatami.frontend.node_view import INDEXED, LINEAR
from tatami.frontend.operation import attributes
from tatami.frontend.operations.control import CALLEES
from tatami.frontend.ops import OPS
from tatami.frontend.verify import verify
from tatami.harp.elaboration.calls import MOST_AXES
from tatami.harp.elaboration.values import dtype_name
from tatami.harp.fmt import format_text
from tatami.harp.writing.constants import Constants
from tatami.harp.writing.names import Names, is_name
from tatami.harp.writing.write import Code, number_code, size_text, string_text, type_text
from tatami.harp.writing.write_operation import expression

INLINE_CHARACTERS = 60
"""Maximum number of characters of an expression that stands where it is used."""
NONE = Code("none")
"""The text of an absent operand."""


@dataclass(frozen=True)
class Decompiled:
    """The text of a module, and the constants that it names."""

    text: str
    constants: Mapping[str, np.ndarray]

    def archive(self) -> bytes:
        """The constants as the bytes of an .npz that numpy.load reads; the same bytes each time."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as files:
            for name, array in self.constants.items():
                entry = io.BytesIO()
                np.lib.format.write_array(entry, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
                files.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), entry.getvalue())
        return out.getvalue()


def decompile(model: object) -> str:
    """The `.harp` text of a Graph or a frontend Module.

    Constants of more than 16 elements are named in it: read it back with
    ``tt.parse(text, constants=decompiled(model).constants)``. Raises TatamiError: the faults of the module, or one E1615
    that names everything for which the language has no words.

    >>> from tatami.core.dtype import DType
    >>> from tatami.frontend.graph import Graph
    >>> g = Graph()
    >>> x = g.input("x", ("N", 3), DType.fp32)
    >>> g.output("y", x / x.square().sum(1, keepdims=True).sqrt().expand("N", 3))
    >>> print(decompile(g), end="")
    graph<N> main(x: f32[N, 3]) -> (y: f32[N, 3]) {
        return x / x.square().sum(axis=1, keepdims=true).sqrt().expand([N, 3])
    }
    """
    return decompiled(model).text


def decompiled(model: object) -> Decompiled:
    """The text and the arrays of its named constants, which belong into an `.npz` next to it. Raises TatamiError."""
    if isinstance(model, Module):
        module: Module[Graph] = model
    else:
        make = getattr(model, "module", None)
        if not callable(make):
            raise fail(
                "UnknownFormat", type(model).__name__, "this kind of object has no text", "give a tt.Graph or its module"
            )
        module = make()
    raise_errors(verify(module))
    unsaid = [f"{at}: {what}" for name, graph in module.programs.items() for at, what in unsayable(name, graph)]
    if unsaid:
        how = "keep the frontend document; or leave layouts to the plan and name sizes by letters, digits and _"
        raise fail("Unsayable", unsaid[0].split(":")[0], f".harp has no words for {'; '.join(unsaid)}", how)
    constants = Constants(module)
    used = {n.op for g in module.programs.values() for n in g.graph}
    graphs = Names({"main", "setup", "constant", "if_else", "update", "assume", *used})
    texts = [_Writer(module, name, constants, graphs).text() for name in _callees_first(module.programs)]
    return Decompiled(format_text("\n".join(texts)), constants.named)


def unsayable(name: str, graph: Graph) -> Iterator[tuple[str, str]]:
    """(place, what) of everything the language has no words for."""
    signature = graph.signature
    for port in signature.inputs:
        if port.layout is not None:
            yield f"input {port.tensor}", f"the layout {port.layout.kind}"
    for output in signature.outputs:
        if output.layout is not None:
            yield f"output {output.tensor}", f"the layout {output.layout.kind}"
    if signature.must_bind:
        yield f"graph {name}", f"sizes that code depends on ({', '.join(signature.must_bind)})"
    symbols = {s for t in graph.tensors.values() for size in t.shape for s in free_vars(size)}
    for symbol in sorted({*symbols, *signature.defaults}):
        if not is_name(symbol):
            yield f"graph {name}", f"the size symbol {symbol!r}"
    for node in graph.graph:
        if node.op == "view" and len(graph.tensors[node.outputs[0]].shape) > MOST_AXES:
            yield f"node {node.name}", f"a view of more than {MOST_AXES} axes"


def _callees_first(programs: Mapping[str, Graph]) -> Iterator[str]:
    """Names of the graphs, each after those that it calls; main last."""
    done: set[str] = set()
    work = [(n, False) for n in ("main", *reversed([n for n in programs if n != "main"]))]
    while work:
        name, ready = work.pop()
        if ready:
            yield name
        elif name not in done and name in programs:
            done.add(name)
            called = [str(n.attrs[k]) for n in programs[name].graph for k in CALLEES.get(n.op, ()) if k in n.attrs]
            work += [(name, True), *((c, False) for c in reversed(called))]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A value that has no statement yet."""

    tensor: str
    code: Code
    node: Node


class _Writer:
    """The text of one graph. `pending`: values not written yet, in the order of their nodes: a reader may take them from the
    end only, and a statement is preceded by all of them."""

    def __init__(self, module: Module[Graph], name: str, constants: Constants, graphs: Names) -> None:
        self.module = module
        self.name = name
        self.graph = module.programs[name]
        self.constants = constants
        self.graphs = graphs
        self.symbols = _symbols(self.graph)
        self.names = Names(self.symbols)
        self.codes: dict[str, Code] = {}
        self.pending: list[_Pending] = []
        self.lines: list[str] = []
        self.makers = {o: n for n in self.graph.graph for o in n.outputs}
        signature = self.graph.signature
        self.uses = Counter(i for n in self.graph.graph for i in n.inputs)
        self.uses.update(o.tensor for o in signature.outputs)
        self.returned = {o.tensor for o in signature.outputs if o.updates is None}

    def text(self) -> str:
        signature = self.graph.signature
        parameters = [i for i in signature.inputs if not self._is_constant(i)]
        for port in parameters:
            self.codes[port.tensor] = Code(self.names[port.tensor])
        returned = [o for o in signature.outputs if o.updates is None]
        results = [f"{self.names[o.tensor]}: {type_text(o.dtype, o.shape)}" for o in returned]
        for port in signature.inputs:
            if self._is_constant(port):
                self._constant(port)
        for equation in signature.assumptions:
            self.lines.append(f"assume({size_text(equation.lhs)}, {size_text(equation.rhs)})")
        for node in self.graph.graph:
            self._node(node)
        for output in signature.outputs:
            if output.updates is not None:
                (value,) = self._operands([output.tensor])
                self._statement(f"update({self.codes[output.updates].text}, {value.text})")
        values = self._operands([o.tensor for o in returned])
        if values:
            self._statement(f"return {', '.join(v.text for v in values)}")
        bare = len(returned) == 1 and returned[0].tensor == "output"
        declared = type_text(returned[0].dtype, returned[0].shape) if bare else f"({', '.join(results)})"
        given = ", ".join(_parameter(port, self.names[port.tensor]) for port in parameters)
        name = "main" if self.name == "main" else self.graphs[self.name]
        body = "\n".join(self.lines)
        return f"graph{self._sizes()} {name}({given}) -> {declared} {{\n{body}\n}}\n"

    def _is_constant(self, port: Input) -> bool:
        return port.storage == "const_pool" and port.tensor in self.module.constants

    def _sizes(self) -> str:
        defaults = self.graph.signature.defaults
        sizes = [f"{s}={defaults[s]}" if s in defaults else s for s in self.symbols]
        return f"<{', '.join(sizes)}>" if sizes else ""

    def _constant(self, port: Input) -> None:
        code = Code(self.constants.text(port.tensor, port.role))
        if self.uses[port.tensor] == 1 and len(code.text) <= INLINE_CHARACTERS:
            self.codes[port.tensor] = code
        else:
            self._assign(port.tensor, code)

    # -- statements ------------------------------------------------------------------------------------
    def _statement(self, line: str) -> None:
        """Write a line, after all pending values."""
        self._flush(len(self.pending))
        self.lines.append(line)

    def _assign(self, tensor: str, code: Code) -> None:
        name = self.names[tensor]
        self.lines.append(f"{name} = {code.text}")
        self.codes[tensor] = Code(name)

    def _flush(self, count: int) -> None:
        for entry in self.pending[:count]:
            self._assign(entry.tensor, entry.code)
        del self.pending[:count]

    def _operands(self, tensors: Sequence[str]) -> list[Code]:
        """The operands as text; values pending at the end in this order are taken as expressions."""
        waiting = [e.tensor for e in self.pending]
        taken: dict[str, Code] = {}
        for tensor in reversed([t for t in tensors if t in waiting]):
            if waiting[-1:] == [tensor]:
                waiting.pop()
                taken[tensor] = self.pending.pop().code
        late = [k for k, e in enumerate(self.pending) if e.tensor in tensors]
        if late:
            self._flush(late[-1] + 1)
        return [NONE if not t else taken.get(t) or self.codes[t] for t in tensors]

    # -- nodes -----------------------------------------------------------------------------------------
    def _node(self, node: Node) -> None:
        code = self._code(node)
        if len(node.outputs) > 1:
            self._flush(len(self.pending))
            names = []
            for output in node.outputs:
                names.append(self.names[output])
                self.codes[output] = Code(names[-1])
            self.lines.append(f"({', '.join(names)}) = {code.text}")
            return
        (result,) = node.outputs
        self.pending.append(_Pending(result, code, node))
        too_long = len(code.text) > INLINE_CHARACTERS and result not in self.returned
        if self.uses[result] != 1 or too_long or _has_own_name(node):
            self._flush(len(self.pending))

    def _code(self, node: Node) -> Code:
        if node.op == "constant":
            return Code(f"constant({number_code(node.attrs['value']).text}, {dtype_name(DType(node.attrs['dtype']))})")
        if node.op == "call":
            sizes, new = attributes(OPS["call"], node).sizes, _new_sizes(node)
            if new and sizes:
                why = "a call that is given sizes and finds others has no form in .harp"
                raise fail("UnsupportedModel", node.name, why, "pass the sizes as operands of the graph")
            if new:
                given = [*(o.text for o in self._operands(node.inputs)), f"graph={self._callee(node, 'graph')}"]
                return Code(f"call({', '.join([*given, *new])})")
            arguments = [o.text for o in self._operands(node.inputs)] + [f"{k}={size_text(v)}" for k, v in sizes.items()]
            return Code(f"{self._callee(node, 'graph')}({', '.join(arguments)})")
        if node.op == "if":
            condition, *rest = self._operands(node.inputs)
            graphs = (self._callee(node, "then"), self._callee(node, "otherwise"))
            return Code(f"if_else({', '.join([condition.text, *graphs, *(o.text for o in rest), *_new_sizes(node)])})")
        if node.op == "loop":
            return self._loop(node)
        types = [self.graph.tensors[i] if i else None for i in node.inputs]
        numbers = self._numbers(node)
        operands = self._operands([t for k, t in enumerate(node.inputs) if k not in numbers])
        for k in sorted(numbers):
            operands.insert(k, numbers[k])
        numbers_itself = node.op in COLLECTIVES  # a method does: by its place among the collectives of the text
        return expression(node, operands, types, may_be_method=not numbers_itself and not self._would_be_laid_out(node))

    def _would_be_laid_out(self, node: Node) -> bool:
        """True if the method would first lay out its operand, which is read by index expressions: reshape and unfold do, the
        operations do not."""
        if node.op not in ("reshape", "unfold"):
            return False
        source = self.makers.get(node.inputs[0])
        while source is not None and source.op in LINEAR:
            source = self.makers.get(source.inputs[0])
        return source is not None and source.op in INDEXED

    def _callee(self, node: Node, attribute: str) -> str:
        name = str(node.attrs[attribute])
        return "main" if name == "main" else self.graphs[name]

    def _numbers(self, node: Node) -> dict[int, Code]:
        """Operand position -> text, for operands that are plain numbers: pending last, with the dtype that the Graph API gives
        a number among these operands."""
        waiting = list(self.pending)
        found: dict[int, Code] = {}
        values: dict[int, Node] = {}
        for k, tensor in reversed(list(enumerate(node.inputs[: OPS[node.op].least]))):
            if waiting and waiting[-1].tensor == tensor and waiting[-1].node.op == "constant":
                values[k] = waiting.pop().node
        if not values or len(values) == sum(map(bool, node.inputs)):
            return {}
        for k, dtype in self._lifted(node, values).items():
            if dtype.value != values[k].attrs["dtype"]:
                return {}
            found[k] = number_code(values[k].attrs["value"])
        del self.pending[len(waiting) :]
        return found

    def _lifted(self, node: Node, values: Mapping[int, Node]) -> dict[int, DType]:
        """The dtypes that the Graph API gives to numbers at these positions."""
        scratch = Scratch()
        operands: list[Any] = [
            number(values[k].attrs["value"]) if k in values else scratch.input(f"x{k}", (), self.graph.tensors[t].dtype)
            for k, t in enumerate(node.inputs)
            if t
        ]
        places = [k for k, t in enumerate(node.inputs) if t]
        try:
            lifted = scratch.lifted(operands, node.op)
        except TatamiError:  # a number that does not fit the dtype of the others
            return dict.fromkeys(values, DType.unknown)
        return {k: t.dtype for k, t in zip(places, lifted, strict=True) if k in values and t is not None}

    def _loop(self, node: Node) -> Code:
        """A loop in the form of the Graph API (graph, state, invariants, trip and condition), else in the form of the table's
        row."""
        attrs = attributes(OPS["loop"], node)
        count, condition, *rest = node.inputs
        last = self.pending[-1].node if self.pending and self.pending[-1].tensor == count else None
        made_size = last is not None and last.op == "size" and last.attrs == {"value": to_builtins(attrs.trip)}
        counted = attrs.trip is not None and made_size and not condition
        if attrs.size is not None or (attrs.trip is not None and not counted):
            operands = [o.text for o in self._operands(node.inputs)]
            named = {"body": self._callee(node, "body"), "carried": attrs.carried}
            named |= {"trip": size_text(attrs.trip)} if attrs.trip is not None else {}
            named |= {"size": string_text(attrs.size)} if attrs.size is not None else {}
            return Code(f"loop({', '.join([*operands, *(f'{k}={v}' for k, v in named.items()), *_new_sizes(node)])})")
        if counted:
            self.pending.pop()
        *given, trip, start = self._operands([*rest, "" if counted else count, condition])
        texts = [o.text for o in given]
        arguments = [self._callee(node, "body"), f"[{', '.join(texts[: attrs.carried])}]"]
        if texts[attrs.carried :]:
            arguments.append(f"[{', '.join(texts[attrs.carried :])}]")
        if count:
            arguments.append(f"trip={size_text(attrs.trip) if counted else trip.text}")
        if condition:
            arguments.append(f"condition={start.text}")
        return Code(f"loop({', '.join([*arguments, *_new_sizes(node)])})")


def _new_sizes(node: Node) -> list[str]:
    """The argument that names sizes which only a run decides; empty if there are none."""
    names = node.attrs.get("new", ())
    return [f"new=[{', '.join(map(string_text, names))}]"] if names else []


def _parameter(port: Input, name: str) -> str:
    plain = ((port.mutability, "immutable", "mut"), (port.storage, "argument", "pool"), (port.role, "data", port.role))
    words = [word for value, usual, word in plain if value != usual]
    return f"{' '.join([*words, name])}: {type_text(port.dtype, port.shape)}"


def _symbols(graph: Graph) -> list[str]:
    """The size symbols that a graph declares, in order of appearance."""
    out: dict[str, None] = dict.fromkeys(())
    for port in graph.signature.inputs:
        for size in port.shape:
            out.update(dict.fromkeys(sorted(free_vars(size))))
    out.update(dict.fromkeys(graph.signature.defaults))
    for node in graph.graph:
        for output in node.outputs:
            for size in graph.tensors[output].shape:
                out.update(dict.fromkeys(sorted(free_vars(size))))
    return list(out)


def _has_own_name(node: Node) -> bool:
    """True if a person named the node: names from builders begin with the operation."""
    stem = re.sub(r"[_.]?\d+\Z", "", node.name)
    return stem not in (node.op, "t", "")
