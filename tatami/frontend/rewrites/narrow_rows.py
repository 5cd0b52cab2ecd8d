"""Rows that are looked up in codes whose matrix a product has with k first: they are looked up in the product's form, so that the
codes are in memory once.

    x = take(codes, i)                    ->   x = permute(take(t, i, axis=1))
    y = h @ ((cast(t) - zero) * scale)         y = h @ ((cast(t) - zero) * scale)            t = codes transposed: narrow_weights.py

An embedding that is also the output projection is such a matrix. Codes of 4 bits are taken out of their elements of 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping

from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.numbers.derived import DerivedTensor
from tatami.frontend.ir import Graph, Node
from tatami.frontend.operation import attributes
from tatami.frontend.operations.indexing import Gather
from tatami.frontend.ops import OPS
from tatami.frontend.rewrites.narrow_weights import codes_of_words
from tatami.frontend.rewrites.rewriting import Rewriting, Subject, has_any, rewrite_graphs


def look_up_in_weights(module: Module[Graph]) -> Module[Graph]:
    """The module with its lookups in constants that are there in another form too made in that form."""
    derived = {
        t.derivation.source: t for t in module.constants.values() if isinstance(t, DerivedTensor) and not t.derivation.more
    }
    if not derived:
        return module
    return rewrite_graphs(module, lambda subject: _Lookups(subject, derived), has_any("take"))


class _Lookups(Rewriting):
    """The rewriting of one graph's lookups. `derived`: sha256 of a constant -> the form that products read."""

    def __init__(self, subject: Subject, derived: Mapping[str, DerivedTensor]) -> None:
        super().__init__(subject)
        graph = self.graph
        self.derived = derived
        self.elsewhere = {i for n in _needed(graph) for i in (n.inputs[1:] if n.op == "take" else n.inputs)}
        self.elsewhere |= {o.tensor for o in graph.signature.outputs}

    def result(self) -> Graph:
        for node in self.graph.graph:
            self.at = node
            made = self.looked_up(node) if node.op == "take" else None
            if made is None:
                self.nodes.append(node)
            else:
                self.add("identity", [made], {}, node.outputs)
        return self.rewritten()

    def looked_up(self, node: Node) -> str | None:
        """The rows from the product's form; None for other lookups, and for constants that something else reads too."""
        table, index = node.inputs
        source = self.constants.get(table)
        made = None if source is None or table in self.elsewhere else self.derived.get(source.sha256)
        attrs = attributes(OPS["take"], node)
        assert isinstance(attrs, Gather)
        if source is None or made is None or made.derivation.columns or len(source.shape) != 2:
            return None
        how, axis = made.derivation, attrs.axis % 2
        if axis != (0 if how.turned else 1):  # along the sum
            return None
        rows = self.one("take", [self.constant(made), index], {"axis": 1, "bounds": attrs.bounds})
        if how.form == "words":
            rows = codes_of_words(self, rows, source.shape[1 - axis])
        if how.minus:
            rows = self.one("add", [self.cast(rows, DType.i32), self.number(how.minus, DType.i32)])
        rows = self.cast(rows, source.dtype)
        rank = len(self.shape(rows))
        return self.one("permute", [rows], {"perm": (*range(1, rank), 0)}) if how.turned else rows


def _needed(graph: Graph) -> list[Node]:
    """The nodes that a result needs: not dequantisations in whose place products read codes."""
    wanted = {o.tensor for o in graph.signature.outputs}
    out: list[Node] = []
    for node in reversed(graph.graph):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            out.append(node)
    return out
