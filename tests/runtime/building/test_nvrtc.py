"""Files that NVRTC is loaded from."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
import sysconfig
from pathlib import Path

import pytest

from tatami.runtime.building import nvrtc


def test_the_systems_nvrtc_loads_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    (tmp_path / "libnvrtc-builtins.so.13").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"platlib": str(tmp_path)})
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: "libnvrtc.so.13")
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    nvrtc._library.__wrapped__()
    assert loaded == ["libnvrtc.so.13"]
