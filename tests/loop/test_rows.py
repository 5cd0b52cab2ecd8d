"""Compiled row kernels against the meaning of Regions, for every Region of the zoo, width and size."""

from __future__ import annotations

import numpy as np
import pytest

from tatami.core.expr import evaluate
from tatami.core.layout import size_elements
from tatami.region.run import run_region
from tests.loop.compiled import TARGETS, has_flags, run_kernel
from tests.loop.zoo import SIZES, ZOO, bind, draw


def check(name: str, width: str) -> None:
    region = ZOO[name]()
    for values in SIZES[name]:
        sizes = bind(region, values)
        inputs = draw(region, sizes)
        with np.errstate(all="ignore"):
            want = run_region(region, inputs, sizes)
        fault, got = run_kernel(region, inputs, sizes, width=width)
        assert fault == 0, (name, values)
        for target in region.outputs:
            a, w = got[target.name], np.asarray(want[target.name])
            if target.memref.layout.kind == "blocked":
                assert evaluate(size_elements(target.memref.layout, target.memref.shape), sizes) == a.size
                a = a.reshape(w.shape) if w.shape == a.shape else _unblock(a.reshape(w.shape[0], w.shape[1] // 8, 8), w.shape)
            exact = w.dtype.kind in "biu"
            if exact:
                np.testing.assert_array_equal(a, w, err_msg=f"{name} {values}")
            else:
                eps = {2: 2e-3 if w.dtype == np.float16 else 2e-2, 4: 3e-6, 8: 1e-14}[w.dtype.itemsize]
                a64, w64 = a.astype(np.float64), w.astype(np.float64)
                scale = np.abs(w64[np.isfinite(w64)]).max(initial=1e-30)
                np.testing.assert_allclose(a64, w64, rtol=eps, atol=eps * min(scale, 1.0), err_msg=f"{name} {values}")


def _unblock(a: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return a.reshape(shape)


@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize("name", list(ZOO))
def test_kernel_means_what_the_region_means(name: str, width: str) -> None:
    if not has_flags(width):
        pytest.skip(f"this machine has no {width}")
    check(name, width)
