"""Region to Region rewrites, applied in this order (D2.10, spec 3 §6.3.1 and §6.6). Each keeps the meaning
exactly as `region.run` defines it, up to the rounding that R1 allows."""

from __future__ import annotations

from collections.abc import Callable

from tatami.region.ir import Region
from tatami.region.rules.guards import normalise_guards
from tatami.region.rules.indices import read_at_known_index
from tatami.region.rules.movement import inline_movement, spell_out_positions
from tatami.region.rules.reduces import factor_common, hoist_invariant, merge_nested_reduce
from tatami.region.rules.single_use import inline_dequantised, inline_single_use
from tatami.region.rules.stacks import spell_out_stacks
from tatami.region.rules.tidy import cast_into_yield, drop_dead_lets

RULES: tuple[Callable[[Region], Region], ...] = (
    spell_out_positions,
    inline_movement,
    read_at_known_index,
    normalise_guards,
    drop_dead_lets,
    cast_into_yield,
    drop_dead_lets,
    inline_single_use,
    spell_out_stacks,
    inline_dequantised,
    drop_dead_lets,
    merge_nested_reduce,
    drop_dead_lets,
    factor_common,
    hoist_invariant,
    merge_nested_reduce,
    normalise_guards,
    drop_dead_lets,
)
"""The rewrites in their order."""
