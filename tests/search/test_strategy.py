"""Successive halving with planted times: the order is that of all turns, and the next best are tested where the best does not pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tatami.decisions import Decisions
from tatami.ledger.database import open_ledger
from tatami.ledger.records import Records, Subject
from tatami.search.measuring.measurer import Outcome
from tatami.search.measuring.messages import OWN
from tatami.search.proposal import Proposal
from tatami.search.strategy import FIRST_TURNS, TEST, TEST_TURNS, Candidate, Patience, Search, candidate

ABOUT = Subject("region", "cpu:avx2", "", 1, "warm", "revision")
ROUNDS = [FIRST_TURNS, 2 * FIRST_TURNS, 4 * FIRST_TURNS]
"""Turns of each round of halving."""


class Planted:
    """A measurer whose candidates take a planted share of the own time: one for each round, then one for the test."""

    def __init__(self, shares: Mapping[str, Sequence[float]]) -> None:
        self.shares, self.live, self.tested = shares, set[str](), list[str]()

    def add(self, name: str, decisions: Decisions, folder: str = "") -> Outcome:
        self.live.add(name)
        return Outcome("right")

    def drop(self, name: str) -> None:
        self.live.discard(name)

    def turns(self, names: Sequence[str], count: int, seed: int) -> dict[str, list[float]]:
        is_test = seed >= TEST
        if is_test:
            self.tested.append(names[1])
        place = -1 if is_test else ROUNDS.index(count)
        return {n: [1.0 if n == OWN else self.shares[n][place]] * count for n in names}


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    with open_ledger(tmp_path / "ledger.sqlite") as connection:
        yield Records(connection)


def searched(records: Records, shares: Mapping[str, Sequence[float]]) -> tuple[str, list[str]]:
    """(the winner's name, names of the tested candidates in order). shares: name -> its planted shares of the own time."""
    found: dict[str, Candidate] = {}
    for name in shares:
        decision = Decisions(calls={name: "inline"})
        found[name] = candidate(Proposal("tiling", name, "", decision, None, {}, ""), decision, Decisions())
    names = {c.key: n for n, c in found.items()}
    measurer = Planted({found[n].key: s for n, s in shares.items()})
    search = Search(ABOUT, Decisions(), measurer, records, float("inf"), Patience(0.0))  # type: ignore[arg-type]
    result = search.run(list(found.values()))
    assert result.is_complete
    return "" if result.winner is None else names[result.winner.key], [names[k] for k in dict.fromkeys(measurer.tested)]


SLOW = {f"slow {k}": (1.2, 1.2, 1.2, 1.2) for k in range(6)}


def test_the_best_of_all_turns_is_tested_alone(records):
    assert searched(records, {"a": (0.5, 0.5, 0.5, 0.5), "b": (0.8, 0.8, 0.8, 0.8), **SLOW}) == ("a", ["a"])


def test_a_disturbed_round_does_not_decide(records):
    """Halving keeps 3 of 8, then 1: by its last round alone `b` would be that one."""
    assert searched(records, {"a": (0.5, 0.82, 0.5, 0.5), "b": (0.8, 0.8, 0.8, 0.8), **SLOW}) == ("a", ["a"])


def test_the_next_best_is_tested_where_the_best_does_not_pass(records):
    lucky = {"a": (0.5, 0.5, 0.5, 1.0), "b": (0.8, 0.8, 0.8, 0.8), **SLOW}
    assert searched(records, lucky) == ("b", ["a", "b"])


def test_three_candidates_are_tested_at_most_and_none_without_a_gain(records):
    lucky = {name: (0.5 + k / 100, 0.5, 0.5, 1.0) for k, name in enumerate("abcde")}
    winner, tested = searched(records, lucky)
    assert winner == "" and len(tested) == 3


def test_candidates_behind_the_own_plan_are_not_tested_after_the_best(records):
    winner, tested = searched(records, {"a": (0.9, 0.9, 0.9, 1.0), **SLOW})
    assert winner == "" and tested == ["a"]


def test_those_behind_are_tested_where_a_later_round_leaves_nobody(records):
    """Four of eleven pass the first round; then a disturbance puts them far behind the own plan."""
    ahead = dict.fromkeys("abce", (0.5, 1.6, 1.0, 1.0))
    assert searched(records, {**ahead, "d": (0.6, 0.6, 0.6, 0.6), **SLOW}) == ("d", ["d"])


def test_the_best_of_all_turns_is_tested_next(records):
    """`d` leaves in the first round; `b`, `c` and `e` leave in the second, in which they were slow."""
    later = dict.fromkeys("bce", (0.4, 1.1, 1.0, 1.0))
    lucky = {"a": (0.4, 0.4, 0.4, 1.0), **later, "d": (0.5, 0.5, 0.5, 0.5), **SLOW}
    assert searched(records, lucky) == ("d", ["a", "d"])


def test_a_second_search_tests_nothing(records):
    lucky = {"a": (0.5, 0.5, 0.5, 1.0), "b": (0.8, 0.8, 0.8, 0.8), **SLOW}
    assert searched(records, lucky) == ("b", ["a", "b"])
    assert searched(records, lucky) == ("b", [])
    assert len(TEST_TURNS) == 3
