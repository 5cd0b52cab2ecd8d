"""Real architectures through torch.compile and torch.export against PyTorch in float64; docs/models.md has all six."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.models.compare import compare  # noqa: E402


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "way"), [("bert", "torch.compile"), ("unet", "torch.export")])
def test_a_real_architecture_agrees_with_float64_at_every_size(name: str, way: str) -> None:
    torch._dynamo.utils.counters.clear()
    found = compare(name, way)
    assert all(e.good() for e in found.errors), found.errors
    assert not found.changed.good(), "the comparison does not notice one changed weight"
    if way == "torch.compile":
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1 and not torch._dynamo.utils.counters["graph_break"]
