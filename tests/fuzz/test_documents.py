"""A share of the campaign of document edits: the same for every run, each outcome obeyed or refused."""

from __future__ import annotations

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.runtime.building.compiler import find_compiler
from tatami.runtime.building.sanitizer import sanitizer_library
from tests.fuzz.documents import FINE, campaign, every
from tests.fuzz.edits.every_edit import cases
from tests.shares import is_whole

SHARE = range(400 if is_whole() else 200)
FOUND = (873, 5887, 6334, 6390, 20158, 22495, 23996, 25457, 27534, 28520, 58744)
"""Seeds that ended a process, or ran to other numbers than the document said."""


def test_an_edit_is_obeyed_or_refused() -> None:
    try:
        sanitizer_library(find_compiler())
    except TatamiError:
        pytest.skip("the C compiler has no AddressSanitizer")
    outcomes = campaign([*SHARE, *FOUND], jobs=2)
    assert len(outcomes) == len(SHARE) + len(FOUND)
    assert {o["kind"] for o in outcomes.values()} >= {"obeyed", "refused"}
    wrong = {seed: o for seed, o in outcomes.items() if o["kind"] not in FINE}
    assert not wrong, wrong


def test_single_edits_are_obeyed_or_refused() -> None:
    """A share of every single edit, of programs without products, on the emulated GPU."""
    outcomes = every(cases(["softmax80", "sort80"], ["plan", "region"], (3, 10 if is_whole() else 70)), jobs=1)
    assert {o["kind"] for o in outcomes.values()} >= {"refused"} and len({o["program"] for o in outcomes.values()}) == 2
    assert not [o for o in outcomes.values() if o["kind"] not in FINE]
