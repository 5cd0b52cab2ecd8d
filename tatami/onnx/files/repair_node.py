"""Check of one node against its operator: required operands and attributes, and parts that may be dropped or converted.

LeakyRelu(x; alpha: 2 of type INT, colour="red")   ->   LeakyRelu(x; alpha: 2.0), and a warning about `colour`
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import onnx

from tatami.core.diagnostic import fail
from tatami.onnx.files.attribute_values import check_value
from tatami.onnx.files.schemas import BEFORE_THE_FIRST, DEFAULT, schema_at, versions_of

_A = onnx.AttributeProto
_FIELDS = {
    _A.FLOAT: "f", _A.INT: "i", _A.STRING: "s", _A.TENSOR: "t", _A.GRAPH: "g", _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp", _A.FLOATS: "floats", _A.INTS: "ints", _A.STRINGS: "strings", _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs", _A.SPARSE_TENSORS: "sparse_tensors", _A.TYPE_PROTOS: "type_protos",
}  # fmt: skip
_NO_MEANING = ("consumed_inputs",)
"""Attributes without effect on results: hints at operands that an implementation may overwrite."""

Note = Callable[[str, bool], None]
"""note(what was changed, True if the user should be warned)"""


def repaired_node(node: onnx.NodeProto, version: int, at: str, note: Note) -> onnx.NodeProto:
    """The node in the form of its operator at `version` of its domain: the node itself, or a copy. Raises TatamiError if
    its operands or attributes do not allow it to run. Operators that ONNX does not know are not checked."""
    kept = [_typed(a, node, version, at, note) for a in node.attribute]
    names = [a.name for a in kept]
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise fail("InvalidAttribute", at, f"{node.op_type} has the attribute {twice!r} twice", "remove one of them")
    schema = schema_at(node.domain, node.op_type, version)
    inputs = list(node.input)
    if schema is not None:
        kept = _known(kept, schema, node, at, note)
        inputs = _operands(inputs, schema, at, note)
    for a in kept if node.domain in DEFAULT else ():
        check_value(node.op_type, a, at)
    domain = "" if node.domain in DEFAULT else node.domain
    same = len(kept) == len(node.attribute) and all(a is b for a, b in zip(kept, node.attribute, strict=True))
    if same and inputs == list(node.input) and domain == node.domain:
        return node
    copy = onnx.NodeProto(op_type=node.op_type, domain=domain, name=node.name, input=inputs, output=node.output)
    copy.attribute.extend(kept)
    return copy


def _typed(a: onnx.AttributeProto, node: onnx.NodeProto, version: int, at: str, note: Note) -> onnx.AttributeProto:
    """The attribute with the type that its value has and the operator requires."""
    if a.ref_attr_name:
        return a
    types = _types(node.domain, node.op_type, a.name, version)
    wanted = types[-1] if types else None
    kind = a.type
    if kind in types and _is_present(a, _FIELDS[kind]):
        return a
    present = [kind for kind, field in _FIELDS.items() if _is_present(a, field)]
    if not kind:
        kind = present[0] if present else wanted
        if kind is not None:
            note(f"attribute {a.name!r} has no type: {_type_name(kind)} is taken", False)
    elif present and kind not in present:
        why = f"attribute {a.name!r} says that it is of type {_type_name(kind)}, and holds {_type_name(present[0])}"
        raise fail("InvalidAttribute", at, why, "export the model again")
    if kind is None or kind not in _FIELDS:
        raise fail(
            "InvalidAttribute", at, f"attribute {a.name!r} has neither a known type nor a value", "export the model again"
        )
    if wanted is not None and kind not in types:
        return _converted(a, kind, wanted, node, at, note)
    if kind == a.type:
        return a
    copy = onnx.AttributeProto()
    copy.CopyFrom(a)
    copy.type = kind
    return copy


def _converted(
    a: onnx.AttributeProto, kind: int, wanted: int, node: onnx.NodeProto, at: str, note: Note
) -> onnx.AttributeProto:
    """The attribute converted: a whole number to a float, one number to a list of one, an empty list to another kind."""
    copy = onnx.AttributeProto(name=a.name, type=wanted)
    if (kind, wanted) == (_A.INT, _A.FLOAT):
        copy.f = float(a.i)
    elif (kind, wanted) == (_A.INT, _A.INTS):
        copy.ints.append(a.i)
    elif (kind, wanted) == (_A.FLOAT, _A.FLOATS):
        copy.floats.append(a.f)
    elif (kind, wanted) == (_A.INTS, _A.FLOATS):
        copy.floats.extend(float(v) for v in a.ints)
    elif not (wanted in (_A.INTS, _A.FLOATS, _A.STRINGS) and kind in (_A.INTS, _A.FLOATS, _A.STRINGS) and _is_empty(a, kind)):
        why = f"attribute {a.name!r} of {node.op_type} is of type {_type_name(kind)}, its operator says {_type_name(wanted)}"
        raise fail("InvalidAttribute", at, why, "export the model again")
    note(f"attribute {a.name!r} is of type {_type_name(kind)}: taken as {_type_name(wanted)}", False)
    return copy


def _is_present(a: onnx.AttributeProto, field: str) -> bool:
    value = getattr(a, field)
    return bool(len(value)) if field.endswith("s") and field != "s" else a.HasField(field)


def _is_empty(a: onnx.AttributeProto, kind: int) -> bool:
    return not len(getattr(a, _FIELDS[kind]))


def _type_name(kind: int) -> str:
    names: dict[int, str] = {v: k for k, v in _A.AttributeType.items()}
    return names.get(kind, str(kind))


@lru_cache(maxsize=4096)
def _types(domain: str, op: str, name: str, version: int) -> tuple[int, ...]:
    """The types that versions of the operator give the attribute; last that of its own version, or else of the newest."""
    own = schema_at(domain, op, version)
    every = (*versions_of(domain, op), *((own,) if own is not None else ()))
    return tuple(int(s.attributes[name].type.value) for s in every if name in s.attributes)


def _known(
    kept: list[onnx.AttributeProto], schema: onnx.defs.OpSchema, node: onnx.NodeProto, at: str, note: Note
) -> list[onnx.AttributeProto]:
    """The attributes that the operator has. An attribute of another version is kept with its meaning there; any other is
    dropped."""
    attributes = schema.attributes  # each access builds a new mapping
    out, foreign = [], False
    for a in kept:
        if a.name in attributes or a.name in BEFORE_THE_FIRST.get(schema.name, ()):
            out.append(a)
            continue
        others = [s.since_version for s in versions_of(node.domain, node.op_type) if a.name in s.attributes]
        if a.name in _NO_MEANING:
            note(f"attribute {a.name!r} is dropped: it has no meaning", False)
        elif others:
            foreign = True
            what = f"attribute {a.name!r} is not of {node.op_type} of version {schema.since_version}"
            note(f"{what}; it is read as in version {others[-1]}", True)
            out.append(a)
        else:
            note(f"attribute {a.name!r} is dropped: {node.op_type} has none of that name", not a.name.startswith("__"))
    have = {a.name for a in out}
    missing = [n for n, a in attributes.items() if a.required and n not in have and n not in _NO_MEANING]
    if missing and not foreign:
        raise fail("InvalidAttribute", at, f"{node.op_type} needs the attribute {missing[0]!r}", "export the model again")
    return out


def _operands(inputs: list[str], schema: onnx.defs.OpSchema, at: str, note: Note) -> list[str]:
    """The operands, as many as the operator takes; only optional ones may be empty."""
    while len(inputs) > schema.max_input and not inputs[-1]:
        note("an empty operand more than the operator has is dropped", False)
        inputs = inputs[:-1]
    if len(inputs) > schema.max_input or len(inputs) < schema.min_input:
        low, high = schema.min_input, schema.max_input
        many = f"{low}" if low == high else f"at least {low}" if high > 1 << 20 else f"{low} to {high}"
        why = f"{schema.name} of version {schema.since_version} takes {many} operands, and has {len(inputs)}"
        raise fail("InvalidDocument", at, why, "export the model again")
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for name, formal in zip(inputs, schema.inputs, strict=False):
        if not name and formal.option == single:
            raise fail("InvalidDocument", at, f"{schema.name} has no operand {formal.name!r}", "export the model again")
    return inputs
