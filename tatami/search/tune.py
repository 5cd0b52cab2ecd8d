"""Tuning within a compilation: `tt.compile(model, tune=60)` and `options={"tune": 60}` of torch.compile."""

from __future__ import annotations

from collections.abc import Mapping

from tatami.compilation import Compilation
from tatami.decisions import Decisions
from tatami.ledger.database import default_path, open_ledger
from tatami.ledger.records import Records
from tatami.runtime.cores import thread_count
from tatami.search.results import Options
from tatami.search.session import Session, fault_folder


def tuned(compilation: Compilation, seconds: float, sizes: Mapping[str, int], threads: int | None, ray: str = "") -> Decisions:
    """The decisions that a search of `seconds` finds for a compilation, with those that it has; measurements are in the user's
    ledger. `ray`: address of the cluster that measures, empty for this machine. Raises TatamiError."""
    path = default_path()
    with open_ledger(path) as connection:
        options = Options(seconds, sizes, thread_count(threads), fault_folder(path), ray=ray)
        found = Session(compilation, options, Records(connection), lambda p: None).run()
    if found.is_interrupted:
        raise KeyboardInterrupt
    return found.decisions
