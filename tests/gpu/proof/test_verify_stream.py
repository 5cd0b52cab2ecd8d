"""Faults of a document about a streaming kernel are found before any text is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tatami.core.expr import var
from tatami.frontend.graph import Graph
from tatami.gpu.stream_ir import StreamKernel
from tatami.gpu.verify import verify_any
from tatami.region.ir import Ref
from tests.cu.streaming.test_stream_numbers import orders, scattered, softmax, stages_of, turned

replace: Any = msgspec.structs.replace


def first(make: Callable[[Graph], None]) -> StreamKernel:
    kernel = stages_of(make)["gpu"].main.kernels[0]
    assert isinstance(kernel, StreamKernel) and verify_any(kernel) == []
    return kernel


def phases(k: StreamKernel, number: int, **changes: Any) -> StreamKernel:
    made = [replace(p, **changes) if i == number else p for i, p in enumerate(k.phases)]
    return replace(k, phases=tuple(made))


WRONG: list[tuple[Callable[[StreamKernel], StreamKernel], str]] = [
    (lambda k: replace(k, params=k.params[:1]), "p1 is stored to and is not an output"),
    (lambda k: replace(k, points=()), "counts with i0"),
    (lambda k: replace(k, group=48), "groups of 48"),
    (lambda k: replace(k, group=k.threads), "bytes of shared memory"),
    (lambda k: replace(k, width=3), "3 lanes"),
    (lambda k: replace(k, threads=100), "100 threads"),
    (lambda k: replace(k, turns=0), "a row that is kept"),
    (lambda k: replace(k, even=(var("N"),)), "counts with N"),
    (lambda k: phases(k, 0, lane="i0"), "lanes along i0"),
    (lambda k: phases(k, 2, value=Ref("f9")), "uses f9"),
    (lambda k: replace(k, phases=k.phases[1:]), "uses f0"),
    (lambda k: phases(k, 2, axes=("i7",)), "i7, which is not an axis"),
    (lambda k: phases(k, 2, stores=(replace(k.phases[2].stores[0], combine="add"),)), "may meet"),
    (lambda k: replace(k, lets=(*k.lets, *k.lets)), "names two things"),
]


@pytest.mark.parametrize(("change", "why"), WRONG, ids=[why for _, why in WRONG])
def test_a_wrong_kernel_is_named(change: Callable[[StreamKernel], StreamKernel], why: str) -> None:
    found = verify_any(change(first(softmax)))
    assert any(why in str(d) for d in found), [str(d) for d in found]


def test_a_wrong_tile_is_named() -> None:
    k = first(turned)
    assert k.tile is not None
    assert any("no tile" in str(d) for d in verify_any(replace(k, tile=replace(k.tile, axis=k.points[-1].name))))
    assert any("shared memory" in str(d) for d in verify_any(replace(k, shared_bytes=16)))


def test_kernels_of_every_kind_pass() -> None:
    for make in (scattered, orders):
        for k in stages_of(make)["gpu"].main.kernels:
            assert verify_any(k) == []
    sort = stages_of(orders)["gpu"].main.kernels[0]
    assert any("tile" in str(d) for d in verify_any(replace(sort, shared_bytes=0)))
