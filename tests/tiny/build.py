"""Builds small tiny modules for tests; types come from `infer`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr, shape
from tatami.core.module import Module
from tatami.core.signature import Equation, Input, Output, Signature
from tatami.core.tensor import Tensor
from tatami.tiny.infer import Type, infer, reshape_equation
from tatami.tiny.ir import (
    CallOp,
    CastOp,
    ConstOp,
    Elementwise,
    ExpandOp,
    FlipOp,
    InputOp,
    Node,
    Op,
    PadOp,
    PermuteOp,
    Program,
    ReduceOp,
    ReshapeOp,
    ResultOp,
    ShrinkOp,
)

F32, F16, I8, I32, I64, BOOL = DType.fp32, DType.fp16, DType.i8, DType.i32, DType.i64, DType.bool


class Build:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.inputs: list[Input] = []
        self.constants: dict[str, Tensor] = {}
        self.equations: list[Equation] = []
        self.defaults: dict[str, int] = {}

    def add(self, op: Op, *src: str, own: Type | None = None) -> str:
        types = [Type(self.nodes[s].dtype, self.nodes[s].shape) for s in src]
        call = self.nodes[src[0]].op if isinstance(op, ResultOp) else None
        result = infer(op, types, own, call=call if isinstance(call, CallOp) else None)
        if isinstance(op, ReshapeOp) and (pair := reshape_equation(types[0], op.result_shape)):
            self.equations.append(Equation(*pair))
        ident = f"n{len(self.nodes)}"
        self.nodes[ident] = Node(ident, op, src, result.dtype, result.shape)
        return ident

    def shape(self, ident: str) -> Shape:
        return self.nodes[ident].shape

    def input(self, name: str, dtype: DType, *sizes: Any, **fields: Any) -> str:
        self.inputs.append(Input(name, dtype, shape(*sizes), **fields))
        return self.add(InputOp(name), own=Type(dtype, shape(*sizes)))

    def param(self, name: str, array: np.ndarray) -> str:
        tensor = Tensor(array)
        self.constants[name] = tensor
        return self.input(name, tensor.dtype, *tensor.shape, role="param", storage="const_pool")

    def const(self, value: Any, dtype: DType) -> str:
        return self.add(ConstOp(value), own=Type(dtype, ()))

    def fn(self, name: str, *src: str) -> str:
        return self.add(Elementwise(name), *src)

    def cast(self, x: str, to: DType) -> str:
        return self.add(CastOp(to), x)

    def reshape(self, x: str, *sizes: Any) -> str:
        return self.add(ReshapeOp(shape(*sizes)), x)

    def permute(self, x: str, *perm: int) -> str:
        return self.add(PermuteOp(perm), x)

    def expand(self, x: str, sizes: tuple[Any, ...], dims: tuple[int, ...]) -> str:
        return self.add(ExpandOp(shape(*sizes), dims), x)

    def pad(self, x: str, *pairs: tuple[Any, Any], value: Any = 0) -> str:
        return self.add(PadOp(tuple((expr(a), expr(b)) for a, b in pairs), value), x)

    def shrink(self, x: str, lo: tuple[Any, ...], hi: tuple[Any, ...], step: tuple[int, ...] | None = None) -> str:
        return self.add(ShrinkOp(shape(*lo), shape(*hi), step or (1,) * len(lo)), x)

    def flip(self, x: str, *axes: int) -> str:
        return self.add(FlipOp(axes), x)

    def reduce(self, x: str, op: str, axes: tuple[int, ...], dtype: DType, init: Any = None) -> str:
        return self.add(ReduceOp(op, axes, dtype, init), x)

    def program(self, *outputs: str) -> Program:
        ports = tuple(Output(f"y{k}", self.nodes[o].dtype, self.nodes[o].shape) for k, o in enumerate(outputs))
        signature = Signature(tuple(self.inputs), ports, tuple(self.equations), self.defaults)
        return Program(signature, tuple(self.nodes.values()), outputs)

    def module(self, *outputs: str, **others: Program) -> Module[Program]:
        return Module({"main": self.program(*outputs), **others}, self.constants)
