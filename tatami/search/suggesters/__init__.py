"""Suggesters: functions from a compilation to proposals, each in a file of its name.

tiling      another plan for a Region: another template, other tiles, other loops
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tatami.compilation import Compilation
from tatami.search.proposal import Proposal
from tatami.search.suggesters.calls import calls
from tatami.search.suggesters.fusion import fusion
from tatami.search.suggesters.tiling import tiling

Suggester: TypeAlias = Callable[[Compilation, Mapping[str, int]], list[Proposal]]
SUGGESTERS: Sequence[Suggester] = (calls, fusion, tiling)
"""All suggesters, in the order of the stages that their decisions are about."""


def suggest(compilation: Compilation, sizes: Mapping[str, int]) -> list[Proposal]:
    """The proposals of all suggesters. `sizes`: values of size symbols at which estimates are taken; others have the usual
    ones."""
    return [p for suggester in SUGGESTERS for p in suggester(compilation, sizes)]
