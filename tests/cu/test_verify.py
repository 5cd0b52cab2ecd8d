"""Names of files that CUDA text may not have."""

from __future__ import annotations

import pytest

from tatami.core.custom.verbatim import NO_CODE
from tatami.core.module import Module
from tatami.cu.ir import Source, Unit
from tatami.cu.verify import verify


def source(unit: str, header: str) -> Source:
    return Source((Unit(unit, "sm_80", NO_CODE),), {header: NO_CODE})


@pytest.mark.parametrize("name", ["../k", "k h", "", "a" * 121, "k.cu", "k.cuh.cuh"])
def test_names_are_names_of_files(name: str) -> None:
    assert verify(Module({"main": source("k0", "device.cuh")})) == []
    for bad in (source(name, "device.cuh"), source("k0", name)):
        assert [d.at for d in verify(Module({"main": source("k0", "device.cuh"), "f": bad}))] == [f"f: {name[:80]!r}"]
