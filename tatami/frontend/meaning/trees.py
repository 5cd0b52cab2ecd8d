"""The numpy meaning of ensembles of trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tatami.core.numbers.numerics import Array
from tatami.core.numbers.trees import TreeTables, walk_trees
from tatami.frontend.meaning.scope import Scope
from tatami.frontend.operations.trees import TreeEnsemble


def tree_ensemble(s: Scope, attrs: TreeEnsemble) -> Array:
    """[rows, outputs]: the combined leaves of each row (`core.numbers.trees.walk_trees`)."""
    return walk_trees(s[0], TreeTables(s[1], s[2], s[3], s[4]), attrs.outputs, attrs.how)


TREES: dict[str, Callable[[Scope, Any], Array]] = {"tree_ensemble": tree_ensemble}
"""Operation -> numpy meaning."""
