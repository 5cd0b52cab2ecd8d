"""Compiling takes no time that grows with a size: numbers of 2^30 to 2^40 in every kind of kernel, for every target."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare

HUGE, LONG = 2**40, 2**30
SECONDS = 60
"""A pass that counts to 2^30 takes longer on any machine."""


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise AssertionError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def weights(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def conv(n: int, kernel: tuple[int, int] = (3, 3), groups: int = 1, **more: Any) -> Callable[[tt.Graph], Any]:
    def make(g: tt.Graph) -> Any:
        return g.input("x", (1, 4, n, 8), tt.fp32).conv(
            g.constant(weights(4, 4 // groups, *kernel)), None, groups=groups, **more
        )

    return make


MODELS: dict[str, Callable[[tt.Graph], Any]] = {
    "convolution of many rows": conv(LONG),
    "convolution of many columns": lambda g: g.input("x", (1, 4, 8, LONG), tt.fp32).conv(g.constant(weights(4, 4, 3, 3))),
    "convolution, wide border": conv(9, padding=((HUGE, 0), (0, 0))),
    "convolution, strides": conv(LONG, stride=2),
    "convolution 1x1": conv(LONG, (1, 1)),
    "convolution, wide strides": conv(LONG, stride=LONG // 4),
    "convolution, dilation": conv(HUGE, dilation=(LONG, 1)),
    "depthwise": conv(LONG, groups=4, padding=1),
    "pool": lambda g: g.input("x", (1, 4, LONG, 8), tt.fp32).max_pool(3, 2, 1),
    "a window of all": lambda g: g.input("x", (1, 4, LONG, 8), tt.fp32).avg_pool((LONG, 8)),
    "images": lambda g: g.input("x", (LONG, 4, 8, 8), tt.fp32).conv(g.constant(weights(4, 4, 3, 3)), None, padding=1),
    "product, many rows": lambda g: g.input("x", (LONG, 64), tt.fp32) @ g.input("w", (64, 32), tt.fp32),
    "product, many columns": lambda g: g.input("x", (64, 64), tt.fp32) @ g.input("w", (64, LONG), tt.fp32),
    "product, long sums": lambda g: g.input("x", (64, LONG), tt.fp32) @ g.input("w", (LONG, 32), tt.fp32),
    "products, many": lambda g: g.input("x", (LONG, 8, 8), tt.fp32) @ g.input("w", (LONG, 8, 8), tt.fp32),
    "softmax, many rows": lambda g: g.input("x", (LONG, 64), tt.fp32).softmax(1),
    "softmax, long rows": lambda g: g.input("x", (4, LONG), tt.fp32).softmax(1),
    "sum of columns": lambda g: g.input("x", (LONG, 64), tt.fp32).sum(0),
    "running sum": lambda g: g.input("x", (4, LONG), tt.fp32).cumsum(1),
    "transposed": lambda g: g.input("x", (LONG, 64), tt.fp32).transpose(1, 0) * 2.0,
    "border": lambda g: g.input("x", (8, 8), tt.fp32).pad(((HUGE, 0), (0, 2**18))),
    "repeated": lambda g: g.input("x", (8, 1), tt.fp32).expand((8, HUGE)) + 1.0,
    "every so many": lambda g: g.input("x", (HUGE,), tt.fp32)[::LONG] + 1.0,
    "split axis": lambda g: g.input("x", (HUGE,), tt.fp32).reshape((LONG, HUGE // LONG)).sum(1),
    "joined": lambda g: g.concat([g.input("x", (LONG, 8), tt.fp32), g.input("z", (HUGE, 8), tt.fp32)], 0),
    "elements": lambda g: g.input("x", (LONG, 8), tt.fp32).gather(0, g.input("i", (HUGE, 8), tt.i64)),
    "attention": lambda g: (
        (g.input("q", (64, 64), tt.fp32) @ g.input("k", (64, LONG), tt.fp32)).softmax(1) @ g.input("v", (LONG, 64), tt.fp32)
    ),
    "numbers": lambda g: g.arange(HUGE).cast(tt.fp32) * 2.0,
    "sorted": lambda g: g.input("x", (4, LONG), tt.fp32).sort(1)[0],
}


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512", "sm80", "sm90"])
@pytest.mark.parametrize("name", MODELS)
def test_no_stage_counts_to_a_size(name: str, target: str) -> None:
    g = tt.Graph("large")
    with limit(SECONDS):
        g.output("y", MODELS[name](g))
        stages = prepare(g, target=target).stages
        for stage in ("execution", "cu" if target.startswith("sm") else "c"):
            assert stages[stage]
