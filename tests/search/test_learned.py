"""The correction that a ledger teaches: what it learns, what it orders, and how its quality is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tatami.cli import main
from tatami.core.diagnostic import TatamiError
from tatami.decisions import Decisions
from tatami.ledger.database import open_ledger
from tatami.ledger.records import Measured, Records, Subject, decision_text, target_hash
from tatami.search.learned import Learned
from tatami.search.proposal import Proposal
from tatami.search.rank_correlation import rank_correlation
from tatami.search.strategy import worth_measuring
from tatami.targets import resolve_target

pytest.importorskip("sklearn")


def decision(region: str, mr: int, *, kind: str = "cpu_contraction") -> Decisions:
    return Decisions(plans={region: {"kind": kind, "mr": mr, "nr": 32, "packed": []}})


def filled(records: Records, regions: int, target: str) -> None:
    """Timings of a machine on which the estimate says nothing and small tiles are slow."""
    rng = np.random.default_rng(0)
    for r in range(regions):
        subject = Subject(f"region{r}@cpu:avx2", target, "", 1, "warm", "revision")
        size = float(rng.uniform(1e-6, 1e-4))
        for mr in (2, 4, 8, 12, 16, 24):
            seconds = size * (1 + 16 / mr)
            found = Measured(f"c{mr}", 1, f"mr {mr}", decision_text(decision(subject.region, mr)), "timed")
            numbers = {"estimate": size * float(rng.uniform(1, 3)), "terms": '{"compute":1e-6}', "seconds": seconds}
            own = {"own_seconds": size, "ratio": seconds / size, "turns": 4}
            records.keep(subject, type(found)(**{f: getattr(found, f) for f in found.__struct_fields__} | numbers | own))


def test_what_the_estimate_misses_is_learned(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "ledger.sqlite") as connection:
        records = Records(connection)
        filled(records, 40, "machine")
        learned = Learned(records, "machine")
        quality = learned.quality()
        assert quality.subjects == 40 and quality.timings == 240
        assert abs(quality.plain) < 0.3 and quality.corrected > 0.8
        proposals = [
            Proposal("tiling", f"mr {mr}", "new", decision("new", mr), 1e-5, {"compute": 1e-6}, "") for mr in (2, 24, 8)
        ]
        assert [p.line for p in worth_measuring(proposals, learned.correct)] == ["mr 24", "mr 8", "mr 2"]
        with pytest.raises(TatamiError, match="timed candidates"):
            Learned(records, "another machine")


def test_the_same_ledger_teaches_the_same(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "ledger.sqlite") as connection:
        records = Records(connection)
        filled(records, 20, "machine")
        p = Proposal("tiling", "", "new", decision("new", 7), 1e-5, {"compute": 1e-6}, "")
        assert Learned(records, "machine").correct(p) == Learned(records, "machine").correct(p)


def test_rows_that_tatami_did_not_write_are_left_out(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "ledger.sqlite") as connection:
        records = Records(connection)
        filled(records, 20, "machine")
        columns = ("decision", "terms")
        for column in columns:
            connection.execute(f"UPDATE candidates SET {column} = 'no JSON' WHERE region = 'region0@cpu:avx2'")
        assert {t.region for t in Learned(records, "machine").timings} == {f"region{k}@cpu:avx2" for k in range(1, 20)}


def test_the_command_prints_both_correlations(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with open_ledger(path) as connection:
        filled(Records(connection), 40, target_hash(resolve_target("cpu:avx2")))
    done = CliRunner().invoke(main, ["ledger", "learn", "--ledger", str(path), "--target", "cpu:avx2"])
    assert done.exit_code == 0 and "plain" in done.output and "corrected 0.9" in done.output, done.output
    refused = CliRunner().invoke(main, ["ledger", "learn", "--ledger", str(path), "--target", "cpu:avx512"])
    assert refused.exit_code == 1 and "0 timed candidates" in refused.output


@pytest.mark.parametrize(
    ("a", "b", "rank"), [([1, 2, 3], [3, 2, 1], -1.0), ([1, 1, 1], [1, 2, 3], None), ([1, 2], [1, 2], None)]
)
def test_rank_correlation(a: list[float], b: list[float], rank: float | None) -> None:
    assert rank_correlation(a, b) == rank
