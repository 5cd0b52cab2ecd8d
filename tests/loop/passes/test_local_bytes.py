"""Bytes of the threads' scratch in a kernel's document, against those of its text."""

from __future__ import annotations

from tatami.api import prepare
from tatami.core.dtype import DType
from tatami.core.expr import ONE, ZERO, expr, var
from tatami.core.kernel import LocalBytes
from tatami.execution.ir import launches
from tatami.loop.ir import LocalBuffer, Parallel
from tatami.loop.passes.local_bytes import local_bytes
from tests.loop.images.convolutions import convolution, graph


def parallel(*buffers: LocalBuffer) -> Parallel:
    return Parallel("i", expr(8), ONE, (), buffers)


def test_a_helper_has_the_larger_loop_and_the_caller_the_kernels_own_too() -> None:
    own, small, large = (LocalBuffer(n, DType.fp32, expr(k)) for n, k in (("a", 100), ("b", 1), ("c", 1000)))
    assert local_bytes((own, parallel(small), parallel(large, small))) == LocalBytes(448 + 4032 + 64, 4032 + 64)


def test_sizes_of_the_call_are_not_counted() -> None:
    assert local_bytes((LocalBuffer("a", DType.fp32, var("s0")), LocalBuffer("b", DType.u8, ZERO))) == LocalBytes(128, 0)


def test_launches_say_what_their_kernels_take() -> None:
    stages = prepare(graph(convolution(16, 24, padding=1), (1, 24, 14, 14)), target="cpu:avx2").stages
    kernels = stages["loop"].programs["main"].kernels
    found = [k for ins in stages["execution"].main.instructions for k in launches(ins.op)]
    assert [k.local_bytes for k in found] == [local_bytes(kernels[k.kernel].body) for k in found]
    assert all(k.local_bytes.helper > 0 for k in found)
