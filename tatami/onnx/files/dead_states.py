"""States of a loop that nobody reads: the body does not read what they were, and nothing reads what they end as.

Loop(n, go, x, unused) -> y, z       z is not read, and the body reads x alone      ->      Loop(n, go, x) -> y

Exporters carry every variable of a loop's text, also those that each turn sets anew. Such a state has no value before the first
turn: a placeholder of another rank or type than the turns give it.
"""

from __future__ import annotations

from collections.abc import Set

import onnx

from tatami.onnx.files.order import Reads


def without_dead_states(node: onnx.NodeProto, read: Set[str], reads: Reads) -> onnx.NodeProto:
    """The Loop without its dead states: the node itself, or a copy. read: names that anything outside the node reads."""
    body = next((a.g for a in node.attribute if a.name == "body" and a.HasField("g")), None)
    count = len(node.input) - 2
    if body is None or count < 1 or len(body.input) != count + 2 or len(body.output) <= count:
        return node
    inside: set[str] = {port.name for port in body.output}.union(*(reads.of_node(n) for n in body.node))
    ends = [*node.output, *[""] * (count - len(node.output))]
    dead = {k for k in range(count) if ends[k] not in read and body.input[2 + k].name not in inside}
    if not dead:
        return node
    kept = onnx.GraphProto(
        name=body.name, node=body.node, initializer=body.initializer, sparse_initializer=body.sparse_initializer
    )
    kept.input.extend(port for k, port in enumerate(body.input, -2) if k not in dead)
    kept.output.extend(port for k, port in enumerate(body.output, -1) if k not in dead)
    copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name)
    copy.input.extend(name for k, name in enumerate(node.input, -2) if k not in dead)
    copy.output.extend(name for k, name in enumerate(ends) if k not in dead)
    for a in node.attribute:
        if a.name == "body":
            copy.attribute.add(name=a.name, type=a.type, g=kept)
        else:
            copy.attribute.append(a)
    return copy
