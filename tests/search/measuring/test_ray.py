"""Measuring on a local Ray cluster of two nodes: the same decisions as on this machine with the same measurements, also when a
node is lost in the middle. Needs the extra `ray`; the cluster takes half a minute, so there is one for all tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.ledger.records import target_hash
from tatami.search.results import Progress
from tatami.targets import resolve_target
from tests.search.tuned_models import TARGET, planted, session, timings

ray = pytest.importorskip("ray", reason="the package ray is not installed (extra ray)")

pytestmark = [pytest.mark.runs_on("cpu:avx2"), pytest.mark.xdist_group("ray")]
NODE = {"num_cpus": 1, "object_store_memory": 80 * 1024 * 1024}
"""A node of the cluster: as small as Ray lets it be."""


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 2)


@contextmanager
def cluster() -> Iterator[Any]:
    """A cluster whose head measures nothing."""
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
    try:
        yield found
    finally:
        found.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with cluster() as found:
            yield found


def machine() -> str:
    return f"tatami-{target_hash(resolve_target(TARGET))}"


def test_without_a_node_like_this_machine_there_is_one_diagnostic(nodes: Any, tmp_path: Path) -> None:
    with pytest.raises(TatamiError, match="no free node of the cluster has the resource tatami-"):
        session(tmp_path, planted(tmp_path, {}), ray=nodes.address)
    with pytest.raises(TatamiError, match="there is no cluster at"):
        session(tmp_path, planted(tmp_path, {}), ray="127.0.0.1:1")


def test_another_cluster_than_the_joined_one_is_refused(nodes: Any, tmp_path: Path) -> None:
    ray.init(address=nodes.address, logging_level="ERROR", log_to_driver=False)
    try:
        with pytest.raises(TatamiError, match="has joined the cluster at"):
            session(tmp_path, planted(tmp_path, {}), ray="127.0.0.1:1")
        assert ray.is_initialized()
    finally:
        ray.shutdown()


def test_decisions_are_those_of_this_machine_also_when_a_node_is_lost(nodes: Any, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    own = session(here, planted(here, {"cpu_rows": "wrong"}), cuts=False)
    members = [nodes.add_node(**NODE, resources={machine(): 1}) for _ in range(2)]
    gone: list[str] = []

    def tell(p: Progress) -> None:
        if not gone and timings(there):  # the first candidates were timed
            gone.append(p.what)
            threading.Thread(target=nodes.remove_node, args=(members[0],), kwargs={"allow_graceful": False}).start()

    found = session(there, planted(there, {"cpu_rows": "wrong"}), cuts=False, ray=nodes.address, tell=tell)
    assert gone and not found.left
    alone = [[(v.key, v.winner) for v in s.journal.visits] for s in (own, found) if s.journal is not None]
    assert alone[0] == alone[1] and any(winner for _, winner in alone[0])
    assert {(f.line, f.verdict) for f in found.faults} == {(f.line, f.verdict) for f in own.faults}
    nodes.remove_node(members[1])
