"""Order and ids of a normalised program: one INPUT node per signature input, in its order, then the live nodes.

Unused constants leave the signature (their payload is not uploaded); the caller's own inputs stay even if unused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.expr import Expr
from tatami.tiny.ir import CallOp, InputOp, Node, Program
from tatami.tiny.verify import expressions


def live_ids(program: Program) -> frozenset[str]:
    """Nodes that an output depends on: by its value, or by a size that a step of the program decides."""
    decided = {s: n.id for n in program.nodes if isinstance(n.op, CallOp) for s in n.op.new_symbols}
    live = set(program.outputs)
    for node in reversed(program.nodes):
        if node.id in live:
            live.update(node.src)
            if decided:
                live.update(decided[s] for e in _sizes(node) for s in free_vars(e) if s in decided)
    return frozenset(live)


def _sizes(node: Node) -> list[Expr]:
    """Expressions whose values must be known when the node runs."""
    passed = node.op.sizes.values() if isinstance(node.op, CallOp) else ()
    return [*expressions(node), *passed]


def tidy(
    program: Program, origins: Mapping[str, tuple[str, ...]], constants: Collection[str]
) -> tuple[Program, dict[str, tuple[str, ...]]]:
    """`program` with ids n0, n1, … and its origins under them. `constants`: tensors that have a payload."""
    live = live_ids(program)
    inputs: dict[str, str] = {}
    for node in program.nodes:
        if isinstance(node.op, InputOp) and (node.id in live or node.op.tensor_id not in inputs):
            inputs[node.op.tensor_id] = node.id
    updated = {o.updates for o in program.signature.outputs}
    ports = tuple(
        p
        for p in program.signature.inputs
        if inputs.get(p.tensor) in live or p.tensor not in constants or p.storage != "const_pool" or p.tensor in updated
    )
    new: dict[str, str] = {}
    nodes: list[Node] = []
    for k, port in enumerate(ports):
        if port.tensor in inputs:
            new[inputs[port.tensor]] = f"n{k}"
        nodes.append(Node(f"n{k}", InputOp(port.tensor), (), port.dtype, port.shape))
    by_tensor = {p.tensor: f"n{k}" for k, p in enumerate(ports)}
    for node in program.nodes:
        if node.id not in live or node.id in new:
            continue
        if isinstance(node.op, InputOp):
            new[node.id] = by_tensor[node.op.tensor_id]
            continue
        ident = f"n{len(nodes)}"
        new[node.id] = ident
        nodes.append(msgspec.structs.replace(node, id=ident, src=tuple(new[s] for s in node.src)))
    signature = msgspec.structs.replace(program.signature, inputs=ports)
    kept = {new[k]: v for k, v in origins.items() if k in new}
    return Program(signature, tuple(nodes), tuple(new[o] for o in program.outputs)), kept
