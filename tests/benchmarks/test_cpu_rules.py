"""The rules by which `python -m benchmarks.cpu` counts a block and voids a row, and the page it writes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.cpu.blocks import (
    CALLS,
    LEAST_CALLS,
    Block,
    Row,
    busy_seconds,
    judge,
    may_decide,
    near_peers,
    timed_block,
    without_quiet_block,
)
from benchmarks.cpu.contestants import OURS
from benchmarks.cpu.environment import environment
from benchmarks.cpu.folder import Folder, Found
from benchmarks.cpu.memory import Growth
from benchmarks.cpu.report import Record, groups, page, plot
from benchmarks.cpu.turns import MIN_BLOCKS, MIN_BLOCKS_APART, Ended, Worker, measure_case
from benchmarks.cpu.worker import differences

QUIET, NOISY = 100.0, 80.0


def blocks(*seconds: float, probe: float = QUIET) -> list[Block]:
    return [Block(s, probe, QUIET) for s in seconds]


def fast(*seconds: float) -> list[Block]:
    """Rates of a machine whose clock is above the usual for a while."""
    return [Block(s, 1.1 * QUIET, 1.1 * QUIET) for s in seconds]


def slow(*seconds: float) -> list[Block]:
    """Rates of a machine that is slower from one probe to the next."""
    return [Block(s, NOISY, NOISY) for s in seconds]


def test_a_block_is_some_calls_between_two_probes() -> None:
    calls: list[int] = []
    probes = iter((90.0, 70.0))
    found = timed_block(lambda: calls.append(1), lambda: next(probes), idle=0.0)
    assert len(calls) == CALLS + 1
    assert (found.before, found.after) == (90.0, 70.0)
    assert found.seconds >= 0


def test_a_block_of_long_calls_has_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr("benchmarks.cpu.blocks.time.perf_counter", lambda: float(next(clock)))
    calls: list[int] = []
    timed_block(lambda: calls.append(1), lambda: QUIET, idle=0.0)
    assert len(calls) == LEAST_CALLS + 1


def test_only_peers_near_the_best_run_alone_too() -> None:
    found = {"Tatami": blocks(1.0), "fast": blocks(3.0), "near": blocks(3.8), "slow": blocks(4.0), "failed": []}
    assert may_decide(found, "Tatami") == ["fast", "near"]


def test_peers_far_behind_with_one_thread_are_left_out_with_more() -> None:
    assert near_peers({"Tatami": 1.0, "ORT": 2.0, "eager": 3.9, "numpy": 4.1}, "Tatami") == ["ORT", "eager", "ORT no spin"]
    assert near_peers({"Tatami": 1.0, "ORT": 5.0, "eager": 2.0}, "Tatami") == ["eager"]
    assert near_peers({"Tatami": 1.0}, "Tatami") == []


def test_the_ratio_is_the_best_peer_over_ours() -> None:
    found = {"Tatami": blocks(2.0, 2.0, 9.0), "slow": blocks(8.0), "fast": blocks(3.0)}
    seconds, best, ratio, void = judge(found, {"slow": blocks(8.0), "fast": blocks(3.1)}, "Tatami")
    assert (seconds["Tatami"], best, ratio, void) == (2.0, "fast", 1.5, "")


def test_a_case_goes_on_while_who_counts_has_no_quiet_block() -> None:
    found = {"Tatami": blocks(1.0, 1.0), "fast": slow(1.0), "near": blocks(1.2), "far": slow(4.0)}
    assert without_quiet_block(found, "Tatami") == ["fast"]
    assert without_quiet_block({"Tatami": slow(1.0) + blocks(1.0, 1.0)}, "Tatami") == []
    assert without_quiet_block({"Tatami": blocks(1.0), "fast": slow(1.0, 1.0)}, "Tatami") == ["Tatami"]


def test_a_measuring_process_has_no_more_threads_than_it_is_given() -> None:
    program = """
import os
from benchmarks.cpu import worker
import numpy as np
a = np.ones((1024, 1024), np.float32)
a @ a
print(len(os.listdir("/proc/self/task")))
"""
    if not Path("/proc/self/task").exists():
        pytest.skip("this system does not list a process's threads")
    told = subprocess.run([sys.executable, "-c", program], env=environment(1), capture_output=True, text=True, check=True)
    assert told.stdout == "1\n"


def test_blocks_of_a_noisy_machine_do_not_count() -> None:
    found = {"Tatami": [*blocks(1.0, probe=NOISY), *blocks(2.0)], "peer": blocks(4.0)}
    assert judge(found, {}, "Tatami")[:3] == ({"Tatami": 2.0, "peer": 4.0}, "peer", 2.0)


def test_a_row_without_a_quiet_block_is_void() -> None:
    found = {"Tatami": blocks(1.0), "peer": blocks(4.0), "other": blocks(1.0, probe=NOISY)}
    assert judge(found, {}, "Tatami")[3] == "no quiet block for other"
    assert judge({"Tatami": blocks(2.0, probe=NOISY), "peer": blocks(1.0)}, {}, "Tatami") == (
        {"Tatami": 2.0, "peer": 1.0},
        "peer",
        0.5,
        "no quiet block for Tatami",
    )
    assert judge({"peer": blocks(1.0)}, {}, "Tatami")[2:] == (0.0, "Tatami did not run")


def test_a_contestant_far_behind_may_be_noisy() -> None:
    found = {"Tatami": blocks(1.0), "peer": blocks(4.0), "other": blocks(9.0, probe=NOISY)}
    assert judge(found, {"peer": blocks(4.0)}, "Tatami")[1:] == ("peer", 4.0, "")


def test_the_speed_of_the_machine_is_that_of_the_row() -> None:
    assert judge({"Tatami": slow(1.0), "peer": slow(4.0)}, {"peer": slow(4.0)}, "Tatami")[2:] == (4.0, "")
    together = {"Tatami": blocks(1.0, 1.0), "peer": blocks(4.0, 4.0)}
    assert judge(together, {"peer": slow(4.6)}, "Tatami")[3] == ""
    assert judge(together, {"peer": slow(4.4)}, "Tatami")[3] == "peer: 4e+03 ms in company, 3.52e+03 ms alone"


def test_a_clock_that_is_above_the_usual_for_a_while_voids_no_row() -> None:
    found = {"Tatami": [*fast(1.0), *blocks(2.0, 2.0)], "peer": [*blocks(4.0, 4.0), *fast(3.0)]}
    assert judge(found, {"peer": [*fast(3.0), *blocks(4.0)]}, "Tatami") == ({"Tatami": 2.0, "peer": 4.0}, "peer", 2.0, "")


class Scripted(Worker):
    """A worker whose answers are made up; what it is told goes into a list that several share."""

    def __init__(self, told: list[tuple[str, str]], *names: str, cpu: float = 0.0, ends_at: int = -1) -> None:
        super().__init__(Path(), 2, names)
        self.log, self.cpu, self.ends_at = told, cpu, ends_at

    def tell(self, what: str, name: str) -> dict[str, Any]:
        self.log.append((what, name))
        if len(self.log) == self.ends_at:
            raise Ended("ended the process (-11)")
        self.cpu += 0.5
        made: dict[str, Any] = {"names": list(self.names), "errors": {}, "difference": dict.fromkeys(self.names, 0.0)}
        timed: dict[str, Any] = {"seconds": 1.0, "before": QUIET, "after": QUIET}
        return (made if what == "make" else timed if what == "block" else {"parked": True}) | {"cpu": self.cpu}


def test_contestants_take_turns_across_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.cpu.turns.MAX_BLOCKS", 2)
    told: list[tuple[str, str]] = []
    found = measure_case([Scripted(told, OURS), Scripted(told, "ORT", "eager")], "a", 1e-9)
    turn = [("block", n) for n in (OURS, "ORT", "eager")]
    assert told == [("make", "a"), ("make", "a"), *turn, *turn, ("end", "a"), ("end", "a")]
    assert {n: len(b) for n, b in found.blocks.items()} == {OURS: 2, "ORT": 2, "eager": 2} and found.parked


def test_contestants_of_one_process_need_fewer_blocks_than_those_apart() -> None:
    together = measure_case([Scripted([], OURS, "ORT")], "a", 1e-9)
    apart = measure_case([Scripted([], OURS), Scripted([], "ORT")], "a", 1e-9)
    assert [len(f.blocks["ORT"]) for f in (together, apart)] == [MIN_BLOCKS, MIN_BLOCKS_APART]


def test_contestants_are_made_and_let_go_where_none_is_timed() -> None:
    told: list[tuple[str, str]] = []
    found = measure_case([Scripted(told, OURS)], "a", 0.0)
    assert told == [("make", "a"), ("end", "a")] and found.blocks == {OURS: []}


def test_a_process_that_ends_takes_only_its_contestants_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.cpu.turns.MAX_BLOCKS", 2)
    told: list[tuple[str, str]] = []
    found = measure_case([Scripted(told, OURS, ends_at=4), Scripted(told, "ORT", "eager", ends_at=4)], "a", 1e-9)
    assert told[3] == ("block", "ORT") and ("block", "eager") not in told
    assert found.errors == {"ORT": "ended the process (-11)", "eager": "ended the process (-11)"}
    assert {n: len(b) for n, b in found.blocks.items()} == {OURS: 2} and found.others is None


def test_a_real_process_answers_and_a_killed_one_is_started_again(tmp_path: Path) -> None:
    with closing(Worker(tmp_path, 1, ["numpy"])) as worker:
        case = "gemm 64x64x64"
        assert worker.tell("make", case)["names"] == ["numpy"]
        assert worker.tell("block", "numpy")["seconds"] > 0
        assert worker._process is not None
        worker._process.kill()
        with pytest.raises(Ended, match="-9"):
            worker.tell("end", case)
        found = measure_case([worker], case, 1e-9)
        assert len(found.blocks["numpy"]) >= 2 and found.difference == {"numpy": 0.0}


def test_what_others_use_of_the_processors_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four seconds of the processors in two of the clock: a half by the worker, one by this process."""
    for name, ends in {"busy_seconds": (50.0, 54.0), "time.process_time": (1.0, 2.0), "time.perf_counter": (7.0, 9.0)}.items():
        monkeypatch.setattr(f"benchmarks.cpu.turns.{name}", iter(ends).__next__)
    found = measure_case([Scripted([], OURS)], "a", 0.0)
    assert found.others == (4.0 - 1.0 - 0.5) / 2.0


def test_a_system_counts_what_its_processors_do() -> None:
    if (before := busy_seconds()) is None:
        pytest.skip("this system does not count it")
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert (busy_seconds() or 0.0) - before > 0.2


def test_an_ended_run_goes_on_with_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, found = (0, 1, 0.25, ("Tatami", "ORT")), Found("a", {"Tatami": blocks(1.0)}, {}, {})
    Folder(tmp_path).add(key, found)
    assert list(Folder(tmp_path).found(key)) == [found]
    assert list(Folder(tmp_path).found((0, 2, 0.25, ("Tatami", "ORT")))) == []
    with (tmp_path / "found.jsonl").open("ab") as file:
        file.write(b'{"code":"')  # where a run was killed
    Folder(tmp_path).add(key, found)
    assert list(Folder(tmp_path).found(key)) == [found, found]
    monkeypatch.setattr("benchmarks.cpu.folder._code", lambda: "other code")
    assert list(Folder(tmp_path).found(key)) == []


@pytest.mark.parametrize(("alone", "is_void"), [(3.0, False), (2.75, False), (2.5, True), (3.6, False)])
def test_a_peer_that_company_holds_up_voids_the_row(alone: float, is_void: bool) -> None:
    void = judge({"Tatami": blocks(1.0), "peer": blocks(3.0)}, {"peer": blocks(alone)}, "Tatami")[3]
    assert bool(void) == is_void


def test_a_peer_that_cannot_decide_may_vary() -> None:
    found = {"Tatami": blocks(1.0), "fast": blocks(3.0), "slow": blocks(9.0)}
    assert judge(found, {"fast": blocks(3.0), "slow": blocks(7.0)}, "Tatami")[3] == ""
    assert judge(found, {"fast": blocks(3.0), "slow": blocks(2.0)}, "Tatami")[3].startswith("slow")


def test_a_best_peer_that_did_not_run_alone_voids_the_row() -> None:
    found = {"Tatami": blocks(1.0), "near": blocks(3.0), "quiet": [*blocks(9.0, 9.0, probe=NOISY), *blocks(2.0)]}
    assert may_decide(found, "Tatami") == ["near"]
    assert judge(found, {"near": blocks(3.0)}, "Tatami")[1:] == (
        "quiet",
        2.0,
        "quiet is the best in quiet blocks only, and did not run alone",
    )


def test_void_rows_stay_out_of_the_means_and_are_named() -> None:
    rows = [
        Row("a", "gemm", 1, {"Tatami": 1e-3, "ORT": 2e-3}, "ORT", 2.0, "", 1e9, 0.0, 2000.0),
        Row("b", "gemm", 1, {"Tatami": 1e-3, "ORT": 8e-3}, "ORT", 8.0, "", 1e9, 0.0, 2000.0, {"eager": "no <kernel>"}),
        Row("c", "gemm", 1, {"Tatami": 1e-3, "ORT": 5e-4}, "ORT", 0.5, "too | noisy", 0.0, 1e6, 2000.0),
    ]
    expected: list[Any] = [("gemm", 1, pytest.approx(4.0), 2.0, 2)]
    assert list(groups(rows)) == expected
    text = page("avx2", Record({"cpu": "x"}, rows, [Growth("m", {"Tatami": 1000000})]))
    assert "| a | 1 | 1 | ORT | 2 | 2.00 | 0.50 |  |" in text
    assert "eager: no <kernel>" in text and "void: too / noisy" in text and "| m | 1.0 MB |  |" in text
    assert plot(rows).count("<circle") == 3


def test_what_is_no_number_is_still_a_difference_that_a_line_of_json_can_say() -> None:
    nan, inf = float("nan"), float("inf")
    outputs = {"a": np.array([nan, 2.0, inf]), "same": np.array([nan, 2.0, inf]), "near": np.array([nan, 1.0, inf])}
    outputs |= {"nan": np.array([nan, nan, inf]), "inf": np.array([nan, 2.0, -inf]), "number": np.array([1.0, 2.0, inf])}
    assert differences(outputs) == {"a": 0.0, "same": 0.0, "near": 0.5, "nan": 1.0, "inf": 1.0, "number": 1.0}
