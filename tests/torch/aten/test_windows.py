"""Windows laid out as columns: reads of the image, by no index tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tatami as tt

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of torch 2.13 warns of itself


@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((2, 3, 9, 13), {"kernel_size": 3, "padding": 1}),
        ((1, 4, 17, 10), {"kernel_size": (2, 5), "stride": (3, 1), "padding": (0, 2)}),
        ((3, 8, 11), {"kernel_size": (3, 2), "dilation": (2, 3)}),
        ((1, 1, 5, 5), {"kernel_size": 5}),
    ],
)
def test_columns_of_windows(shape: tuple[int, ...], how: dict[str, Any]) -> None:
    x, module = torch.randn(*shape), torch.nn.Unfold(**how)
    f = tt.compile(torch.export.export(module, (x,)), target="cpu")
    assert "@" not in f.stages["region"].text
    (got,) = f({f.signature.inputs[0].tensor: x.numpy()}).values()
    assert np.array_equal(np.asarray(got), module(x).numpy())
