"""Ensembles of decision trees: one operation, since no gather of a whole level is as fast as a walk through one tree
(core/numbers/trees.py)."""

from __future__ import annotations

from typing import Literal

import msgspec

from tatami.core.algebra.order import is_positive
from tatami.core.dtype import DType
from tatami.core.expr import expr, shape_text
from tatami.core.numbers.trees import COLUMNS
from tatami.frontend.ir import TensorType
from tatami.frontend.operation import Operands, Operation, Site, need, want


class TreeEnsemble(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Attributes of `tree_ensemble`. `outputs`: results per row; `features`: columns of x that the nodes may test; `how`: the
    combination of a row's leaves."""

    outputs: int
    features: int
    how: Literal["sum", "min", "max"] = "sum"


def _tree_ensemble(attrs: TreeEnsemble, operands: Operands, site: Site) -> tuple[TensorType, ...]:
    x, nodes, roots, targets, values = need(operands)
    want(
        x.dtype in COLUMNS and len(x.shape) == 2,
        f"x of {x.dtype}{shape_text(x.shape)}",
        "give fp32 or fp64 of [rows, features]",
        site,
    )
    beyond = is_positive(expr(attrs.features) - x.shape[1])
    want(not beyond, f"{attrs.features} features of {x.shape[1]}", "give as many columns as the trees ask for", site)
    want(attrs.outputs > 0, f"{attrs.outputs} outputs", "give one or more", site)
    for name, table, rank in (("nodes", nodes, 2), ("roots", roots, 1), ("targets", targets, 1)):
        is_table = table.dtype == DType.i32 and len(table.shape) == rank
        want(is_table, f"{name} of {table.dtype}{shape_text(table.shape)}", f"give i32 of rank {rank}", site)
    columns = COLUMNS[x.dtype]
    want(nodes.shape[1] == expr(columns), f"nodes of {shape_text(nodes.shape)}", f"give {columns} columns for {x.dtype}", site)
    is_leaves = values.dtype == x.dtype and len(values.shape) == 2 and values.shape[0] == targets.shape[0]
    want(is_leaves, f"values of {values.dtype}{shape_text(values.shape)}", f"give {x.dtype}, a row for each target", site)
    return (TensorType(x.dtype, (x.shape[0], expr(attrs.outputs))),)


TREES: tuple[Operation, ...] = (
    Operation("tree_ensemble", TreeEnsemble, 5, 5, _tree_ensemble, "sum, least or largest of the leaves of decision trees"),
)
"""Rows of the table: ensembles of decision trees."""
