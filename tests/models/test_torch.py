"""Real architectures through torch.compile and torch.export against PyTorch in float64; docs/models.md has all six."""

from __future__ import annotations

import numpy as np
import pytest

import tatami as tt

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.models.compare import compare  # noqa: E402
from tests.models.zoo import ZOO  # noqa: E402


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "way"), [("bert", "torch.compile"), ("unet", "torch.export")])
def test_a_real_architecture_agrees_with_float64_at_every_size(name: str, way: str) -> None:
    torch._dynamo.utils.counters.clear()
    found = compare(name, way)
    assert all(e.good() for e in found.errors), found.errors
    assert not found.changed.good(), "the comparison does not notice one changed weight"
    if way == "torch.compile":
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1 and not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.filterwarnings("ignore")
def test_bert_of_two_layers_runs_on_the_emulated_gpu() -> None:
    torch.manual_seed(0)
    architecture = ZOO["bert"]
    module, inputs = architecture.build().eval(), architecture.inputs({"batch": 1, "seq": 7})
    function = tt.compile(module, tuple(inputs.values()), target="emulated-sm80")
    (got,) = function(**{n: x.numpy() for n, x in inputs.items()}).values()
    with torch.no_grad():
        want = module.double()(**inputs)
    np.testing.assert_allclose(np.asarray(got), want.numpy(), atol=1e-5)
