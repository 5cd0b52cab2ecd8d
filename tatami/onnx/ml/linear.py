"""LinearClassifier and LinearRegressor, one matrix product each."""

from __future__ import annotations

import numpy as np

from tatami.core.diagnostic import fail
from tatami.onnx.arithmetic import Num
from tatami.onnx.importer import Importer
from tatami.onnx.ml.scores import Labels, best, features, transform_of, transformed, two_columns
from tatami.onnx.node import OnnxNode
from tatami.onnx.values import Value


def product_of(m: Importer, n: OnnxNode, x: Num, rows: int) -> Num:
    """x times the coefficients, stored as one row for each of `rows` results, plus the intercepts."""
    weights, intercepts = (np.asarray(n.attr(name) or [], np.float32) for name in ("coefficients", "intercepts"))
    if not rows or not len(weights) or len(weights) % rows or len(intercepts) not in (0, 1, rows):
        why = f"{len(weights)} coefficients and {len(intercepts)} intercepts for {rows} results"
        raise fail("InvalidAttribute", m.site, why, "give as many coefficients for each result, and one intercept")
    y = Num(m, m.one("matmul", [x.tensor, m.add_constant(np.ascontiguousarray(weights.reshape(rows, -1).T))]))
    return y + Num(m, m.add_constant(intercepts)) if len(intercepts) else y


def regressor(m: Importer, n: OnnxNode) -> list[Value]:
    """LinearRegressor: one product and its transform."""
    y = product_of(m, n, features(m, n), int(n.attr("targets", 1)))
    return [m.result(transformed(y, transform_of(m, n)).tensor)]


def classifier(m: Importer, n: OnnxNode) -> list[Value]:
    """LinearClassifier: classes and scores. One set of coefficients for two classes scores the second; the first's is the
    complement."""
    labels, name = Labels(m, n, "classlabels_ints"), transform_of(m, n)
    rows = len(n.attr("intercepts") or []) or len(labels)
    y = product_of(m, n, features(m, n), rows)
    if rows == 1:
        label = labels.of_sign(y.fn("squeeze", axes=(1,)).fn("gt", 0.0))
        z = two_columns(y, name, is_positive=True) if len(labels) == 2 else transformed(y, name)
    else:
        if len(labels) != rows:
            raise fail("InvalidAttribute", m.site, f"{len(labels)} labels for {rows} classes", "give one for each class")
        label, z = labels.pick(best(y)), transformed(y, name)
    return [label, m.result(z.tensor)]
