"""Where PyTorch is not installed these tests are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    """Dynamo remembers code objects and what it guards; each test begins without."""
    from tatami import backends

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    backends.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
