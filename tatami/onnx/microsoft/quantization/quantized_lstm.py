"""DynamicQuantizeLSTM: weights of 8 bits; before each product x and h are rounded to 8 bits over their own ranges.

    gates = quantised(x) @ W * scales                                          [T, B, 4H], all steps in one product
    loop t: i, o, f, c = gates[t] + quantised(h) @ R * scales + bias;  h, c = cell(i, o, f, c)

x has one range for the call and h one for each step, over all its rows, as in ONNX Runtime with one thread. The zero point of
h is known only at its step; the sums of R's columns that it multiplies are computed once, outside the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from tatami.core.dtype import DType
from tatami.core.expr import Expr
from tatami.core.signature import Input
from tatami.frontend.ir import TensorType
from tatami.frontend.operations.recurrent import Activated, Recurrent, activations
from tatami.frontend.rewrites.integer_products import Integers, as_signed, column_sums, integer_matmul
from tatami.onnx.arithmetic import Num, size_of
from tatami.onnx.importer import Importer
from tatami.onnx.node import OnnxNode
from tatami.onnx.operators.quantize import dynamic_quantize
from tatami.onnx.operators.recurrent import activation_functions
from tatami.onnx.subgraphs.graphs_inside import child, emit_call, finish, port
from tatami.onnx.values import Value


@dataclass(frozen=True)
class _Weights:
    """Weights [K, 4H] of one direction as i8, their scale (rank 0 or [4H]) and zero point ("" if it is 0), and column sums."""

    codes: str
    scale: str
    zero: str
    columns: str

    @staticmethod
    def of(m: Importer, n: OnnxNode, at: int, scale_at: int, d: int) -> _Weights:
        """The weights of direction `d` from operands `at` and `scale_at`, as signed integers."""
        zero = n.has(scale_at + 1) and m.known(m.value(n.inputs[scale_at + 1]))
        is_centred = zero is False or (zero is not None and not zero.any())
        point = "" if is_centred else _of_direction(m, n, scale_at + 1, d).tensor
        codes, point = as_signed(m, _of_direction(m, n, at, d).tensor, point)
        return _Weights(codes, _of_direction(m, n, scale_at, d).tensor, point, column_sums(m, codes, point))


def _of_direction(m: Importer, n: OnnxNode, i: int, d: int) -> Num:
    return Num(m, m.operand(n, i)).at(0, d)


def quantized_lstm(m: Importer, n: OnnxNode) -> list[Value]:
    """Results: Y [T, D, B, H], the last h and c [D, B, H]."""
    names, parameters = activation_functions(m, n)
    attrs = Recurrent(
        direction=n.attr("direction", "forward"), activations=tuple(names), parameters=tuple(parameters),
        clip=float(n.attr("clip")) if "clip" in n.attrs else None, input_forget=bool(n.attr("input_forget", 0)),
    )  # fmt: skip
    x = Num(m, m.operand(n, 0))
    steps, batch, width = x.shape
    codes, scale, zero = dynamic_quantize(m, x.reshape(steps * batch, width).tensor)
    lengths = Num(m, m.operand(n, 4)).cast(DType.i64) if n.has(4) else None
    directions = []
    for d in range(2 if attrs.direction == "bidirectional" else 1):
        w = _Weights.of(m, n, 1, 8, d)
        gates = _scaled(Num(m, integer_matmul(m, Integers(codes, zero), Integers(w.codes, w.zero), w.columns)), scale, w.scale)
        layer = _Layer(m, n, d, attrs, lengths, gates.reshape(steps, batch, gates.shape[-1]))
        directions.append(layer.results())
    y, h, c = (m.one("stack", [r[j].tensor for r in directions], {"axis": 1 if j == 0 else 0}) for j in range(3))
    return [m.result(t) for t in (y, h, c)]


def _scaled(sums: Num, left: str, right: str) -> Num:
    return sums.cast(DType.fp32) * (Num(sums.m, left) * Num(sums.m, right))


class _Layer:
    """One direction: a loop over the steps, and its operands."""

    def __init__(self, m: Importer, n: OnnxNode, d: int, attrs: Recurrent, lengths: Num | None, gates: Num) -> None:
        self.m, self.attrs, self.lengths = m, attrs, lengths
        self.r = _Weights.of(m, n, 2, 10, d)
        self.backwards = attrs.direction == "reverse" or d == 1
        self.gates = self.turned(gates)
        self.steps, self.batch, rows = self.gates.shape
        self.hidden: Expr = m.shape(self.r.codes)[0]
        self.functions = activations("lstm", attrs, d)
        bias = _of_direction(m, n, 3, d) if n.has(3) else None
        self.bias = None if bias is None else bias.part(0, 0, rows) + bias.part(0, rows, rows * 2)
        self.peepholes = _of_direction(m, n, 7, d) if n.has(7) else None
        zero = Num(m, m.number(0.0, DType.fp32)).fn("expand", shape=(self.batch, self.hidden))
        self.state = [_of_direction(m, n, i, d) if n.has(i) else zero for i in (5, 6)]

    def turned(self, x: Num) -> Num:
        """Steps from last to first if the layer runs backwards; with lengths, each sequence from its own end."""
        if not self.backwards:
            return x
        if self.lengths is None:
            return x.fn("flip", axes=(0,))
        attrs = {"time_axis": 0, "batch_axis": 1}
        return Num(self.m, self.m.one("reverse_sequence", [x.tensor, self.lengths.tensor], attrs))

    def results(self) -> tuple[Num, Num, Num]:
        """Y, the last h and the last c, without the axis of directions."""
        m, inner = self.m, child(self.m, "lstm")
        inputs: list[Input] = []
        kinds = [TensorType(DType.i64, ()), TensorType(DType.bool, ()), *(TensorType(s.dtype, s.shape) for s in self.state)]
        t, go, h, c = (Num(inner, port(inner, "state", kind, inputs).tensor) for kind in kinds)
        y, h, c = self.step(inner, t, h, c)
        finish(m, inner, inputs, [v.tensor for v in (go, h, c, y)])
        count = size_of(m, self.steps, DType.i64).tensor
        attrs: dict[str, object] = {"body": inner.name, "carried": 2, "trip": self.steps}
        h_last, c_last, y_all = emit_call(m, "loop", [count, "", *(s.tensor for s in self.state), *inner.captures], attrs)
        return self.turned(Num(m, y_all)), Num(m, h_last), Num(m, c_last)

    def step(self, inner: Importer, t: Num, h: Num, c: Num) -> tuple[Num, Num, Num]:
        """(the row of Y, new h, new c) of one step."""

        def outer(x: str) -> str:
            return inner.capture(x).tensor if x else ""

        lengths = None if self.lengths is None else Num(inner, outer(self.lengths.tensor)).unsqueeze(1)
        ranged = h if lengths is None else t.fn("le", lengths).where(h, 0.0)  # sequences that have ended do not widen the range
        codes, scale, zero = dynamic_quantize(inner, ranged.tensor)
        r = _Weights(*(outer(x) for x in (self.r.codes, self.r.scale, self.r.zero, self.r.columns)))
        sums = Num(inner, integer_matmul(inner, Integers(codes, zero), Integers(r.codes, r.zero), r.columns))
        given = Num(inner, inner.one("take", [outer(self.gates.tensor), t.tensor], {"axis": 0, "bounds": "clamp"}))
        total = given + _scaled(sums, scale, r.scale)
        if self.bias is not None:
            total = total + Num(inner, outer(self.bias.tensor))
        peepholes = None if self.peepholes is None else Num(inner, outer(self.peepholes.tensor))
        new_h, new_c = self.cell(total, c, peepholes)
        if lengths is None:
            return new_h, new_h, new_c
        goes_on = t.fn("lt", lengths)
        return goes_on.where(new_h, 0.0), goes_on.where(new_h, h), goes_on.where(new_c, c)

    def cell(self, total: Num, c: Num, peepholes: Num | None) -> tuple[Num, Num]:
        """(new h, new c) from the gates' sums and the old c."""
        width, f = self.hidden, self.functions

        def gate(k: int, peephole: int = -1, state: Num = c) -> Num:
            x = total.part(1, width * k, width * (k + 1))
            if peepholes is not None and peephole >= 0:
                x = x + state * peepholes.part(0, width * peephole, width * (peephole + 1))
            clip = self.attrs.clip
            return x if clip is None else x.fn("clamp", lo=-clip, hi=clip)

        i = _activated(gate(0, 0), f[0])
        forget = Num(i.m, i.m.number(1.0, i.dtype)) - i if self.attrs.input_forget else _activated(gate(2, 2), f[0])
        new = forget * c + i * _activated(gate(3), f[1])
        return _activated(gate(1, 1, new), f[0]) * _activated(new, f[2]), new


def _activated(x: Num, f: Activated) -> Num:
    match f:
        case ("affine", (alpha, beta)):
            return x * alpha + beta
        case ("scaled_tanh", (alpha, beta)):
            return (x * beta).fn("tanh") * alpha
        case ("hard_sigmoid", (alpha, beta)):
            return (x * alpha + beta).fn("clamp", lo=0.0, hi=1.0)
        case (("leaky_relu" | "elu" | "thresholded_relu") as name, (alpha,)):
            return x.fn(name, alpha=alpha)
        case _:
            return x.fn(f.name)
