"""Probabilities of classes from those of their pairs: a loop to the fixed point of Wu, Lin and Weng's second method.

    Q[i, i] = sum of r[j, i]^2 over j != i,   Q[i, j] = -r[j, i] r[i, j];   p minimises p Q p among the distributions

One class after the other is set to its best value, and p is normalised; a row is done when no gradient differs from p Q p
by 0.005 / classes, or after 100 iterations.
"""

from __future__ import annotations

import numpy as np

from tatami.core.dtype import DType
from tatami.core.signature import Input
from tatami.frontend.ir import TensorType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.subgraphs.graphs_inside import child, finish, port

TURNS = 100
"""Maximum number of iterations (LIBSVM's)."""
TOLERANCE = 0.005
"""Largest difference of gradients, for all classes together, at which a row is done (LIBSVM's)."""


def coupled(r: Num, pairs: list[tuple[int, int]], count: int) -> Num:
    """[rows, classes] from [rows, pairs]: r of pair (i, j) is the probability of i, given i or j."""
    m = r.m
    q = _matrix(r, pairs, count)
    rows = r.shape[0]
    start = Num(m, m.number(1.0 / count, DType.fp32)).fn("expand", shape=(rows, count))
    done = Num(m, m.number(False, DType.bool)).fn("expand", shape=(rows,))
    inner = child(m, "coupling")
    inputs: list[Input] = []
    port(inner, "iteration", TensorType(DType.i64, ()), inputs)
    port(inner, "condition", TensorType(DType.bool, ()), inputs)
    p, is_done, matrix = (Num(inner, port(inner, "state", m.tensors[t.tensor], inputs).tensor) for t in (start, done, q))
    p, is_done = _turn(inner, p, is_done, matrix, count)
    again = is_done.fn("not").fn("reduce_or", axes=(0,))
    finish(m, inner, inputs, [again.tensor, p.tensor, is_done.tensor])
    turns = m.add_constant(np.array(TURNS, np.int64))
    operands = [turns, "", start.tensor, done.tensor, q.tensor, *inner.captures]
    return Num(m, m.emit("loop", operands, {"body": inner.name, "carried": 2})[0])


def _matrix(r: Num, pairs: list[tuple[int, int]], count: int) -> Num:
    """Q, [rows, classes, classes], from r and 1 - r by two tables of positions."""
    m = r.m
    both = m.one("concat", [r.tensor, (r * -1.0 + 1.0).tensor], {"axis": 1})
    place = {}
    for k, (i, j) in enumerate(pairs):
        place[i, j], place[j, i] = k, len(pairs) + k
    others = [(i, j) for i in range(count) for j in range(count) if i != j]

    def taken(order: list[tuple[int, int]]) -> Num:
        return Num(m, m.one("take", [both, m.add_constant(np.array([place[o] for o in order]))], {"axis": 1}))

    beside = taken(others) * taken([(j, i) for i, j in others]) * -1.0
    squares = taken([(j, i) for i, j in others])
    squares = (squares * squares).reshape(r.shape[0], count, count - 1).fn("reduce_sum", axes=(2,))
    every = m.one("concat", [beside.tensor, squares.tensor], {"axis": 1})
    at = {o: k for k, o in enumerate(others)} | {(i, i): len(others) + i for i in range(count)}
    order = np.array([at[i, j] for i in range(count) for j in range(count)])
    return Num(m, m.one("take", [every, m.add_constant(order)], {"axis": 1})).reshape(r.shape[0], count, count)


def _turn(m: Importer, p: Num, is_done: Num, q: Num, count: int) -> tuple[Num, Num]:
    ps = [p.at(1, i) for i in range(count)]
    qs = [[q.at(1, i).at(1, j) for j in range(count)] for i in range(count)]
    gradients = [_sum([qs[i][j].fn("mul", ps[j]) for j in range(count)]) for i in range(count)]
    value = _sum([ps[i].fn("mul", gradients[i]) for i in range(count)])
    error = (gradients[0] - value).fn("abs")
    for g in gradients[1:]:
        error = error.fn("max", (g - value).fn("abs"))
    is_done = is_done.fn("or", error.fn("lt", float(np.float32(TOLERANCE) / np.float32(count))))
    new = list(ps)
    for i in range(count):
        step = (value - gradients[i]) / qs[i][i]
        whole = step + 1.0
        new[i] = new[i] + step
        value = (value + step * (step * qs[i][i] + gradients[i] * 2.0)) / whole / whole
        gradients = [(g + step * qs[i][j]) / whole for j, g in enumerate(gradients)]
        new = [v / whole for v in new]
    columns = [is_done.where(old, now).unsqueeze(1).tensor for old, now in zip(ps, new, strict=True)]
    return Num(m, m.one("concat", columns, {"axis": 1})), is_done


def _sum(terms: list[Num]) -> Num:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
