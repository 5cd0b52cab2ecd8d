"""Recurrent layers in ONNX's layout: X [T, B, I], weights per direction, gates stacked along the first weight axis.

lstm: gates i, o, f, c; gru: z, r, h; rnn: one. Operands: X, W [D, G*H, I], R [D, G*H, H], and optionally bias
[D, 2*G*H] (input half, recurrent half), lengths [B], initial h [D, B, H], and for lstm initial c [D, B, H] and
peepholes [D, 3*H] (i, o, f). Results: Y [T, D, B, H], the last h [D, B, H], and for lstm the last c. Beyond a sequence's
length Y is 0 and the state is kept; `reverse` reads each sequence from its own end.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from tatami.core.dtype import DType
from tatami.core.expr import Shape, expr, shape_text
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import Operands, Operation, Site, need, same_dtype, same_size, want, want_float
from tatami.frontend.operations.windows import split_groups

Activation = Literal[
    "sigmoid", "tanh", "relu", "softsign", "softplus", "hard_sigmoid", "leaky_relu", "elu", "affine", "scaled_tanh",
    "thresholded_relu",
]  # fmt: skip
PARAMETERS: dict[str, tuple[float, ...]] = {
    "hard_sigmoid": (0.2, 0.5), "leaky_relu": (0.01,), "elu": (1.0,), "affine": (1.0, 0.0), "scaled_tanh": (1.0, 1.0),
    "thresholded_relu": (1.0,),
}  # fmt: skip
"""Activation -> default alpha, and beta, for those that have them: alpha * x + beta (affine), alpha * tanh(beta * x)
(scaled_tanh), others as the operations of these names."""
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
"""Layer -> number of gates per hidden unit."""
DEFAULTS: dict[str, tuple[Activation, ...]] = {
    "lstm": ("sigmoid", "tanh", "tanh"),
    "gru": ("sigmoid", "tanh"),
    "rnn": ("tanh",),
}
"""Layer -> its activations f, g, h if none are stated."""


class Recurrent(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `lstm`, `gru` and `rnn`. `activations`: f, g, h for each direction in turn; empty: `DEFAULTS`."""

    direction: Literal["forward", "reverse", "bidirectional"] = "forward"
    activations: tuple[Activation, ...] = ()
    parameters: tuple[tuple[float, ...], ...] = ()
    """Alpha, and beta, for each of `activations`, as many as it has; empty: the defaults of all."""
    clip: float | None = None
    """Limit of gate inputs, which are clamped to -clip..clip; None: no limit."""
    linear_before_reset: bool = False
    """True if gru applies the reset gate after the recurrent product."""
    input_forget: bool = False
    """True if the forget gate of lstm is 1 - input gate."""


class Activated(NamedTuple):
    """An activation function with its parameters."""

    name: str
    parameters: tuple[float, ...]


def activations(kind: str, attrs: Recurrent, direction: int) -> tuple[Activated, ...]:
    """The activation functions of one direction."""
    own = DEFAULTS[kind]
    first, last = direction * len(own), (direction + 1) * len(own)
    names = attrs.activations[first:last] or own
    given = attrs.parameters[first:last] or tuple(PARAMETERS.get(n, ()) for n in names)
    return tuple(map(Activated, names, given))


def _layer(kind: str, attrs: Recurrent, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, w, r = need(operands[:3])
    want_float(x, kind, site)
    for operand, name in ((x, "X"), (w, "W"), (r, "R")):
        want(
            len(operand.shape) == 3,
            f"{kind}: {name} has shape {shape_text(operand.shape)}",
            "give rank 3",
            site,
            "BroadcastMismatch",
        )
    directions = 2 if attrs.direction == "bidirectional" else 1
    steps, batch, inputs = x.shape
    gates = GATES[kind]
    hidden = split_groups(w.shape[1], gates, site)
    n = len(DEFAULTS[kind])
    want(len(attrs.activations) in (0, n * directions), f"{len(attrs.activations)} activations", f"give {n * directions}", site)
    if attrs.parameters:
        counts, wanted = [len(p) for p in attrs.parameters], [len(PARAMETERS.get(a, ())) for a in attrs.activations]
        want(counts == wanted, f"activations with {counts} parameters", f"give {wanted} of them", site)
    d = expr(directions)
    layout: list[tuple[TensorType | None, Shape, str]] = [
        (w, (d, hidden * gates, inputs), "W"),
        (r, (d, hidden * gates, hidden), "R"),
        (_at(operands, 3), (d, hidden * gates * 2), "bias"),
        (_at(operands, 4), (batch,), "lengths"),
        (_at(operands, 5), (d, batch, hidden), "initial h"),
        (_at(operands, 6), (d, batch, hidden), "initial c"),
        (_at(operands, 7), (d, hidden * 3), "peepholes"),
    ]
    floats = [x]
    for given, shape, name in layout:
        if given is None:
            continue
        t = given
        want(
            len(t.shape) == len(shape),
            f"{kind}: {name} has shape {shape_text(t.shape)}",
            f"give {shape_text(shape)}",
            site,
            "BroadcastMismatch",
        )
        for a, b in zip(t.shape, shape, strict=True):
            same_size(a, b, f"{kind}, {name}", site)
        if name == "lengths":
            want(t.dtype.is_int, f"lengths of {t.dtype}", "cast them to i64", site, "UnsupportedDType")
        else:
            floats.append(t)
    dtype: DType = same_dtype(floats, site)
    last = TensorType(dtype, (d, batch, hidden))
    return (TensorType(dtype, (steps, d, batch, hidden)), *((last,) * (2 if kind == "lstm" else 1)))


def _at(operands: Operands, i: int) -> TensorType | None:
    return operands[i] if i < len(operands) else None


def _lstm(attrs: Recurrent, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return _layer("lstm", attrs, operands, site)


def _gru(attrs: Recurrent, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return _layer("gru", attrs, operands, site)


def _rnn(attrs: Recurrent, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    return _layer("rnn", attrs, operands, site)


RECURRENT: tuple[Operation, ...] = (
    Operation("lstm", Recurrent, 3, 8, _lstm, "long short-term memory over the first axis"),
    Operation("gru", Recurrent, 3, 6, _gru, "gated recurrent unit over the first axis"),
    Operation("rnn", Recurrent, 3, 6, _rnn, "h = f(x W^T + h R^T + bias) over the first axis"),
)
"""Rows of the table: recurrent layers."""
