"""Products of one operand with several constant matrices become one product with the joined matrix, on a CPU.

    q = x @ dequantize(wq, sq)                  y = x @ dequantize(wq | wk, sq | sk)
    k = x @ dequantize(wk, sk)          ->      q, k = y[..., :nq], y[..., nq:]

The operand is then read, packed and rounded once, one kernel takes the place of several, and its columns are enough for all
threads. Matrices are constants as they are, cast, or dequantised, perhaps transposed; all siblings have the same form. The joined
constants are derived from those of the model (`core/numbers/derived.py`), so that nothing is in memory twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tatami.core.codec import dump_text
from tatami.core.expr import expr, product
from tatami.core.module import Module
from tatami.core.numbers.derived import Derivation, DerivedTensor
from tatami.core.target import Target
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operation import attributes
from tatami.frontend.operations.contraction import Gemm
from tatami.frontend.operations.elementwise import Dequantize
from tatami.frontend.ops import OPS
from tatami.frontend.rewrites.rewriting import Rewriting, Subject, rewrite_graphs

_PRODUCTS = ("matmul", "linear", "gemm")
_KEPT = ("contiguous", "identity", "cast")
"""Operations of a chain that keep every element's place."""
ROWS = 16
"""Maximum number of rows of products that are joined if it is known. Open rows may be one, and 256 of them gain too; a program for
many rows alone keeps an epilogue for each product."""


class Link(NamedTuple):
    """One constant of a matrix and its axis along the columns of the product."""

    tensor: str
    axis: int


class Weights(NamedTuple):
    """A constant matrix with the nodes that make it of constants. `form`: equal for matrices that differ in content and number of
    columns alone."""

    form: tuple[object, ...]
    chain: tuple[Node, ...]
    links: tuple[Link, ...]
    columns: int


def join_siblings(module: Module[Graph], target: Target) -> Module[Graph]:
    """The module with sibling products joined, if `target` is a CPU; else the module."""
    if target.kind != "cpu":
        return module
    return rewrite_graphs(module, _Joining, lambda graph: sum(n.op in _PRODUCTS for n in graph.graph) > 1)


class _Joining(Rewriting):
    """The rewriting of one graph."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        graph, module = self.graph, self.module
        self.uses = Counter(i for n in graph.graph for i in n.inputs)
        self.uses.update(o.tensor for o in graph.signature.outputs)
        self.uses.update(dict.fromkeys(module.overridable, 2))

    def result(self) -> Graph:
        """The graph with its siblings joined, in the place of the first of them; the graph itself if there are none."""
        families = self.families()
        first = {members[0][0].name: members for members in families}
        away = {n.name for members in families for n, _ in members}
        if not families:
            return self.graph
        for node in self.graph.graph:
            self.at = node
            if node.name in first:
                self.join(first[node.name])
            elif node.name not in away:
                self.nodes.append(node)
        return self.rewritten()

    def families(self) -> list[list[tuple[Node, Weights]]]:
        """The products that are joined, each with its weights."""
        same = self.equal_values()
        found: dict[tuple[object, ...], list[tuple[Node, Weights]]] = {}
        for node in self.graph.graph:
            weights = self.weights(node) if node.op in _PRODUCTS else None
            if weights is not None:
                key = (same[node.inputs[0]], node.op, dump_text(node.attrs), weights.form)
                found.setdefault(key, []).append((node, weights))
        return [members for members in found.values() if len(members) > 1]

    def equal_values(self) -> Mapping[str, int]:
        """A number for each tensor: two with the same number have the same value."""
        numbers: dict[tuple[object, ...], int] = {}
        same: dict[str, int] = {}
        for i in self.inputs:
            constant = self.constants.get(i.tensor)
            content = i.tensor if constant is None or i.tensor in self.module.overridable else constant.sha256
            same[i.tensor] = numbers.setdefault((content,), len(numbers))
        for node in self.graph.graph:
            operands = tuple(same[i] if i else -1 for i in node.inputs)
            for k, out in enumerate(node.outputs):
                key = (node.op, dump_text(node.attrs), operands, k) if node.op in OPS else (node.name, k)
                same[out] = numbers.setdefault(key, len(numbers))
        return same

    # -- one product ---------------------------------------------------------------------------
    def weights(self, node: Node) -> Weights | None:
        """The constant matrix of a product; None for a product that is not joined."""
        attrs = attributes(OPS[node.op], node)
        is_turned = node.op == "linear" or (isinstance(attrs, Gemm) and attrs.trans_b)
        if isinstance(attrs, Gemm) and attrs.trans_a:
            return None
        rows = product(self.shape(node.inputs[0])[:-1]).as_int()
        found = self.matrix(node.inputs[1], 0 if is_turned else 1) if rows is None or rows <= ROWS else None
        if found is None:
            return None
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        if not bias:
            return found._replace(form=(*found.form, "without bias"))
        held = self.constants.get(bias)
        if held is None or held.shape != (found.columns,) or not self.is_own(bias):
            return None
        return found._replace(form=(*found.form, str(held.dtype)), links=(*found.links, Link(bias, 0)))

    def matrix(self, tensor: str, columns: int) -> Weights | None:
        """The parts of a matrix whose axis `columns` runs along the columns of the product; None unless it is made of constants
        that nothing else reads."""
        chain: list[Node] = []
        axis = columns
        if len(self.shape(tensor)) != 2:
            return None
        while tensor not in self.constants:
            node = self.producers.get(tensor)
            if node is None or self.uses[tensor] != 1 or len(self.shape(tensor)) != 2:
                return None
            chain.append(node)
            if node.op == "permute":
                axis = node.attrs["perm"][axis] % 2
            elif node.op == "dequantize":
                return self.dequantised(chain, axis)
            elif node.op not in _KEPT:
                return None
            tensor = node.inputs[0]
        return self.parts(chain, [Link(tensor, axis)])

    def dequantised(self, chain: list[Node], axis: int) -> Weights | None:
        """The matrix of a dequantisation, the last of `chain`, whose columns lie along `axis`. Its scales and zero points are along
        the columns too."""
        node = chain[-1]
        attrs = attributes(OPS["dequantize"], node)
        assert isinstance(attrs, Dequantize)
        links = [Link(node.inputs[0], axis)]
        for t in (t for t in node.inputs[1:] if t):
            rank = len(self.shape(t))
            if rank == 0 or (rank == 1 and (attrs.axis % 2 != axis or attrs.block)):
                return None  # the whole matrix, or the rows, have one
            if rank == 2 and attrs.axis % 2 == axis:
                return None  # blocks along the columns
            links.append(Link(t, axis if rank == 2 else 0))
        return self.parts(chain, links)

    def parts(self, chain: Sequence[Node], links: Sequence[Link]) -> Weights | None:
        held = [self.constants.get(link.tensor) for link in links]
        if not all(self.is_own(link.tensor) for link in links):
            return None
        form: list[object] = [(n.op, dump_text(n.attrs)) for n in chain]
        for link, tensor in zip(links, held, strict=True):
            if tensor is None or len(tensor.shape) not in (1, 2) or 0 in tensor.shape:
                return None
            rest = tuple(n for i, n in enumerate(tensor.shape) if i != link.axis)
            form.append((link.axis, str(tensor.dtype), rest))
        return Weights(tuple(form), tuple(chain), tuple(links), held[0].shape[links[0].axis] if held[0] is not None else 0)

    def is_own(self, tensor: str) -> bool:
        """True if the constant is read in one place."""
        return tensor in self.constants and self.uses[tensor] == 1

    # -- several -------------------------------------------------------------------------------
    def join(self, members: Sequence[tuple[Node, Weights]]) -> None:
        """Add the product of the joined matrices, and a slice of it for each member."""
        first, weights = members[0]
        joined = {
            link.tensor: self.joined_constant([w.links[k].tensor for _, w in members], link.axis)
            for k, link in enumerate(weights.links)
        }
        label = len(self.nodes)
        tensor = joined[weights.links[0].tensor]
        for step in reversed(weights.chain):
            tensor = self.one(step.op, [tensor, *(joined.get(i, i) for i in step.inputs[1:])], step.attrs)
        bias = [joined[i] for i in first.inputs[2:] if i]
        y = self.one(first.op, [first.inputs[0], tensor, *bias], first.attrs)
        names = [n.name for n, _ in members]
        origins = tuple(dict.fromkeys(o for name in names for o in self.origins.get(name, ())))
        for node in self.nodes[label:]:
            self.origins[node.name] = origins
        *lead, _ = self.shape(y)
        begin = 0
        for node, own in members:
            self.at = node
            stops = (*lead, expr(begin + own.columns))
            self.add("slice", [y], {"starts": (*(0 for _ in lead), begin), "stops": stops}, node.outputs)
            begin += own.columns

    def joined_constant(self, names: Sequence[str], axis: int) -> str:
        """The name of the constants of these names, joined along an axis."""
        sources = [self.constants[n] for n in names]
        first, *more = (t.sha256 for t in sources)
        return self.constant(DerivedTensor.first(sources, Derivation(first, tuple(more), axis)))
