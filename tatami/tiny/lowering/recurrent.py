"""Recurrent layers: all input products first, in one contraction; then a CALL loop whose body is one step.

    gates = X W^T + bias   [T, B, G*H]                      one contraction over all steps
    loop t: h, c = step(gates[t], h, c, R)                  the body program; Y is its scan output

Computed in fp32 for 16-bit floats, rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tatami.core.algebra.visit import free_vars
from tatami.core.dtype import DType
from tatami.core.expr import Expr, Shape, expr, var
from tatami.core.signature import Input, Output, Signature
from tatami.frontend.operations.recurrent import GATES, Activated, Recurrent, activations
from tatami.tiny.build import Builder, Value, axis_vars
from tatami.tiny.infer import Type
from tatami.tiny.ir import CallOp, InputOp, Program, ResultType
from tatami.tiny.lowering.contraction import product_sum
from tatami.tiny.lowering.elementwise import expm1, softplus
from tatami.tiny.lowering.movement import joined, part
from tatami.tiny.lowering.rule import Rule, Use, wide


def activate(x: Value, f: Activated) -> Value:
    """`x` after the activation `f`, a name with its parameters."""
    match f:
        case ("softsign", _):
            return x / (x.fn("abs") + 1.0)
        case ("softplus", _):
            return softplus(x)
        case ("hard_sigmoid", (alpha, beta)):
            return (x * alpha + beta).fn("min", 1.0).fn("max", 0.0)
        case ("leaky_relu", (alpha,)):
            return (x >= 0.0).where(x, x * alpha)
        case ("elu", (alpha,)):
            below = expm1(x.fn("min", 0.0))
            return (x > 0.0).where(x, below if alpha == 1.0 else below * alpha)
        case ("affine", (alpha, beta)):
            return x * alpha + beta
        case ("scaled_tanh", (alpha, beta)):
            return (x * beta).fn("tanh") * alpha
        case ("thresholded_relu", (alpha,)):
            return (x > alpha).where(x, 0.0)
        case _:
            return x.fn(f.name)


def layer(kind: str, use: Use[Recurrent]) -> tuple[Value, ...]:
    """(Y of all steps, last states): each direction on its own, then joined."""
    directions = [_direction(kind, use, d) for d in range(2 if use.attrs.direction == "bidirectional" else 1)]
    y = joined([results[0].unsqueeze(1) for results in directions], 1)
    last = [joined([r[j].unsqueeze(0) for r in directions], 0) for j in range(1, len(directions[0]))]
    return tuple(v.cast(use.dtype) for v in (y, *last))


def _direction(kind: str, use: Use[Recurrent], d: int) -> tuple[Value, ...]:
    b = use.builder
    x, w, r = wide(use[0]), _of(use, 1, d), _of(use, 2, d)
    assert w is not None
    assert r is not None
    steps, batch, _ = x.shape
    hidden, rows = r.shape[1], r.shape[0]
    lengths = use.optional(4)
    lengths = None if lengths is None else lengths.cast(DType.i64)
    backwards = use.attrs.direction == "reverse" or d == 1
    if backwards:
        x = _reversed(x, lengths)
    bias = _of(use, 3, d)
    recurrent_bias = None
    gates = (x.reshape((steps, batch, 1, x.shape[2])).expand((steps, batch, rows, x.shape[2])) * w).sum((3,))
    if bias is not None:
        gates = gates + part(bias, 0, expr(0), rows)
        recurrent_bias = part(bias, 0, rows, rows * 2)
        if not (kind == "gru" and use.attrs.linear_before_reset):
            gates, recurrent_bias = gates + recurrent_bias, None
    zero = b.const(0.0, x.dtype).expand((batch, hidden))
    h, c = _of(use, 5, d), _of(use, 6, d)
    state = [h if h is not None else zero]
    if kind == "lstm":
        state.append(c if c is not None else zero)
    extra = {"bias": recurrent_bias, "lengths": lengths, "peepholes": _of(use, 7, d)}
    body = _Body(kind, use, d, _Given(state, gates, r, extra))
    name = use.add_program(body.program(), body.b.origins)
    results = (*(ResultType(v.dtype, v.shape) for v in state), ResultType(x.dtype, (steps, batch, hidden)))
    symbols = sorted({n for v in (gates, r, *state) for s in v.shape for n in free_vars(s)})
    op = CallOp("loop", (name,), results, {s: var(s) for s in symbols}, attrs={"carried": len(state)})
    invariants = [gates, r, *(v for v in extra.values() if v is not None)]
    *last, y = b.call(op, [b.size(steps), b.const(True, DType.bool), *state, *invariants])
    return (_reversed(y, lengths) if backwards else y, *last)


def _of(use: Use[Recurrent], i: int, d: int) -> Value | None:
    """Direction `d` of an optional operand, without that axis; None if the operand is absent."""
    value = use.optional(i)
    if value is None:
        return None
    return part(wide(value), 0, expr(d), expr(d + 1)).reshape(value.shape[1:])


def _reversed(x: Value, lengths: Value | None) -> Value:
    """Steps from last to first; with lengths, each sequence from its own end, and later steps unchanged."""
    if lengths is None:
        return x.flip((0,))
    t = x.builder.iota(x.shape[:2], 0)
    index = t.fn("lt", lengths).where((lengths - t.fn("add", 1)).expand(x.shape[:2]), t)
    entries: list[Expr | None] = list(axis_vars(x.rank))
    entries[0] = None
    return x.gather(x.shape, entries, index.reshape((*x.shape[:2], *(1,) * (x.rank - 2))), bounds="assume")


class _Given(NamedTuple):
    """Inputs of a step: the state, the gates' part of the input, the recurrent weights, and operands that are optional."""

    state: Sequence[Value]
    gates: Value
    r: Value
    extra: dict[str, Value | None]


class _Body:
    """The step program. Inputs: iteration, condition, state, gates, R, extras. Outputs: condition, state, Y row."""

    def __init__(self, kind: str, use: Use[Recurrent], d: int, given: _Given) -> None:
        self.kind = kind
        self.attrs = use.attrs
        self.f = activations(kind, use.attrs, d)
        self.b = Builder()
        self.b.at = use.builder.at
        self.ports: list[Input] = []
        self.t = self.input("iteration", DType.i64, ())
        self.go = self.input("condition", DType.bool, ())
        self.state = [self.input(f"state{j}", t.dtype, t.shape) for j, t in enumerate(given.state)]
        self.gates = self.input("gates", given.gates.dtype, given.gates.shape)
        self.r = self.input("recurrent", given.r.dtype, given.r.shape)
        self.extra = {k: self.input(k, v.dtype, v.shape) for k, v in given.extra.items() if v is not None}

    def input(self, name: str, dtype: DType, shape: Shape) -> Value:
        self.ports.append(Input(name, dtype, shape))
        return self.b.add(InputOp(name), own=Type(dtype, shape))

    def program(self) -> Program:
        new = {"lstm": self.lstm, "gru": self.gru, "rnn": self.rnn}[self.kind]()
        y = new[0]
        lengths = self.extra.get("lengths")
        if lengths is not None:
            active = self.t.expand(lengths.shape).fn("lt", lengths).unsqueeze(1)
            y = active.where(new[0], 0.0)
            new = [active.where(value, old) for value, old in zip(new, self.state, strict=True)]
        outputs = [self.go, *new, y]
        names = ["condition.next", *(f"state{j}.next" for j in range(len(new))), "y"]
        ports = tuple(Output(n, v.dtype, v.shape) for n, v in zip(names, outputs, strict=True))
        return Program(Signature(tuple(self.ports), ports), tuple(self.b.nodes), tuple(v.id for v in outputs))

    def given(self, first: Expr, width: Expr) -> Value:
        """This step's input products of `width` gate rows from row `first` on, read from the products of all steps."""
        i, shape = axis_vars(2), (self.gates.shape[1], width)
        return self.gates.gather(shape, [None, i[0], i[1] + first], self.t.expand(shape), bounds="assume")

    def gate(self, values: Value, k: int) -> Value:
        """Gate k of stacked gate rows (last axis)."""
        width = self.r.shape[1]
        return part(values, values.rank - 1, width * k, width * (k + 1))

    def act(self, k: int, x: Value) -> Value:
        clip = self.attrs.clip
        return activate(x if clip is None else x.fn("max", -clip).fn("min", clip), self.f[k])

    def peep(self, k: int, c: Value) -> Value | None:
        p = self.extra.get("peepholes")
        return None if p is None else c * self.gate(p, k)

    def lstm(self) -> list[Value]:
        h, c = self.state
        total = self.given(expr(0), self.gates.shape[2]) + product_sum(h, self.r, None)
        i, o, f, g = (self.gate(total, k) for k in range(4))
        i = self.act(0, _plus(i, self.peep(0, c)))
        forget = -(i - 1.0) if self.attrs.input_forget else self.act(0, _plus(f, self.peep(2, c)))
        c = forget * c + i * self.act(1, g)
        o = self.act(0, _plus(o, self.peep(1, c)))
        return [o * activate(c, self.f[2]), c]

    def gru(self) -> list[Value]:
        (h,) = self.state
        width = self.r.shape[1]
        gx = [self.given(width * k, width) for k in range(3)]
        bias = self.extra.get("bias")
        if self.attrs.linear_before_reset:  # one product of h for all gates
            total = _plus(product_sum(h, self.r, None), bias)
            zr, inner = part(total, 1, expr(0), width * 2), self.gate(total, 2)
        else:
            upper = part(self.r, 0, expr(0), width * 2)
            zr = _plus(product_sum(h, upper, None), None if bias is None else part(bias, 0, expr(0), width * 2))
        z = self.act(0, gx[0] + self.gate(zr, 0))
        reset = self.act(0, gx[1] + self.gate(zr, 1))
        if self.attrs.linear_before_reset:
            inner = reset * inner
        else:
            inner = product_sum(reset * h, part(self.r, 0, width * 2, width * 3), None)
        fresh = self.act(1, gx[2] + inner)
        return [-(z - 1.0) * fresh + z * h]

    def rnn(self) -> list[Value]:
        (h,) = self.state
        return [self.act(0, self.given(expr(0), self.gates.shape[2]) + product_sum(h, self.r, None))]


def _plus(x: Value, y: Value | None) -> Value:
    return x if y is None else x + y


RECURRENT: dict[str, Rule] = {kind: partial(layer, kind) for kind in GATES}
"""Rules of this family by operation."""
