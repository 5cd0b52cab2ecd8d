"""Steps, offsets and repeats far beyond any array: the right numbers, or one diagnostic; never a read outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.c.kernels.definitions import MAKERS
from tatami.c.kernels.needs import Needs
from tatami.c.kernels.print_index import index_text
from tatami.core.diagnostic import TatamiError
from tatami.core.expr import expr
from tatami.cu.expr_text import index_text as cuda_text

FAR = 2**62
ANSWERED: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "a step": (lambda x: x[::FAR], lambda x: x[:1]),
    "a step back": (lambda x: x[::-FAR], lambda x: x[-1:]),
    "ends": (lambda x: x[-FAR:FAR], lambda x: x),
    "windows apart": (lambda x: x.op("unfold", kernel=(1, 1), stride=(FAR, 1)), lambda x: x[:, :1][:, None, None]),
    "pools apart": (lambda x: x.op("max_pool", kernel=(1, 1), stride=(1, FAR)), lambda x: x[:, :, :1]),
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "a roll": lambda x: x.roll(FAR, 0),
    "a pad": lambda x: x.pad([(0, FAR), (0, 0), (0, 0)]),
    "a crop": lambda x: x.pad([(0, -FAR), (0, 0), (0, 0)]),
    "windows": lambda x: x.op("unfold", kernel=(2, 1), dilation=(FAR, 1)),
    "copies": lambda x: x.op("tile", repeats=(FAR, 1, 1)),
}


def made(build: Callable[[Any], Any]) -> tt.Graph:
    g = tt.Graph("far")
    g.output("y", build(g.input("x", ("N", 4, 3), tt.fp32)))
    return g


@pytest.mark.parametrize("name", ANSWERED)
def test_far_numbers_that_arrays_clamp(name: str) -> None:
    build, meaning = ANSWERED[name]
    for target in ("reference", "cpu"):
        f = tt.compile(made(build), target=target)
        for n in (0, 1, 5):
            x = np.arange(n * 12, dtype=np.float32).reshape(n, 4, 3)
            got = f(x=x)["y"]
            assert np.array_equal(got.reshape(meaning(x).shape), meaning(x)), target


@pytest.mark.parametrize("target", ["cpu", "emulated-sm80"])
@pytest.mark.parametrize("name", REFUSED)
def test_far_numbers_that_no_array_has_are_refused(name: str, target: str) -> None:
    with pytest.raises(TatamiError) as caught:
        tt.compile(made(REFUSED[name]), target=target)(x=np.ones((5, 4, 3), np.float32))
    assert caught.value.diagnostics[0].code in ("E1304", "E1305")


def test_printers_refuse_numbers_that_64_bits_do_not_hold() -> None:
    fits, beyond = expr("i") * (2**63 - 1), expr("i") * 2**63
    assert str(2**63 - 1) in index_text(fits, Needs(MAKERS)) and str(2**63 - 1) in cuda_text(fits)
    for text in (lambda: index_text(beyond, Needs(MAKERS)), lambda: cuda_text(beyond), lambda: cuda_text(expr("i") // (2**64))):
        with pytest.raises(TatamiError) as caught:
            text()
        assert caught.value.diagnostics[0].code == "E1305"
