"""Ensembles of trees: a routine with its tables as operands.

tree_ensemble(x, nodes, roots, targets, values)   ->   CALL routine tree_ensemble
"""

from __future__ import annotations

from tatami.core.numbers.trees import HOW
from tatami.core.scalar import Scalar
from tatami.frontend.operations.trees import TreeEnsemble
from tatami.tiny.build import Value
from tatami.tiny.ir import CallOp, ResultType
from tatami.tiny.lowering.rule import Rule, Use


def tree_ensemble(use: Use[TreeEnsemble]) -> tuple[Value, ...]:
    """CALL of the routine "tree_ensemble" with its tables as operands."""
    results = tuple(ResultType(t.dtype, t.shape) for t in use.types)
    attrs: dict[str, Scalar | list[Scalar]] = {"outputs": use.attrs.outputs, "how": HOW.index(use.attrs.how)}
    return use.builder.call(CallOp("routine", ("tree_ensemble",), results, attrs=attrs), use.present)


TREES: dict[str, Rule] = {"tree_ensemble": tree_ensemble}
"""Rules of this family by operation."""
