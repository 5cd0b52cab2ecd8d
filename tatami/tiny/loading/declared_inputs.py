"""The inputs of a spec document: declared by its signature, by its tensor table, or by the UOps that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tatami.core.algebra.visit import free_vars
from tatami.core.codec import from_builtins
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.expr import Shape
from tatami.core.signature import Equation, Input
from tatami.tiny.build import Builder, Value
from tatami.tiny.infer import Type
from tatami.tiny.ir import InputOp
from tatami.tiny.loading.document_fields import Fields

PORT_FIELDS = ("role", "mutability", "storage", "layout", "alignment")
"""Fields of a signature's input in addition to its name and type."""


class DeclaredInputs(Fields):
    """The inputs of one document while it is read: ports by name, and their values as ``tensor <name>``."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__()
        self.document = document
        self.build = Builder()
        self.values: dict[str, Value | None] = {}
        self.inputs: dict[str, Input] = {}
        self.signature = self.field(document, "signature", dict, {})
        self.tensors = self.field(document, "tensors", dict, {})
        self.equations = self.read_assumptions()

    def declared_type(self, tensor: str) -> Mapping[str, Any]:
        """The entry of `tensor` in the tensor table; empty if it has none."""
        table = self.tensors.get(tensor, {})
        self.is_object(table)
        return table

    def read_assumptions(self) -> list[Equation]:
        """Read the signature's assumptions: definitions of bare symbols are kept, other equations returned."""
        out: list[Equation] = []
        for item in self.field(self.signature, "assumptions", list, []):
            lhs, rhs = self.size(self.field(item, "lhs", object)), self.size(self.field(item, "rhs", object))
            name = lhs.as_name()
            if name is not None and name not in free_vars(rhs):
                self.definitions[name] = rhs
            else:
                out.append(Equation(lhs, rhs, str(item.get("at", ""))))
        return out

    def read_signature_inputs(self) -> None:
        """Read the signature's inputs, as far as their types are declared."""
        self.at = "signature"
        self.known(self.signature, ("inputs", "outputs", "assumptions", "defaults", "must_bind"))
        for item in self.field(self.signature, "inputs", list, []):
            name = self.field(item, "tensor", str)
            self.known(item, ("tensor", "dtype", "shape", *PORT_FIELDS))
            fields = {k: v for k, v in item.items() if k in PORT_FIELDS}
            declared = {**self.declared_type(name), **{k: v for k, v in item.items() if k in ("dtype", "shape")}}
            if "dtype" in declared and "shape" in declared:
                self.declare(name, declared, fields)
                table = {**declared, **self.declared_type(name)}
                self.declare(name, table, fields)

    def known(self, item: Mapping[str, object], fields: tuple[str, ...]) -> None:
        """Raises TatamiError InvalidDocument for a field that is none of `fields`."""
        if unknown := sorted(set(item) - set(fields)):
            raise fail("InvalidDocument", self.at, f"unknown field {unknown[0]!r}", f"the fields are {', '.join(fields)}")

    def declare(self, name: str, declared: Mapping[str, Any], fields: Mapping[str, Any]) -> Value:
        """Add a signature input and its INPUT node, or check it against the earlier declaration."""
        dtype, shape = self.dtype(self.field(declared, "dtype", str)), self.shape(self.field(declared, "shape", list))
        plain = {"tensor": name, "dtype": dtype.value, "shape": [], **fields}
        port = msgspec.structs.replace(from_builtins(plain, Input, name), shape=shape)
        if name in self.inputs:
            known = self.inputs[name]
            if (known.dtype, known.shape) != (dtype, shape):
                raise self.input_differs(known, dtype, shape)
        else:
            self.inputs[name] = port
            self.values[f"tensor {name}"] = self.build.add(InputOp(name), own=Type(dtype, shape))
        value = self.values[f"tensor {name}"]
        assert value is not None
        return value

    def input_differs(self, known: Input, dtype: DType, shape: Shape) -> TatamiError:
        """The error for an input that is declared with two types."""
        if known.dtype != dtype:
            return fail(
                "DTypeMismatch",
                self.at,
                f"{known.tensor} is {dtype} here and {known.dtype} in the signature",
                "declare one dtype",
            )
        have, want = ", ".join(map(str, shape)), ", ".join(map(str, known.shape))
        axes = [k for k, (a, b) in enumerate(zip(shape, known.shape)) if a != b]
        where = f"axis {axes[0]}: {shape[axes[0]]} and {known.shape[axes[0]]}" if axes else "their ranks differ"
        return fail(
            "AxisAlignmentMismatch",
            self.at,
            f"{known.tensor} has shape [{have}] here and [{want}] in the signature ({where})",
            "the signature's symbols are the truth: use them",
            lhs=have,
            rhs=want,
        )
