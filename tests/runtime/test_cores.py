"""The number of threads: of the caller, of the environment, of the affinity and of the quotas of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tatami.core.diagnostic import TatamiError
from tatami.runtime import cores
from tatami.runtime.cores import processor_quota, thread_count, usable_cores


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TATAMI_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def groups(tmp_path: Path, membership: str) -> tuple[Path, Path]:
    write(tmp_path / "membership", membership)
    return tmp_path / "membership", tmp_path / "cgroup"


@pytest.mark.parametrize(
    ("tatami", "openmp", "want"),
    [("3", "2", 3), ("", "2", 2), ("", "4,2,1", 4), ("", " 2 , 1", 2)],
)
def test_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch, tatami: str, openmp: str, want: int) -> None:
    monkeypatch.setenv("TATAMI_NUM_THREADS", tatami)
    monkeypatch.setenv("OMP_NUM_THREADS", openmp)
    assert thread_count() == want and thread_count(5) == 5


@pytest.mark.parametrize("text", ["", "many", "0", "-1", "1e3", "99999999999999999999", "²", ","])
def test_what_openmp_ignores_is_ignored(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert thread_count() == usable_cores()


@pytest.mark.parametrize("text", ["many", "0", "2000", "²", "-1", "9" * 5000])
def test_a_wrong_number_of_our_own_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TATAMI_NUM_THREADS", text)
    with pytest.raises(TatamiError):
        thread_count()


def test_a_quota_of_version_2_counts_in_every_group_above(tmp_path: Path) -> None:
    where = groups(tmp_path, "0::/a/b\n")
    assert processor_quota(*where) is None
    write(tmp_path / "cgroup" / "a" / "b" / "cpu.max", "max 100000\n")
    assert processor_quota(*where) is None
    write(tmp_path / "cgroup" / "a" / "cpu.max", "150000 100000\n")
    assert processor_quota(*where) == 1.5
    write(tmp_path / "cgroup" / "cpu.max", "50000 100000\n")
    assert processor_quota(*where) == 0.5


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_version_1(tmp_path: Path, folder: str) -> None:
    where = groups(tmp_path, "5:cpu,cpuacct:/a\n1:name=systemd:/\n")
    write(tmp_path / "cgroup" / folder / "a" / "cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "cgroup" / folder / "a" / "cpu.cfs_period_us", "100000\n")
    assert processor_quota(*where) is None
    write(tmp_path / "cgroup" / folder / "a" / "cpu.cfs_quota_us", "200000\n")
    assert processor_quota(*where) == 2.0


def test_in_a_container_the_path_of_the_host_does_not_exist(tmp_path: Path) -> None:
    where = groups(tmp_path, "0::/../../host/slice\n")
    write(tmp_path / "cgroup" / "cpu.max", "300000 100000")
    assert processor_quota(*where) == 3.0


@pytest.mark.parametrize("text", ["", "100000", "a b", "-5 100000", "100000 0", "1 2 3", "\0"])
def test_a_file_without_a_quota_counts_as_none(tmp_path: Path, text: str) -> None:
    where = groups(tmp_path, "0::/\n:::\nx\n")
    write(tmp_path / "cgroup" / "cpu.max", text)
    assert processor_quota(*where) is None
    assert processor_quota(tmp_path / "nothing", tmp_path) is None


def test_cores_are_at_most_the_quota_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for quota, want in ((None, 8), (0.5, 1), (1.5, 2), (2.0, 2), (100.0, 8)):
        monkeypatch.setattr(cores, "processor_quota", lambda quota=quota: quota)
        assert usable_cores() == want
