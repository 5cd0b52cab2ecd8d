"""One spec document being read: nodes by name, operands, faults with their patches (`load`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.diagnostic import Diagnostic, Patch, TatamiError, diagnostic, fail
from tatami.core.dtype import DType
from tatami.core.module import Module
from tatami.core.ops import BY_UOP, OPS
from tatami.core.signature import Output, Signature, symbols
from tatami.tiny.build import Value
from tatami.tiny.checks.views import is_axis_name
from tatami.tiny.ir import Elementwise, InputOp, Node, Program
from tatami.tiny.loading.declared_inputs import DeclaredInputs
from tatami.tiny.loading.refused_uops import refuse
from tatami.tiny.loading.repair import REPAIRS
from tatami.tiny.verify import expressions

Arg: TypeAlias = Mapping[str, Any]
Items: TypeAlias = Sequence[Any]
Rule: TypeAlias = "Callable[[Loader, Arg, Items, Arg], Value | None]"
"""(loader, arg, src, the whole entry) gives the value of a UOp; None where it has none."""

_ENTRY_KEYS = {"id", "out", "uop", "op", "src", "arg", "dtype", "shape", "tag"}


class Poisoned(Exception):
    """An operand with a fault that has been reported."""


class Loader(DeclaredInputs):
    """One document while it is read: values by name, axis labels by value, faults found. `rules`: readers of the
    UOps that are not elementwise."""

    def __init__(self, document: Arg, rules: Mapping[str, Rule]) -> None:
        super().__init__(document)
        self.rules = rules
        self.labels: dict[str, tuple[str, ...]] = {}
        self.faults: list[Diagnostic] = []
        self.stored: dict[str, str] = {}
        self.path = ""

    # -- the document ----------------------------------------------------------------------------
    def module(self) -> Module[Program]:
        """Read the whole document. Raises TatamiError with every fault."""
        self.guarded(self.read_signature_inputs)
        entries = self.field(self.document, "uops", list)
        names = [e.get("id", e.get("out")) if isinstance(e, dict) else None for e in entries]
        self.later = {n: k for k, n in reversed(list(enumerate(names))) if isinstance(n, str)}
        for position, entry in enumerate(entries):
            name = names[position]
            self.path = f"/uops/{position}"
            self.at = str(name) if name else f"uops[{position}]"
            self.build.at = self.at
            self.guarded(partial(self.entry, entry))
            if isinstance(name, str):
                self.values.setdefault(name, None)
        self.at = "document"
        program = None if self.faults else self.program(entries)
        if self.faults or program is None:
            raise TatamiError(*self.faults)
        return Module({"main": program}, {}, {"main": self.build.origins})

    def guarded(self, step: Callable[[], None]) -> None:
        """Run one step and collect its faults."""
        try:
            step()
        except TatamiError as error:
            self.faults += error.diagnostics
        except Poisoned:
            pass

    def entry(self, entry: Any) -> None:
        """Read one uop of the list and name its value."""
        if not isinstance(entry, dict):
            raise fail("InvalidDocument", self.at, f"a uop is {type(entry).__name__}", "write an object with uop, src, arg")
        unknown = sorted(set(entry) - _ENTRY_KEYS)
        if unknown:
            raise fail(
                "InvalidDocument", self.at, f"unknown field {unknown[0]!r}", f"the fields are {', '.join(sorted(_ENTRY_KEYS))}"
            )
        name = entry.get("id", entry.get("out"))
        if name is not None and (not isinstance(name, str) or not name):
            raise fail("InvalidDocument", self.at, f"the id is {name!r}", "write a string")
        if name is not None and name in self.values:
            raise fail("DuplicateId", self.at, "two nodes have this id", "give each node its own id")
        value = self.node(entry)
        if value is None:
            return
        self.check_declared(entry, value)
        if entry.get("tag"):
            self.retag(value, str(entry["tag"]))
        if name is not None:
            self.values[name] = value

    def retag(self, value: Value, tag: str) -> None:
        """Set the tag of the node made last, if it is `value`."""
        node = self.build.nodes[-1]
        if node.id == value.id:
            self.build.nodes[-1] = msgspec.structs.replace(node, tag=tag)

    def check_declared(self, entry: Mapping[str, Any], value: Value) -> None:
        """Raise unless the dtype and shape that an entry declares are those of its value."""
        if "dtype" in entry and self.dtype(entry["dtype"]) != value.dtype:
            raise fail(
                "DTypeMismatch",
                self.at,
                f"the node declares {entry['dtype']}, its op gives {value.dtype}",
                f'write "dtype": "{value.dtype}", or add a CAST',
            )
        if "shape" in entry and self.shape(entry["shape"]) != value.shape:
            gives = ", ".join(map(str, value.shape))
            raise fail(
                "AxisSizeMismatch",
                self.at,
                f"the node declares shape {entry['shape']}, its op gives [{gives}]",
                f'write "shape": [{gives}]',
            )

    def node(self, entry: Mapping[str, Any]) -> Value | None:
        """Read one uop by its function in UOPS, or as an elementwise op by its own name. None for a STORE."""
        uop = entry.get("uop", entry.get("op"))
        if not isinstance(uop, str):
            raise fail("InvalidDocument", self.at, "the field 'uop' is missing", "name the UOp")
        uop = uop.removeprefix("OPS.").upper()
        arg = self.field(entry, "arg", dict, {})
        items = self.field(entry, "src", list, [])
        rule = self.rules.get(uop)
        if rule is not None:
            return rule(self, arg, items, entry)
        if uop in BY_UOP:
            return self.elementwise(BY_UOP[uop].name, items, self.path)
        raise refuse(uop, self.at, self.rules)

    # -- operands --------------------------------------------------------------------------------
    def operand(self, item: Any, path: str) -> Value:
        """A src entry that is a name or an expression."""
        if isinstance(item, str):
            return self.named(item)
        if isinstance(item, dict):
            return self.nested(item, path)
        raise fail("InvalidDocument", self.at, f"{item!r} stands where a tensor is needed", "name a node or a tensor")

    def named(self, name: str) -> Value:
        """The value of a name: a node, a tensor of the signature, or a table entry. Raises Poisoned after an earlier fault."""
        if name in self.values:
            value = self.values[name]
            if value is None:
                raise Poisoned
            return value
        if f"tensor {name}" in self.values:
            value = self.values[f"tensor {name}"]
            assert value is not None
            return value
        if name in self.later:
            raise fail(
                "CyclicGraph",
                self.at,
                "the node reads itself" if name == self.at else f"reads {name}, which is defined after it",
                "read another value; the graph has no circles"
                if name == self.at
                else f"move {name} before {self.at}, or break the circle",
            )
        if name in self.tensors:
            table = self.declared_type(name)
            outer, self.build.at = self.build.at, name
            value = self.declare(name, table, {k: v for k, v in table.items() if k in ("role", "storage")})
            self.build.at = outer
            return value
        raise fail(
            "UnknownValue",
            self.at,
            f"{name!r} is neither an earlier node nor a tensor with a type",
            f'define it, or declare it: "tensors": {{"{name}": {{"dtype": "fp32", "shape": [...]}}}}',
        )

    def nested(self, item: Mapping[str, Any], path: str) -> Value:
        """Read a nested expression: a uop, or {op: operands}."""
        if "uop" in item:
            outer, self.path = self.path, path
            value = self.node(item)
            self.path = outer
            if value is None:
                raise fail("InvalidDocument", self.at, "a nested expression has no value", "write an op that has one")
            return value
        if len(item) != 1:
            raise fail("InvalidDocument", self.at, f"a nested expression has keys {sorted(item)}", 'write {"mul": ["a", 2]}')
        ((key, operands),) = item.items()
        name = key.lower() if key.lower() in OPS else BY_UOP[key.upper()].name if key.upper() in BY_UOP else ""
        if not name:
            raise refuse(key, self.at, self.rules)
        if isinstance(operands, str):
            operands = [_token(t.strip()) for t in operands.split(",")]
        if not isinstance(operands, list):
            operands = [operands]
        return self.elementwise(name, operands, f"{path}/{key}", in_src=False)

    def elementwise(self, fn: str, items: list[Any], path: str, *, in_src: bool = True) -> Value:
        """Read a scalar op over names, immediates and nested expressions; a fault with a repair is reported and repaired."""
        prefix = f"{path}/src" if in_src else path
        found: list[Value | None] = [
            None if _is_number(item) else self.operand(item, f"{prefix}/{k}") for k, item in enumerate(items)
        ]
        dtype = self.immediate_dtype(fn, found, items)
        values = [v if v is not None else self.immediate(items[k], dtype, fn, k) for k, v in enumerate(found)]
        for attempt in range(3):
            try:
                result = self.build.add(Elementwise(fn), values)
                break
            except TatamiError as error:
                if attempt == 2:
                    raise
                values = self.repaired(error, fn, values, items, prefix)
        self.keep_labels(result, values)
        return result

    def repaired(self, error: TatamiError, fn: str, values: list[Value], items: list[Any], prefix: str) -> list[Value]:
        """Report the fault with its patch, and return the operands as the patch makes them."""
        (fault,) = error.diagnostics
        repair = REPAIRS.get(fault.kind)
        answer = None if repair is None else repair(fn, values)
        if answer is None:
            raise error
        ops = []
        for k, (wrapper, _) in answer.changes.items():
            ops.append({"op": "replace", "path": f"{prefix}/{k}", "value": {**wrapper, "src": [items[k]]}})
        self.faults.append(
            diagnostic(
                fault.kind,
                fault.at,
                fault.why,
                answer.suggestion(items),
                patch=Patch(tuple(ops)),
                **{**fault.details, **answer.details},
            )
        )
        return [self.build.add(answer.changes[k][1], (v,)) if k in answer.changes else v for k, v in enumerate(values)]

    def immediate_dtype(self, fn: str, found: list[Value | None], items: list[Any]) -> DType:
        """Dtype of the numbers among the operands: that of the first typed operand, else fp32 or i64."""
        typed = [v.dtype for k, v in enumerate(found) if v is not None and not (fn == "where" and k == 0)]
        if typed:
            return typed[0]
        return DType.fp32 if any(isinstance(i, float) for i in items) else DType.i64

    def immediate(self, item: Any, dtype: DType, fn: str, position: int) -> Value:
        """A number as a constant of `dtype`; the condition of where is bool."""
        if fn == "where" and position == 0:
            dtype = DType.bool
        if isinstance(item, float) and not dtype.is_float and not item.is_integer():
            raise fail(
                "DTypeMismatch",
                self.at,
                f"the number {item} does not fit {dtype}",
                "write an integer, or CAST the other operand to fp32",
            )
        if isinstance(item, str):
            return self.build.const(item, dtype)
        return self.build.const(float(item) if dtype.is_float else int(item) if dtype.is_int else bool(item), dtype)

    def keep_labels(self, result: Value, values: list[Value]) -> None:
        """Give the result the axis labels of the first operand that has its shape."""
        for v in values:
            if v.id in self.labels and v.shape == result.shape:
                self.labels[result.id] = self.labels[v.id]
                return

    # -- the program -----------------------------------------------------------------------------
    def program(self, entries: list[Any]) -> Program | None:
        """The finished program; None if an output has a fault."""
        outputs: list[Output] = []
        ids: list[str] = []
        for name, item in self.output_names(entries):
            try:
                value = self.named(self.stored.get(name, name))
            except TatamiError as error:
                self.faults += error.diagnostics
                continue
            self.known(item, ("tensor", "dtype", "shape", "updates"))
            fields = {k: v for k, v in item.items() if k in ("updates",)}
            fault = self.check_output(name, value)
            if fault is not None:
                self.faults.append(fault)
            outputs.append(Output(name, value.dtype, value.shape, **fields))
            ids.append(value.id)
        if self.faults:
            return None
        given = self.field(self.signature, "defaults", dict, {})
        defaults = {k: self.field(given, k, int) for k in given}
        signature = Signature(tuple(self.inputs.values()), tuple(outputs), (*self.equations, *self.build.assumptions), defaults)
        bound = set(symbols(Signature(signature.inputs)))
        free = sorted(n for node in self.build.nodes for n in _symbols_of(node) if n not in bound)
        signature = msgspec.structs.replace(signature, must_bind=tuple(dict.fromkeys(free)))
        return Program(signature, tuple(self.build.nodes), tuple(ids))

    def output_names(self, entries: list[Any]) -> list[tuple[str, Mapping[str, Any]]]:
        """(name, declaration) of the outputs: those of the signature, else the stored values, else values that nothing
        reads."""
        declared = self.field(self.signature, "outputs", list, [])
        if declared:
            return [(self.field(item, "tensor", str), item) for item in declared]
        listed = self.field(self.document, "outputs", list, [])
        if listed:
            return [(str(name), {}) for name in listed]
        if self.stored:
            return [(name, {}) for name in self.stored]
        read = {s for node in self.build.nodes for s in node.src}
        names = [n for n, v in self.values.items() if v is not None and v.id not in read and not n.startswith("tensor ")]
        kinds = {n.id: n.op for n in self.build.nodes}
        return [(n, {}) for n in names if not isinstance(kinds[self.values[n].id], InputOp)]  # type: ignore[union-attr]

    def check_output(self, name: str, value: Value) -> Diagnostic | None:
        """The fault of an output whose declared type differs from the computed one; else None."""
        declared = self.declared_type(name)
        if "dtype" in declared and self.dtype(declared["dtype"]) != value.dtype:
            return diagnostic(
                "DTypeMismatch",
                name,
                f"declared {declared['dtype']}, computed {value.dtype}",
                f'insert CAST with "to": "{declared["dtype"]}"',
            )
        if "shape" in declared and self.shape(declared["shape"]) != value.shape:
            gives = ", ".join(map(str, value.shape))
            return diagnostic(
                "AxisAlignmentMismatch", name, f"declared shape {declared['shape']}, computed [{gives}]", f"declare [{gives}]"
            )
        return None


def _symbols_of(node: Node) -> list[str]:
    return [n for e in expressions(node) for n in sorted(free_vars(e)) if not is_axis_name(n)]


def _is_number(item: Any) -> bool:
    return isinstance(item, bool | int | float) or item in ("INF", "-INF", "NAN")


def _token(text: str) -> Any:
    """A name or a number from a comma-separated expression."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
