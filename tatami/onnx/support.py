"""Operators of a model that have an import, and one diagnostic of all that have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from tatami.core.diagnostic import TatamiError, fail
from tatami.onnx.importer import Importer
from tatami.onnx.microsoft.not_taken import NOT_TAKEN
from tatami.onnx.registry import CONTROL, handler_of

MAX_TOLD = 100
"""Maximum number of nodes that the diagnostic names."""


def schema_of(domain: str, op: str, opset: int) -> onnx.defs.OpSchema | None:
    """ONNX's description of an operator at an opset, or None."""
    domain = "" if domain == "ai.onnx" else domain
    if not onnx.defs.has(op, domain):
        return None
    try:
        return onnx.defs.get_schema(op, opset, domain) if not domain else onnx.defs.get_schema(op, domain=domain)
    except onnx.defs.SchemaError:
        return None


def is_supported(m: Importer, domain: str, op: str) -> bool:
    """True if there is an import; a function body may still fail on its nodes."""
    if (domain, op) in m.functions:
        return True
    if handler_of(domain, op) is not None or (domain in ("", "ai.onnx") and op in CONTROL):
        return True
    schema = schema_of(domain, op, m.opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def unsupported_words(m: Importer, domain: str, op: str) -> tuple[str, str]:
    """(why an operator is not imported, advice)."""
    prefix = f"{domain}." if domain not in ("", "ai.onnx") else ""
    why = f"the operator {prefix}{op} is not supported"
    if domain == "com.microsoft" and op in NOT_TAKEN:
        reason, _, instead = NOT_TAKEN[op].partition("; ")
        return f"{why}: {reason}", instead or "export the model without it"
    schema = schema_of(domain, op, m.opset)
    if schema is None:
        return f"{why}: ONNX has none of that name at opset {m.opset}", f"give the model a function {op} of domain {domain!r}"
    kinds = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    ports = [kinds.get(p.type_str, {p.type_str}) for p in (*schema.inputs, *schema.outputs)]
    if any(allowed and all("string" in t for t in allowed) for allowed in ports):
        return f"{why}: it computes with strings", "do it before the model and give it numbers"
    return why, f"rewrite {op} with supported operators, or give the model a function of that name"


def unsupported_nodes(m: Importer, nodes: Iterable[onnx.NodeProto]) -> TatamiError | None:
    """One diagnostic of every node without an import, or None if there is none."""
    found = [(at, node) for at, node in _nodes(m, nodes) if not is_supported(m, node.domain, node.op_type)]
    if not found:
        return None
    words = {(n.domain, n.op_type): unsupported_words(m, n.domain, n.op_type) for _, n in found}
    needed = "; ".join(dict.fromkeys(how for _, how in words.values()))
    if len(found) == 1:
        return fail("UnsupportedModel", found[0][0], *next(iter(words.values())))
    lines = [f"{at}: {words[n.domain, n.op_type][0]}" for at, n in found[:MAX_TOLD]]
    if len(found) > MAX_TOLD:
        lines.append(f"and {len(found) - MAX_TOLD} more")
    kinds = f"{len(words)} operators" if len(words) > 1 else "one operator"
    why = f"{len(found)} nodes of {kinds} cannot be imported\n  " + "\n  ".join(lines)
    return fail("UnsupportedModel", "model", why, needed)


def _nodes(m: Importer, nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, onnx.NodeProto]]:
    """Every node of the model with its name in diagnostics, including branches, bodies and the model's functions. Raises
    InvalidDocument for a name that is not text."""
    pending: list[Iterable[onnx.NodeProto]] = [nodes, *(f.node for f in m.functions.values())]
    while pending:
        for position, node in enumerate(pending.pop(0)):
            if isinstance(node.op_type, bytes) or isinstance(node.domain, bytes):  # protobuf's form of names that are not UTF-8
                raise fail(
                    "InvalidDocument",
                    f"node {position}",
                    "the name of its operator is not UTF-8 text",
                    "export the model again",
                )
            yield node.name or f"{node.op_type}_{position}", node
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    pending.append(a.g.node)
