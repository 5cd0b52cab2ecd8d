"""SVMClassifier and SVMRegressor: kernels of the rows with the support vectors, then one product.

The layout of coefficients and the probabilities of pairs are those of LIBSVM (C.-C. Chang, C.-J. Lin); pairs become classes
by the second method of T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability estimates for multi-class classification by pairwise
coupling" (JMLR 5, 2004), with the stopping rule that ONNX Runtime takes from LIBSVM.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from tatami.core.diagnostic import fail
from tatami.core.dtype import DType
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.ml.coupling import coupled
from tatami.onnx.ml.scores import Labels, best, features, transform_of, transformed, two_columns
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
"""Values of the attribute `kernel_type`."""


def _floats(n: OnnxNode, name: str) -> np.ndarray:
    return np.asarray(n.attr(name) or [], np.float32)


def _kernel(m: Importer, n: OnnxNode, x: Num, vectors: np.ndarray) -> Num:
    """[rows, vectors]: the kernel function of each row and vector."""
    kind = n.attr("kernel_type", "LINEAR")
    if kind not in KERNELS:
        raise fail("InvalidAttribute", m.site, f"kernel_type {kind}", f"give one of {', '.join(KERNELS)}")
    given = _floats(n, "kernel_params")
    gamma, offset, degree = (float(v) for v in (given if len(given) == 3 else (0.0, 0.0, 0.0)))
    if kind == "RBF":
        apart = x.unsqueeze(1) - Num(m, m.add_constant(vectors))
        return ((apart * apart).fn("reduce_sum", axes=(2,)) * -gamma).fn("exp")
    dot = Num(m, m.one("matmul", [x.tensor, m.add_constant(np.ascontiguousarray(vectors.T))]))
    match kind:
        case "POLY":
            return (dot * gamma + offset).fn("pow", degree)
        case "SIGMOID":
            return (dot * gamma + offset).fn("tanh")
        case _:
            return dot


def _vectors(m: Importer, n: OnnxNode, count: int) -> np.ndarray:
    flat = _floats(n, "support_vectors")
    if not len(flat) or len(flat) % count:
        raise fail("InvalidAttribute", m.site, f"{len(flat)} numbers of {count} support vectors", "give as many for each")
    return flat.reshape(count, -1)


def regressor(m: Importer, n: OnnxNode) -> list[Value]:
    """SVMRegressor: the kernel times the coefficients plus rho; the sign for a one-class model."""
    x, weights, rho = features(m, n), _floats(n, "coefficients"), _floats(n, "rho")
    count = int(n.attr("n_supports", 0))
    if not len(rho) or not len(weights) or (count and count != len(weights)):
        why = f"{len(weights)} coefficients and {len(rho)} rho for {count} support vectors"
        raise fail("InvalidAttribute", m.site, why, "give a coefficient for each, and one rho")
    k = _kernel(m, n, x, _vectors(m, n, count)) if count else x
    y = Num(m, m.one("matmul", [k.tensor, m.add_constant(weights.reshape(-1, 1))])) + float(rho[0])
    if n.attr("one_class", 0):
        y = y.fn("gt", 0.0).where(Num(m, m.number(1.0, y.dtype)), -1.0)
    return [m.result(transformed(y, transform_of(m, n)).tensor)]


def classifier(m: Importer, n: OnnxNode) -> list[Value]:
    """SVMClassifier: classes, and scores: those of the pairs of classes, or of the classes if the node has probabilities,
    or coefficients only."""
    labels, name = Labels(m, n, "classlabels_ints"), transform_of(m, n)
    sizes = [int(v) for v in n.attr("vectors_per_class") or []]
    if sum(sizes) == 0:
        return _linear(m, n, labels, name)
    count, total = len(labels), sum(sizes)
    pairs = list(combinations(range(count), 2))
    weights, rho, a, b = (_floats(n, key) for key in ("coefficients", "rho", "prob_a", "prob_b"))
    is_right = count > 1 and len(sizes) == count and len(weights) == (count - 1) * total and len(rho) >= len(pairs)
    if not is_right or len(a) != len(b) or len(a) not in (0, len(pairs)):
        why = f"{len(weights)} coefficients, {len(rho)} rho and {len(a)} prob_a for {count} classes of {total} vectors"
        raise fail("InvalidAttribute", m.site, why, "give classes - 1 coefficients for each vector, one rho for each pair")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    table = np.zeros((total, len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        of_i, of_j = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        table[of_i, p] = weights.reshape(count - 1, total)[j - 1, of_i]
        table[of_j, p] = weights.reshape(count - 1, total)[i, of_j]
    k = _kernel(m, n, features(m, n), _vectors(m, n, total))
    y = Num(m, m.one("matmul", [k.tensor, m.add_constant(table)])) + Num(m, m.add_constant(rho[: len(pairs)]))
    label = labels.pick(best(_votes(y, pairs, count)))
    if len(a):
        z = transformed(coupled(_pair_probabilities(y, a, b), pairs, count), name)
    elif count == 2:
        z = two_columns(y, name, is_positive=name != "NONE")
    else:
        z = transformed(y, name)
    return [label, m.result(z.tensor)]


def _votes(y: Num, pairs: list[tuple[int, int]], count: int) -> Num:
    """[rows, classes]: number of pairs that each class wins; the first of a pair wins if its score is above 0."""
    first, second = (np.zeros((len(pairs), count), np.float32) for _ in range(2))
    for p, (i, j) in enumerate(pairs):
        first[p, i], second[p, j] = 1, 1
    wins = y.fn("gt", 0.0).cast(DType.fp32)
    gained = Num(y.m, y.m.one("matmul", [wins.tensor, y.m.add_constant(first - second)]))
    return gained + Num(y.m, y.m.add_constant(second.sum(0)))


def _pair_probabilities(y: Num, a: np.ndarray, b: np.ndarray) -> Num:
    scaled = y * Num(y.m, y.m.add_constant(a)) + Num(y.m, y.m.add_constant(b))
    return (scaled * -1.0).fn("sigmoid").fn("clamp", lo=1e-7, hi=float(np.float32(1) - np.float32(1e-7)))


def _linear(m: Importer, n: OnnxNode, labels: Labels, name: str) -> list[Value]:
    weights, rho, count = _floats(n, "coefficients"), _floats(n, "rho"), len(labels)
    if not count or not len(weights) or len(weights) % count or not len(rho):
        raise fail(
            "InvalidAttribute", m.site, f"{len(weights)} coefficients for {count} classes", "give as many for each class"
        )
    table = m.add_constant(np.ascontiguousarray(weights.reshape(count, -1).T))
    y = Num(m, m.one("matmul", [features(m, n).tensor, table])) + float(rho[0])
    top = best(y)
    if count == 2 and not len(_floats(n, "prob_a")):
        is_positive = bool((weights >= 0).all())
        largest = y.fn("reduce_max", axes=(1,))
        is_second = largest.fn("ge", 0.5) if is_positive else largest.fn("gt", 0.0)
        top = is_second.where(Num(m, m.number(1, top.dtype)), top)
    return [labels.pick(top), m.result(transformed(y, name).tensor)]
