"""Every scalar operation in vectors of two lanes, which short rows of scans have: none is left out."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError
from tatami.core.ops import OPS


@pytest.mark.parametrize("dtype", [tt.fp32, tt.fp64, tt.fp16, tt.i32, tt.i64])
@pytest.mark.parametrize("row", [2, 3])
def test_every_operation_after_a_scan_of_a_short_row(row: int, dtype: tt.DType) -> None:
    x = np.array([[1.5, -2.25, 3.5][:row], [0.25, 0.5, -1.75][:row]])
    g = tt.Graph("pairs")
    a = g.input("x", x.shape, dtype).op("cumsum", axis=1)
    b = g.input("d", x.shape, dtype)
    made = []
    for name, op in OPS.items():
        try:
            g.output(name, g.op(name, *((a, b) if op.arity == 2 else (a,))))
        except TatamiError:  # not an operation of this dtype
            continue
        made.append(name)
    assert len(made) > 15
    kind = {tt.fp32: np.float32, tt.fp64: np.float64, tt.fp16: np.float16, tt.i32: np.int32, tt.i64: np.int64}[dtype]
    given = {"x": x.astype(kind), "d": np.full(x.shape, 2.0).astype(kind)}
    with np.errstate(all="ignore"):
        got, wanted = (tt.compile(g, target=t, threads=1)(given) for t in ("cpu", "reference"))
    wrong = [n for n in made if not np.allclose(got[n], wanted[n], rtol=2e-3, atol=1e-6, equal_nan=True)]
    assert not wrong
