"""Calibration: the values that tensors take on samples, and for each the range that its codes stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx

from tatami.core.diagnostic import fail
from tatami.quantization.samples import Sample
from tatami.quantization.settings import Settings

Range: TypeAlias = tuple[float, float]
BINS = 2048
"""Number of bins of a histogram."""
CODES = 128
"""Number of codes for magnitudes, to which an entropy compares the bins."""


def find_ranges(
    model: onnx.ModelProto, tensors: Sequence[str], samples: Sequence[Sample], settings: Settings
) -> dict[str, Range]:
    """Tensor -> range. The model runs on every sample, twice if histograms are needed."""
    run = _probe(model, tensors)

    def values() -> Iterator[tuple[str, np.ndarray]]:
        for k, sample in enumerate(samples):
            for name, array in run(sample).items():
                if not np.isfinite(array).all():
                    why = f"sample {k} gives numbers that are not finite in {name[:60]!a}"
                    raise fail("InputMismatch", f"calibration[{k}]", why, "leave the sample out, or exclude the layer")
                yield name, array

    whole: dict[str, Range] = {}
    for name, array in values():
        low, high = float(array.min()), float(array.max())
        known = whole.get(name, (low, high))
        whole[name] = min(low, known[0]), max(high, known[1])
    if settings.ranges == "minmax":
        return whole
    counts = {name: np.zeros(BINS, np.int64) for name in whole}
    spans = {
        name: (0.0, max(-low, high)) if settings.ranges == "entropy" else (low, high) for name, (low, high) in whole.items()
    }
    for name, array in values():
        flat = np.abs(array) if settings.ranges == "entropy" else array
        counts[name] += np.histogram(flat, BINS, spans[name])[0]
    if settings.ranges == "percentile":
        return {n: percentile_range(counts[n], whole[n], settings.percentile) for n in whole}
    return {n: _clipped(whole[n], entropy_threshold(counts[n], spans[n][1])) for n in whole}


def _clipped(whole: Range, most: float) -> Range:
    return max(whole[0], -most), min(whole[1], most)


def _probe(model: onnx.ModelProto, tensors: Sequence[str]) -> Callable[[Sample], Mapping[str, np.ndarray]]:
    """A function from a sample to the values of `tensors`."""
    import tatami.api

    inputs = {i.name for i in model.graph.input}
    inner = [t for t in tensors if t not in inputs]
    program = None
    if inner:
        probe = onnx.ModelProto()
        probe.CopyFrom(model)
        del probe.graph.output[:]
        probe.graph.output.extend(onnx.helper.make_tensor_value_info(t, onnx.TensorProto.FLOAT, None) for t in inner)
        program = tatami.api.compile(probe)

    def run(sample: Sample) -> Mapping[str, np.ndarray]:
        found = {t: sample[t] for t in tensors if t in sample}
        if program is not None:
            results = program({p.tensor: sample[p.tensor] for p in program.signature.inputs if p.tensor in sample})
            found |= {t: np.asarray(results[t]) for t in inner}
        return {t: a for t, a in found.items() if a.size}

    return run


def percentile_range(counts: np.ndarray, whole: Range, percentage: float) -> Range:
    """The range that holds `percentage` of all values, with as many outside below as above. `counts`: a histogram of `whole`."""
    low, high = whole
    width = (high - low) / len(counts)
    outside = counts.sum() * (100 - percentage) / 200
    below, above = np.cumsum(counts), np.cumsum(counts[::-1])
    first = int(np.searchsorted(below, outside, side="right"))
    last = int(np.searchsorted(above, outside, side="right"))
    if first + last >= len(counts):
        return whole
    return low + first * width, high - last * width


def entropy_threshold(counts: np.ndarray, most: float) -> float:
    """The magnitude at which values are cut so that rounding to CODES steps loses the least information: the least
    Kullback-Leibler divergence of the cut distribution from the rounded one (S. Migacz, "8-bit Inference with TensorRT", 2017).
    `counts`: a histogram of magnitudes up to `most`."""
    best, found = np.inf, most
    for end in range(CODES, len(counts) + 1, CODES // 8):
        kept = counts[:end].astype(np.float64)
        cut = kept.copy()
        cut[-1] += counts[end:].sum()
        edges = np.arange(CODES + 1) * end // CODES
        sums = np.add.reduceat(kept, edges[:-1])
        filled = np.add.reduceat((cut > 0).astype(np.float64), edges[:-1])
        each = np.divide(sums, filled, out=np.zeros_like(sums), where=filled > 0)
        rounded = np.where(cut > 0, np.repeat(each, np.diff(edges)), 0)
        loss = _divergence(cut, rounded)
        if loss < best:
            best, found = loss, most * end / len(counts)
    return found


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    if not p.sum() or not q.sum():
        return float("inf")
    p, q = p / p.sum(), q / q.sum()
    where = p > 0
    least = 1e-12
    return float(np.sum(p[where] * np.log(p[where] / np.maximum(q[where], least))))
