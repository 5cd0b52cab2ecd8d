"""Cases of the grid: rows of the table in each version of their operator, varied along one axis at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.defs import OpSchema

from tests.onnx.grid.row import Data, Edge, Fixed, Made, Operand, Row
from tests.onnx.grid.rows import ROWS
from tests.onnx.grid.schema import ENUMERATED, Option, formal, history, operand_count, types_of
from tests.onnx.grid.values import DTYPES, code_of, drawn, is_float, specials, sprinkled, tensor, within

IR_VERSION = min(13, onnx.IR_VERSION)


@dataclass(frozen=True)
class Case:
    op: str
    version: int
    label: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]
    outputs: int
    types: Mapping[int, str]
    """The dtype of each operand that is data."""
    way: str = ""
    """How data are made: drawn, or "all", "rows", "limits" as a row's `special` and `limits` say."""
    random: bool = False
    safe_divisor: bool = False

    @property
    def name(self) -> str:
        return f"{self.op}-{self.version} {self.label}"

    def arrays(self) -> dict[int, np.ndarray]:
        """Arrays of the operands that are data, by position."""
        out: dict[int, np.ndarray] = {}
        for i, operand in enumerate(self.operands):
            if isinstance(operand, Data):
                out[i] = self._array(i, operand)
        if self.way.startswith("within "):
            return {**out, 0: within(specials(self.types[0]), self.way[7:])}
        if self.way == "all":
            first = specials(self.types[0])
            if len(out) == 1:
                return {0: first}
            second = specials(self.types[1])
            if self.safe_divisor and not is_float(self.types[1]):
                second = np.array([v for v in second if v != 0 and int(v) != -1], second.dtype)
            return {0: first[:, None], 1: second[None, :]}
        if self.way in ("rows", "numbers"):
            lowest = min(out)
            out[lowest] = sprinkled(out[lowest], self.types[lowest], with_nan=self.way == "rows")
        return out

    def _array(self, position: int, operand: Data) -> np.ndarray:
        fill = "limits" if self.way == "limits" else operand.fill
        return drawn(operand.shape, self.types[position], fill, f"{self.op} {position} {operand}")


def cases(op: str = "") -> list[Case]:
    """All cases of the operator, of every operator when none is named."""
    out: dict[str, Case] = {}
    for name, schemas in history().items():
        if op in ("", name):
            for schema in schemas:
                for case in _of_version(schema, schema is schemas[-1]):
                    out.setdefault(case.name, case)
    return list(out.values())


def _of_version(schema: OpSchema, newest: bool) -> Iterator[Case]:
    for number, row in enumerate(ROWS.get(schema.name, ())):
        if row.since <= schema.since_version <= row.until:
            yield from _of_row(schema, row, number, newest)


def _of_row(schema: OpSchema, row: Row, number: int, newest: bool) -> Iterator[Case]:
    words = " ".join(v for v in row.attrs.values() if isinstance(v, str))
    start = f"row {number} ({words})" if words else f"row {number}"

    def case(label: str, edge: Edge, types: str = "", way: str = "") -> Iterator[Case]:
        made = _made(schema, row, edge, types)
        if made is not None:
            operands, attrs, kinds = made
            yield Case(schema.name, schema.since_version, f"{start}{label}", operands, attrs, row.outputs, kinds, way, row.random, row.safe_divisor)  # fmt: skip

    yield from case("", {})
    enumerated = {} if row.alone else {k: v for k, v in ENUMERATED.items() if k in schema.attributes}
    for attribute, values in {**enumerated, **row.each}.items():
        for value in values:
            if row.attrs.get(attribute) != value:
                yield from case(f" {attribute}={value}", {attribute: value})
    optional = [i for i, o in enumerate(row.operands) if o is not None and formal(schema, i).option == Option.Optional]
    if row.drops:
        for i in optional:
            yield from case(f" without {formal(schema, i).name}", {i: None})
        if len(optional) > 1:
            yield from case(" without optional operands", dict.fromkeys(optional))
    for edge in row.edges:
        yield from case(f" {_words(edge)}", edge)
    kinds = dtypes_of(schema, row, only_new=not newest)
    if row.alone:
        kinds = kinds[:1]
    for kind in kinds[1:] if row.special.split(" ")[0] not in ("all", "within") else []:
        yield from case(f" {kind}", {}, kind)
    for kind in kinds or [""] if row.special else []:
        yield from case(f" special values {kind}", {}, kind, row.special)
    for kind in kinds or [""] if row.limits else []:
        yield from case(f" limits {kind}", {}, kind, "limits")


def dtypes_of(schema: OpSchema, row: Row, only_new: bool) -> list[str]:
    """The dtypes that vary, the usual one first: those of the variables of the row's data. only_new: without those that
    the version before has too."""
    found = _allowed(schema, row)
    if only_new:
        earlier = [s for s in history()[schema.name] if s.since_version < schema.since_version]
        before = _allowed(earlier[-1], row) if earlier else []
        found = [*found[:1], *(t for t in found[1:] if t not in before)]
    return found


def _allowed(schema: OpSchema, row: Row) -> list[str]:
    found: dict[str, None] = {}
    for i, operand in enumerate(row.operands):
        if isinstance(operand, Data) and not operand.dtype and i < operand_count(schema):
            found |= dict.fromkeys(types_of(schema, formal(schema, i).type_str))
    return sorted(found, key=lambda t: t != "float")


def _made(
    schema: OpSchema, row: Row, edge: Edge, dtype: str
) -> tuple[tuple[Operand, ...], dict[str, Any], dict[int, str]] | None:
    """Operands, attributes and dtypes of a variation; None if the version lacks a part that the variation needs."""
    operands = list(row.operands)
    attrs = dict(row.attrs)
    for key, value in edge.items():
        if isinstance(key, str):
            attrs[key] = value
            continue
        operands += [None] * (key + 1 - len(operands))
        operands[key] = value
    while operands and operands[-1] is None and len(operands) > 1:
        operands.pop()
    most = operand_count(schema)
    for operand in operands[most:]:
        if isinstance(operand, Fixed) and operand.name in schema.attributes:
            attrs[operand.name] = operand.content
        elif operand is not None:
            return None
    operands = operands[:most]
    for i, operand in enumerate(operands):  # an input of later versions in the place of another
        if isinstance(operand, Fixed):
            allowed = types_of(schema, formal(schema, i).type_str)
            if operand.name in schema.attributes or (allowed and operand.dtype != "string" and operand.dtype not in allowed):
                return None
    if any(a not in schema.attributes for a in attrs):
        return None
    types: dict[int, str] = {}
    for i, operand in enumerate(operands):
        if isinstance(operand, Data):
            allowed = types_of(schema, formal(schema, i).type_str)
            wanted = operand.dtype or (
                dtype if dtype in allowed else "float" if "float" in allowed else (allowed or ["float"])[0]
            )
            if allowed and wanted not in allowed:
                return None
            types[i] = wanted
    return tuple(operands), attrs, types


def _words(edge: Edge) -> str:
    """An edge in a few words."""
    out = []
    for key, value in edge.items():
        match value:
            case Data():
                value = f"{value.dtype}{list(value.shape)}"
            case Fixed():
                value = f"{value.content} {value.dtype}" if value.dtype not in ("int64", "float") else value.content
            case onnx.TensorProto():
                array = onnx.numpy_helper.to_array(value)
                value = f"{array.dtype} {array.tolist()}"
        out.append(f"{key if isinstance(key, str) else f'#{key}'}={value}")
    return re.sub(r"\s+", " ", " ".join(out))[:160]


@dataclass
class Parts:
    """A case as parts of a graph."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    initialisers: list[onnx.TensorProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)


def parts(case: Case, prefix: str = "") -> Parts:
    out = Parts()
    arrays = case.arrays()

    def feed(name: str, array: np.ndarray) -> str:
        out.inputs.append(helper.make_tensor_value_info(name, code_of(array), array.shape))
        out.feeds[name] = array
        return name

    names = []
    for i, operand in enumerate(case.operands):
        name = f"{prefix}i{i}"
        match operand:
            case None:
                name = ""
            case Data():
                feed(name, arrays[i])
            case Fixed(_, content, dtype):
                if dtype == "string":
                    out.initialisers.append(
                        helper.make_tensor(
                            name, onnx.TensorProto.STRING, np.shape(content), [s.encode() for s in np.ravel(content)]
                        )
                    )
                else:
                    out.initialisers.append(tensor(np.array(content).astype(DTYPES[dtype]), name))
            case Made(op, operands):
                inner = [feed(f"{name}_{j}", drawn(o.shape, o.dtype, o.fill, f"{case.op} {j}")) for j, o in enumerate(operands)]
                out.nodes.append(helper.make_node(op, inner, [name]))
        names.append(name)
    while names and not names[-1]:
        names.pop()
    out.outputs = [f"{prefix}o{i}" for i in range(case.outputs)]
    out.nodes.append(helper.make_node(case.op, names, out.outputs, **case.attrs))
    return out


def model(
    cases: Sequence[Case], told: Sequence[tuple[Any, ...] | None] = ()
) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[list[str]]]:
    """One model of several cases of one version of the operator set, its inputs, and the names of each case's results. The
    types of results that ONNX does not infer are those of `told`, where it has values for the case."""
    found = [parts(c, f"c{i}_" if len(cases) > 1 else "") for i, c in enumerate(cases)]
    outputs = [onnx.ValueInfoProto(name=o) for p in found for o in p.outputs]
    graph = helper.make_graph(
        [n for p in found for n in p.nodes],
        "grid",
        [v for p in found for v in p.inputs],
        outputs,
        [t for p in found for t in p.initialisers],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", cases[0].version)], ir_version=IR_VERSION)
    with suppress(onnx.shape_inference.InferenceError):  # raised for a wrong model: what runs it has its say
        made = onnx.shape_inference.infer_shapes(made)
    known = {o: v for p, values in zip(found, told, strict=False) for o, v in zip(p.outputs, values or (), strict=False)}
    for port in made.graph.output:
        kind = port.type.tensor_type
        if not (port.type.WhichOneof("value") == "tensor_type" and kind.elem_type) and isinstance(
            known.get(port.name), np.ndarray | np.generic
        ):
            kind.elem_type = code_of(np.asarray(known[port.name]))
        if port.type.WhichOneof("value") == "tensor_type":
            kind.ClearField("shape")  # the runtime finds the shape; ONNX's inference is wrong for some operators
    feeds = {k: v for p in found for k, v in p.feeds.items()}
    return made, feeds, [p.outputs for p in found]
