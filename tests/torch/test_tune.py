"""The option `tune` of torch.compile: each graph is searched, and the program with what was found is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import tatami.search.tune
from tatami import backends
from tatami.compilation import Compilation
from tatami.decisions import Decisions
from tatami.ledger.database import open_ledger


@pytest.mark.runs_on("cpu:avx2")
def test_the_graph_is_searched_and_what_was_found_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[Compilation, float, Decisions]] = []
    search = tatami.search.tune.tuned

    def tuned(compilation: Compilation, seconds: float, *more: Any) -> Decisions:
        """The real search; then a decision that only an obeying compilation refuses."""
        found.append((compilation, seconds, search(compilation, seconds, *more)))
        return found[-1][2] if len(found) == 1 else Decisions(plans={"": {"kind": "none such"}})

    monkeypatch.setenv("TATAMI_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setattr("tatami.search.strategy.MOST_CANDIDATES", 1)
    monkeypatch.setattr(tatami.search.tune, "tuned", tuned)
    module, x = torch.nn.Sequential(torch.nn.Linear(48, 32), torch.nn.Softmax(1)).eval(), torch.rand(16, 48)
    options: dict[str, Any] = {"tune": 60.0, "fallback": False, "target": "cpu:avx2"}
    with torch.no_grad():
        got = torch.compile(module, backend=backends.torch_backend, fullgraph=True, options=options)(x)
        torch.testing.assert_close(got, module(x), rtol=1e-4, atol=1e-5)
        with open_ledger(tmp_path / "ledger.sqlite") as connection:
            assert connection.execute("SELECT count(*) FROM candidates WHERE turns > 0").fetchone()[0]
        torch._dynamo.reset()
        with pytest.raises(Exception, match="none such"):
            torch.compile(module, backend=backends.torch_backend, fullgraph=True, options=options)(x)
    assert [seconds for _, seconds, _ in found] == [60.0, 60.0]
