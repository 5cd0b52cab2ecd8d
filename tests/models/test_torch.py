"""Real architectures through torch.compile and torch.export against PyTorch in float64; docs/models.md has all six."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest

import tatami as tt

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.models.compare import compare  # noqa: E402
from tests.models.zoo import ZOO, redraw  # noqa: E402


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
@pytest.mark.parametrize(
    ("name", "dtype", "target", "kinds", "tolerance"),
    [
        ("bert", "float32", "emulated-sm80", {"sm80_mma": 12, "sm80_pair": 2}, 1e-5),
        ("bert", "float16", "emulated-sm90", {"sm90_mma": 12, "sm90_pair": 2}, 1e-2),
        ("llama", "float16", "emulated-sm90", {"sm90_mma": 29, "sm90_pair": 4}, 1e-2),
    ],
)
def test_a_transformer_runs_on_an_emulated_gpu(
    name: str, dtype: str, target: str, kinds: dict[str, int], tolerance: float
) -> None:
    """kinds: how many of its Regions take which plan first; what is left is streamed."""
    torch.manual_seed(0)
    architecture = ZOO[name]
    inputs = architecture.inputs({"batch": 1, "seq": 7})
    module = redraw(architecture.build(), inputs).to(getattr(torch, dtype))
    function = tt.compile(module, tuple(inputs.values()), target=target)
    plans = (p.choices[0].plan for p in function.stages["plan"].value.main.regions)
    taken = Counter(msgspec.to_builtins(plan)["kind"] for plan in plans)
    assert {kind: taken[kind] for kind in kinds} == kinds, taken
    (got,) = function(**{n: x.numpy() for n, x in inputs.items()}).values()
    with torch.no_grad():
        want = module.double()(**inputs)
    np.testing.assert_allclose(np.asarray(got, np.float64), want.numpy(), atol=tolerance)
