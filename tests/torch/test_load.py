"""tt.compile(module, example_inputs): torch.export into an ordinary Function."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tatami as tt
from tests.torch.modules import CASES, mlp

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of torch 2.13 warns of itself


@pytest.mark.parametrize("name", ["mlp", "conv", "attention", "embedding", "lstm_cell", "integers"])
def test_an_exported_module_matches_eager_for_every_batch(name: str) -> None:
    make, inputs = CASES[name]
    module = make().eval()
    batch = torch.export.Dim("batch", min=2)
    f = tt.compile(module, inputs(4, torch.float32), dynamic_shapes=({0: batch},))
    (port,) = f.arguments
    assert str(port.shape[0]) == "batch"
    for n in (2, 5):
        given = inputs(n, torch.float32)
        with torch.no_grad():
            wanted = module(*given)
        out = f({port.tensor: given[0]})["output"]
        assert isinstance(out, torch.Tensor)
        torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
        assert np.array_equal(f({port.tensor: given[0].numpy()})["output"], out.numpy())


def test_sizes_are_numbers_without_dynamic_shapes() -> None:
    f = tt.compile(mlp(), (torch.ones(3, 6),))
    with pytest.raises(tt.TatamiError, match="E1304"):
        f({f.arguments[0].tensor: torch.ones(4, 6)})


def test_an_exported_program_is_a_model() -> None:
    module = mlp().eval()
    exported = torch.export.export(module, (torch.ones(3, 6),))
    x = torch.randn(3, 6)
    f = tt.compile(exported)
    torch.testing.assert_close(f({f.arguments[0].tensor: x})["output"], module(x).detach(), rtol=1e-5, atol=1e-5)


class Counter(torch.nn.Module):
    """Adds what it sees to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.seen.add_(x.sum(0))
        return x - self.seen, self.seen.mean()


def test_a_buffer_the_model_writes_is_a_mutable_input() -> None:
    f = tt.compile(Counter(), {"x": torch.ones(2, 3)})
    assert {p.tensor: p.mutability for p in f.arguments} == {"seen": "mutable", "x": "immutable"}
    seen = torch.zeros(3)
    out = f(x=torch.ones(2, 3), seen=seen)
    assert seen.tolist() == [2, 2, 2] and out["output_0"].tolist() == [[-1] * 3] * 2 and out["output_1"].item() == 2


def test_a_module_without_example_inputs_is_refused() -> None:
    with pytest.raises(tt.TatamiError, match="E1801 InputMismatch at example_inputs"):
        tt.compile(mlp())


def test_what_export_or_the_table_refuses_is_one_diagnostic() -> None:
    class Exponential(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.matrix_exp(x)

    with pytest.raises(tt.TatamiError, match=r"E1606 UnsupportedModel.*linalg_matrix_exp"):
        tt.compile(Exponential(), (torch.eye(3),))
    with pytest.raises(tt.TatamiError, match=r"E1606 UnsupportedModel.*torch\.export"):
        tt.compile(mlp(), (torch.ones(3, 7),))


def test_importing_tatami_does_not_import_torch() -> None:
    code = "import sys, tatami, tatami.api, tatami.models, tatami.backends; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_exported_program_cannot_raise_so_what_would_is_refused() -> None:
    class Inverse(torch.nn.Module):
        def __init__(self, inverse: Any) -> None:
            super().__init__()
            self.inverse = inverse

        def forward(self, x: Any) -> Any:
            return self.inverse(x)

    given = torch.eye(3) * 2
    for raising in (torch.linalg.inv, torch.linalg.cholesky):
        with pytest.raises(tt.TatamiError, match=r"E1606 UnsupportedModel.*raises where it fails.*_ex"):
            tt.compile(Inverse(raising), (given,))
    inverse, info = tt.compile(Inverse(torch.linalg.inv_ex), (given,), target="reference")(given).values()
    torch.testing.assert_close(inverse, given.inverse())
    assert int(info) == 0
