"""Operators that stay in PyTorch: the fx graph cut into programs of ours around them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tatami.torch.fx_nodes import is_update
from tatami.torch.imported import Unsupported

COMPUTES_NOTHING = ("getitem", "aten.view.default", "aten.permute.default", "aten.expand.default", "aten.alias.default")
"""Ends of the names of operators that only select or reshape: a part with nothing else is not worth a program."""
Compile = Callable[[fx.GraphModule], Any]


class Supported(OperatorSupportBase):  # type: ignore[misc]
    """Nodes that a program of ours may hold: those that were imported. Arithmetic of sizes and updates of arguments stay
    outside, since PyTorch does them at no cost."""

    def __init__(self, gm: fx.GraphModule, unsupported: Sequence[Unsupported]) -> None:
        left = {u.node for u in unsupported}
        self.inside = {
            n
            for n in gm.graph.nodes
            if n.op == "call_function" and n not in left and _has_tensors(n) and not is_update(n) and _reads_tensors(n)
        }

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        """True if the node may be in a program of ours."""
        return node in self.inside


def _has_tensors(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else (value,)
    return any(isinstance(v, torch.Tensor) for v in values)


def _reads_tensors(node: fx.Node) -> bool:
    """True if the node reads tensors by itself: a selection from a tuple belongs to the node that makes the tuple."""
    if node.target is not operator.getitem:
        return True
    source = node.args[0]
    return isinstance(source, fx.Node) and source.op == "call_function"


def cut(gm: fx.GraphModule, unsupported: Sequence[Unsupported], compile_part: Compile) -> Callable[..., Any] | None:
    """The graph with every part of ours replaced by the result of `compile_part` (None: it runs in PyTorch); None if no part
    computes anything."""
    partitioner = CapabilityBasedPartitioner(gm, Supported(gm, unsupported), allows_single_node_partition=True)
    partitions = [p for p in partitioner.propose_partitions() if any(_computes(n) for n in p.nodes)]
    if not partitions:
        return None
    fused = partitioner.fuse_partitions(partitions, prefix="tatami_")
    symbols = {str(n.meta["val"].node.expr): n for n in fused.graph.nodes if n.op == "placeholder" and _is_size(n)}
    for node in list(fused.graph.nodes):
        if node.op != "call_module" or not str(node.target).startswith("tatami_"):
            continue
        part = fused.get_submodule(str(node.target))
        assert isinstance(part, fx.GraphModule)
        _pass_symbols(node, part, symbols)
        made = compile_part(part)
        if made is not None:
            fused.add_submodule(str(node.target), _Called(made))
    fused.recompile()
    return fused.forward


def _is_size(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt)


def _pass_symbols(node: fx.Node, part: fx.GraphModule, symbols: Mapping[str, fx.Node]) -> None:
    """Make the sizes that the whole graph gets as arguments arguments of the part too, which may only use sizes derived from
    them."""
    inside = [n for n in part.graph.nodes if n.op == "placeholder"]
    there = {str(n.meta["val"].node.expr) for n in inside if _is_size(n)}
    for name, source in symbols.items():
        if name in there or source in node.args:
            continue
        with part.graph.inserting_after(inside[-1]) if inside else part.graph.inserting_before():
            inside.append(part.graph.placeholder(f"size_{len(inside)}"))
        inside[-1].meta["val"] = source.meta["val"]
        node.args = (*node.args, source)
    part.recompile()


def _computes(node: fx.Node) -> bool:
    return not str(node.target).endswith(COMPUTES_NOTHING) and "getitem" not in str(node.target)


class _Called(torch.nn.Module):  # type: ignore[misc]
    """A compiled program at its place in the cut graph."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.program = program

    def forward(self, *args: Any) -> Any:
        return self.program(*args)
