"""Results of loops against the meaning of their Region."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tatami.core.algebra.visit import evaluate
from tatami.core.layout import size_elements
from tatami.region.ir import Region


def assert_agree(
    region: Region, got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], sizes: dict[str, int], at: str
) -> None:
    """Integers are equal, floats within a few rounding steps of their dtype; memory of a block beyond the tensor is zero."""
    for target in region.outputs:
        a, w = got[target.name], np.asarray(want[target.name])
        if target.memref.layout.kind == "blocked":  # [N, ceil(C/8), 8]; the rest of a block is zero
            assert evaluate(size_elements(target.memref.layout, target.memref.shape), sizes) == a.size
            whole = a.reshape(w.shape[0], -1)
            assert (whole[:, w.shape[1] :] == 0).all()
            a = whole[:, : w.shape[1]]
        if w.dtype.kind in "biu":
            np.testing.assert_array_equal(a, w, err_msg=at)
        else:
            eps = {2: 2e-3 if w.dtype == np.float16 else 2e-2, 4: 3e-6, 8: 1e-14}[w.dtype.itemsize]
            a64, w64 = a.astype(np.float64), w.astype(np.float64)
            scale = np.abs(w64[np.isfinite(w64)]).max(initial=1e-30)
            np.testing.assert_allclose(a64, w64, rtol=eps, atol=eps * min(scale, 1.0), err_msg=at)
