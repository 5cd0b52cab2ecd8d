"""Random ONNX models as they grow: a few nodes over fixed or open axes, of several dtypes, with values where operators differ."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT, INT, BOOL = "float", "int", "bool"
KINDS = {FLOAT: (np.float32, np.float64), INT: (np.int32, np.int64), BOOL: (np.bool_,)}
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))


class Value:
    """A tensor of the model: its name, and what it is for the arrays that the model was drawn for."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.array = name, array

    @property
    def kind(self) -> str:
        return BOOL if self.array.dtype == np.bool_ else FLOAT if self.array.dtype.kind == "f" else INT


class Maker:
    """One model as it grows. Every node is tried in numpy by the reference evaluator before it is kept."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.is_special = self.r.random() < 0.2
        self.is_open = self.r.random() < 0.5
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.values: list[Value] = []
        for k in range(self.r.randint(1, 3)):
            self.inputs.append(Value(f"x{k}", self.drawn(self.kind(), self.shape())))
        self.values += self.inputs

    # -- what is drawn ------------------------------------------------------------------------------
    def kind(self) -> Any:
        return self.r.choice((np.float32, np.float32, np.float32, np.float64, np.int64, np.int32, np.bool_))

    def shape(self) -> tuple[int, ...]:
        if self.inputs and self.r.random() < 0.6:
            return self.inputs[0].array.shape
        return tuple(self.r.choice((1, 2, 3, 4, 5, 7)) for _ in range(self.r.randint(1, 4)))

    def drawn(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        if dtype == np.bool_:
            return self.numbers.random(shape) < 0.5
        if np.dtype(dtype).kind == "i":
            return self.numbers.integers(-5, 9, shape).astype(dtype)
        out = self.numbers.standard_normal(shape).astype(dtype)
        if self.is_special and out.size:
            flat = out.reshape(-1)
            for at in self.numbers.integers(0, flat.size, max(1, flat.size // 6)):
                flat[at] = self.r.choice(SPECIAL)
        return out

    def weights(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Operands of products, none of which overflows: rounded before it is added or not, that would be infinite or not."""
        out = self.drawn(dtype, shape)
        out[(np.abs(out) > 1e3) & np.isfinite(out)] = 1
        return out

    def pick(self, *kinds: str, rank: int = 0) -> Value:
        fitting = [v for v in self.values if (not kinds or v.kind in kinds) and v.array.ndim >= rank]
        if not fitting:
            raise Unfit
        return self.r.choice(fitting[-4:])

    def want_numbers(self) -> None:
        """Operators whose answer for nan and inf differs between ONNX Runtime and the reference evaluator stay with numbers."""
        if self.is_special:
            raise Unfit

    def constant(self, array: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    # -- the model ----------------------------------------------------------------------------------
    def add(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> None:
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        self.nodes.append(node)
        for array in self.run(names):
            if not isinstance(array, np.ndarray) or array.size > 4096 or array.ndim > 5:
                self.nodes.pop()
                raise Unfit
        self.values += [Value(n, a) for n, a in zip(names, self.run(names), strict=True)]

    def run(self, names: list[str]) -> list[Any]:
        """Results of the newest node by the reference evaluator."""
        from onnx.reference import ReferenceEvaluator

        node = self.nodes[-1]
        given = {v.name: v.array for v in self.values} | {c.name: numpy_helper.to_array(c) for c in self.constants}
        used = {n: given[n] for n in node.input if n}
        graph = helper.make_graph(
            [node],
            "one",
            [_info(n, a, a.shape) for n, a in used.items()],
            [helper.make_empty_tensor_value_info(n) for n in names],
        )
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                return [np.asarray(a) for a in ReferenceEvaluator(_model(graph)).run(names, used)]
        except Exception:
            self.nodes.pop()
            raise Unfit from None

    def made(self, steps: Sequence[Callable[[Maker], None]]) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
        """The model of some of the steps, and the arrays of two calls: with open axes the second has other sizes where those are
        free."""
        for _ in range(self.r.randint(2, 7)):
            try:
                self.r.choice(steps)(self)
            except Unfit:
                continue
        read = {n for node in self.nodes for n in node.input}
        leaves = [v for v in self.values[len(self.inputs) :] if v.name not in read][-3:] or self.values[-1:]
        nodes = list(self.nodes)
        if leaves[0] in self.inputs:
            nodes.append(helper.make_node("Identity", [leaves[0].name], ["same"]))
            leaves = [Value("same", leaves[0].array)]
        ports = [_info(v.name, v.array, self.open_shape(v)) for v in self.inputs]
        outputs = [_info(v.name, v.array, [None] * v.array.ndim) for v in leaves]
        graph = helper.make_graph(nodes, "fuzz", ports, outputs, self.constants)
        calls = [{v.name: v.array for v in self.inputs}]
        if self.is_open:
            more = {v.name: v.array.shape[0] + 1 for v in self.inputs if v.array.shape[0] == self.inputs[0].array.shape[0]}
            calls.append(
                {
                    v.name: self.drawn(
                        v.array.dtype, (more[v.name] if v.name in more else v.array.shape[0], *v.array.shape[1:])
                    )
                    for v in self.inputs
                }
            )
        return _model(graph), calls

    def open_shape(self, v: Value) -> list[Any]:
        if not self.is_open:
            return list(v.array.shape)
        same = v.array.shape[0] == self.inputs[0].array.shape[0]
        return ["N" if same else f"M_{v.name}", *v.array.shape[1:]]


class Unfit(Exception):
    """No value fits the operator that was drawn."""


def _info(name: str, array: np.ndarray, shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
