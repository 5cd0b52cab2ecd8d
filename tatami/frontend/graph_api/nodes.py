"""The nodes of a graph under construction: their types are inferred as they are added, and numbers take the dtype of the
operands that they meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tatami.core.algebra.size_forms import settled_size
from tatami.core.diagnostic import TatamiError, fail
from tatami.core.dtype import DType
from tatami.core.faults.size_fault import size_fault
from tatami.core.ops import highest, lowest
from tatami.core.scalar import scalar
from tatami.core.sizes.conditions import broken_numbers
from tatami.core.tensor import Tensor as Payload
from tatami.frontend import ir
from tatami.frontend.graph_api.arguments import dtype as dtype_named
from tatami.frontend.graph_api.arguments import name as named
from tatami.frontend.graph_api.kernels import Kernels
from tatami.frontend.graph_api.makers import Makers
from tatami.frontend.graph_api.place import caller
from tatami.frontend.graph_api.tensor import Tensor
from tatami.frontend.operation import Site, attribute_values
from tatami.frontend.operations.size_conditions import node_claims
from tatami.frontend.ops import OPS, check_operand_count, infer, suggested_op


class Nodes(Makers, Kernels):
    """Tensors and nodes under their names. `origins`: name -> the Python line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.origins: dict[str, tuple[str, ...]] = {}
        self._tensors: dict[str, ir.TensorType] = {}
        self._nodes: list[ir.Node] = []
        self._producer: dict[str, int] = {}
        self._unknown: dict[str, list[int]] = {}
        """Tensors whose dtype is not decided, and the nodes that read them."""
        self._names: set[str] = set()
        self._counters: dict[str, int] = {}

    def constant(self, array: float | Sequence[object], name: str | None = None) -> Tensor:
        """A tensor with the numbers of an array, as an input that the module's constants fill."""
        raise NotImplementedError

    def fresh_size(self, stem: str = "S") -> str:
        """A size symbol that the module does not use yet."""
        raise NotImplementedError

    def _payloads(self) -> Mapping[str, Payload]:
        """The module's constants by name."""
        raise NotImplementedError

    def _callees(self, node: ir.Node) -> Mapping[str, ir.Graph]:
        """The graphs of the module that a node calls."""
        raise NotImplementedError

    def op(
        self,
        name: str,
        *operands: Tensor | bool | int | float | None,
        node: str | None = None,
        at: str | None = None,
        **attrs: object,
    ) -> Any:
        """Add any operation of the table: a Tensor, or a tuple of them. None is an absent operand. Raises TatamiError at the
        Python line."""
        where = caller() if at is None else at
        if not isinstance(name, str) or name not in OPS:
            raise fail("UnknownOp", where, f"{str(name)[:80]!r} is not an operation", suggested_op(str(name)))
        row = OPS[name]
        kinds = row.attrs.__annotations__
        try:
            struct = row.attrs(**{k: _attribute(v, str(kinds.get(k)), where) for k, v in attrs.items()})
            plain = attribute_values(struct)
        except (TypeError, NotImplementedError, ValueError, OverflowError) as error:
            names = ", ".join(f.name for f in msgspec.structs.fields(row.attrs)) or "none"
            raise fail("InvalidAttribute", where, str(error), f"the attributes of {name} are: {names}") from None
        tensors = self.lifted(operands, name)
        inputs = tuple("" if t is None else self._own(t, where).name for t in tensors)
        label = self._fresh(node or name)
        made = ir.Node(name, label, inputs, (), plain)
        check_operand_count(made)
        made, types = self._inferred(made, f"{label} ({where})", where)
        operand_types = [self._tensors.get(i) for i in made.inputs]
        if faults := broken_numbers(node_claims(made, operand_types, types, f"{label} ({where})")):
            raise TatamiError(*faults)
        for axis, size in ((k, s) for t in types for k, s in enumerate(t.shape)):
            if (fault := size_fault(size)) is not None:
                why = f"axis {axis} of the result has size {str(size)[:80]}"
                raise fail("AxisSizeMismatch", f"{label} ({where})", why, fault.suggestion)
        outputs = (label,) if len(types) == 1 else tuple(self._fresh(f"{label}.{i}") for i in range(len(types)))
        self._nodes.append(msgspec.structs.replace(made, outputs=outputs))
        self.origins[label] = (where,)
        results = tuple(self._define(o, t, len(self._nodes) - 1) for o, t in zip(outputs, types, strict=True))
        self._settle(inputs, len(self._nodes) - 1)
        return results[0] if len(results) == 1 else results

    @property
    def nodes(self) -> Sequence[ir.Node]:
        """The nodes added until here, in order."""
        return self._nodes

    def rename(self, tensor: Tensor, name: str) -> None:
        """Call the result of the last node `name` (`name_1`, … if that is taken), and the node too if it has no other
        result."""
        old, at = self._own(tensor, caller()).name, len(self._nodes) - 1
        if self._producer.get(old) != at:
            raise fail("InvalidAttribute", caller(), f"{old!r} is not a result of the last node", "rename a result at once")
        name = named(name, caller())
        self._names.discard(old)
        tensor.name = self._fresh(name)
        self._tensors[tensor.name] = self._tensors.pop(old)
        self._producer[tensor.name] = self._producer.pop(old)
        if old in self._unknown:
            self._unknown[tensor.name] = self._unknown.pop(old)
        node = self._nodes[at]
        outputs = tuple(tensor.name if o == old else o for o in node.outputs)
        label = tensor.name if len(outputs) == 1 else node.name
        self._nodes[at] = msgspec.structs.replace(node, name=label, outputs=outputs)
        self.origins[label] = self.origins.pop(node.name)

    def _define(self, name: str, type: ir.TensorType, producer: int | None = None) -> Tensor:
        self._tensors[name] = type
        if producer is not None:
            self._producer[name] = producer
        return Tensor(self, name)

    def _claim(self, name: str, where: str) -> None:
        if not named(name, where) or name in self._names or name in self._payloads():
            raise fail("DuplicateId", where, f"{name!r} is empty or already used", "choose another name")
        self._names.add(name)

    def _fresh(self, stem: str, also: Mapping[str, object] | None = None) -> str:
        name = stem
        while name in self._names or (also and name in also):
            self._counters[stem] = self._counters.get(stem, 0) + 1
            name = f"{stem}_{self._counters[stem]}"
        self._names.add(name)
        return name

    def _own(self, tensor: Tensor, where: str) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise fail(
                "InvalidAttribute",
                where,
                f"a {type(tensor).__name__} is not a tensor of the graph",
                "pass what an operation gave",
            )
        if tensor.graph is not self:
            raise fail(
                "UnknownValue",
                where,
                f"{tensor.name!r} belongs to graph {tensor.graph.name!r}",
                "pass it as an operand of the call",
            )
        return tensor

    def lifted(self, operands: Sequence[Tensor | bool | int | float | None], op: str) -> list[Tensor | None]:
        """`operands` with numbers as constants of the other operands' dtype; the condition of `where` decides nothing."""
        if not isinstance(operands, list | tuple):
            why = f"the operands of {op} are a {type(operands).__name__}"
            raise fail("InvalidAttribute", caller(), why, "give a list of tensors and numbers")
        values = operands[1:] if op == "where" else operands
        dtypes = [o.dtype for o in values if isinstance(o, Tensor)]
        decided = [d for d in dtypes if d != DType.unknown and d != DType.bool]
        any_dtype: DType = (decided or dtypes or [DType.unknown])[0]
        return [o if o is None or isinstance(o, Tensor) else self._lifted_number(o, any_dtype) for o in operands]

    def _lifted_number(self, value: object, others: DType) -> Tensor:
        number = value.item() if hasattr(value, "item") and not getattr(value, "shape", True) else value
        if not isinstance(number, bool | int | float):
            raise fail(
                "InvalidAttribute",
                caller(),
                f"a {type(value).__name__} is not an operand",
                "operands are tensors of the graph and numbers; an array is g.constant(array)",
            )
        dtype = _fitting(number, others)
        if dtype.is_int and not lowest(dtype) <= number <= highest(dtype):
            raise fail(
                "InvalidAttribute",
                caller(),
                f"{number} is outside {dtype}: {lowest(dtype)}..{highest(dtype)}",
                "cast the tensor to a wider dtype",
            )
        return self.number(number, dtype)

    def _inferred(self, node: ir.Node, at: str, where: str) -> tuple[ir.Node, tuple[ir.TensorType, ...]]:
        """(the node, its result types). If operands do not fit, the sizes that they have for large values of their symbols are
        tried, N - 1 elements for ``x[1:]``; a reshape records that, and its equation is checked when sizes are bound."""
        try:
            return node, self._infer(node, at)
        except TatamiError as error:
            settled = {i: tuple(map(settled_size, self._tensors[i].shape)) for i in dict.fromkeys(filter(None, node.inputs))}
            changed = [i for i, shape in settled.items() if shape != self._tensors[i].shape]
            for some in [[i] for i in changed] + [changed] * (len(changed) > 1):
                types = {i: ir.TensorType(self._tensors[i].dtype, settled[i]) for i in some}
                try:
                    found = self._infer(node, at, types)
                except TatamiError:
                    continue
                names = {i: self.op("reshape", Tensor(self, i), shape=settled[i], at=where).name for i in some}
                return msgspec.structs.replace(node, inputs=tuple(names.get(i, i) for i in node.inputs)), found
            raise error

    def _infer(self, node: ir.Node, at: str, instead: Mapping[str, ir.TensorType] | None = None) -> tuple[ir.TensorType, ...]:
        site = Site(at, self._callees(node), self._payloads())
        types = self._tensors if instead is None else {**self._tensors, **instead}
        return infer(node, [types[i] if i else None for i in node.inputs], site)

    def _settle(self, inputs: Iterable[str], node: int) -> None:
        """Decide unknown dtypes from the other operands of `node`, and everything that follows."""
        made = self._nodes[node]
        for name in inputs:
            if name and self._tensors[name].dtype == DType.unknown:
                self._unknown.setdefault(name, []).append(node)
        if OPS[made.op].name in ("where",):
            inputs = list(inputs)[1:]
        if OPS[made.op].name in _OWN_DTYPES:
            return
        known = next((self._tensors[i].dtype for i in inputs if i and self._tensors[i].dtype != DType.unknown), None)
        if known is None:
            return
        self._decide([i for i in inputs if i and self._tensors[i].dtype == DType.unknown], known)

    def _decide(self, names: list[str], dtype: DType) -> None:
        work = list(names)
        while work:
            name = work.pop()
            if self._tensors[name].dtype != DType.unknown:
                continue
            self._tensors[name] = ir.TensorType(dtype, self._tensors[name].shape)
            if name in self._producer:
                at = self._producer[name]
                node = self._nodes[at]
                if node.op == "constant":
                    self._nodes[at] = msgspec.structs.replace(node, attrs={**node.attrs, "dtype": dtype.value})
                work += [i for i in node.inputs if i]
            for reader in self._unknown.pop(name, []):
                node = self._nodes[reader]
                for output, type in zip(node.outputs, self._infer(node, node.name), strict=True):
                    if self._tensors[output].dtype == DType.unknown and type.dtype != DType.unknown:
                        work.append(output)
                work += [i for i in node.inputs if i and node.op not in _OWN_DTYPES]


_OWN_DTYPES = frozenset(
    {
        "take",
        "gather",
        "gather_nd",
        "if",
        "loop",
        "call",
        "one_hot",
        "cast",
        "scatter",
        "scatter_nd",
        "quantize",
        "dequantize",
        "kernel",
        "kernel_reduce",
        "kernel_scan",
        "kernel_body",
    }
)
"""Operations whose operands may differ in dtype, so that one operand does not decide another's."""


def _fitting(value: bool | int | float, dtype: DType) -> DType:
    """The dtype of a number that meets operands of `dtype`. A fraction among integers is fp32, which will not fit."""
    if isinstance(value, bool):
        return DType.bool
    if isinstance(value, float) and (dtype.is_int or dtype == DType.bool):
        return DType.fp32
    return dtype


def _attribute(value: object, kind: str, where: str) -> object:
    """A value in the form of the table's attributes: tuples, Python's numbers, dtypes as DType."""
    if isinstance(value, list | tuple):
        return tuple(_attribute(v, "", where) for v in value)
    if kind.startswith("DType") and value is not None:
        return dtype_named(value, where)
    if hasattr(value, "item") and not getattr(value, "shape", True):
        value = value.item()
    return scalar(value) if isinstance(value, float) and kind.startswith("Scalar") else value
