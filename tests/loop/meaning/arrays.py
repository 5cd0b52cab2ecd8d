"""The flat buffers of a Region's kernel, and its results by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.kernel import Binding
from tatami.core.layout import size_elements
from tatami.core.numbers.numerics import Mode, storage_dtype
from tatami.loop.ir import Kernel
from tatami.region.ir import Region
from tests.loop.meaning.run import run, unwritten


def run_region_by_loops(
    kernel: Kernel,
    binding: Binding,
    region: Region,
    inputs: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    mode: Mode = "declared",
) -> tuple[int, dict[str, np.ndarray]]:
    """(fault, outputs). Row-major inputs; an output that updates an input starts as that input, others as NaN or large
    numbers."""
    buffers: dict[str, np.ndarray] = {}
    for p in region.inputs:
        buffers[p.name] = np.array(inputs[p.name], storage_dtype(p.memref.dtype, mode)).reshape(-1)
    outputs: dict[str, np.ndarray] = {}
    for t in region.outputs:
        dtype, shape = storage_dtype(t.memref.dtype, mode), tuple(int(evaluate(s, sizes)) for s in t.memref.shape)
        count = int(evaluate(size_elements(t.memref.layout, t.memref.shape), sizes))
        fresh = unwritten(dtype, count)
        buffers[t.name] = buffers[t.updates] if t.updates else fresh
        outputs[t.name] = buffers[t.name].reshape(shape) if count == int(np.prod(shape)) else buffers[t.name]
    fault = run(kernel, list(buffers.values()), [int(evaluate(e, sizes)) for e in binding.sizes], mode)
    return fault, outputs
