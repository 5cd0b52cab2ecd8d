"""The gradients of a conv net by wgmma: which kernels those of its images and weights get, that nothing is turned between them, and
PyTorch's numbers on the emulated GPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tatami import backends  # noqa: E402
from tatami.api import prepare  # noqa: E402
from tatami.backends import torch_compile  # noqa: E402
from tatami.plan.ir import Sm90Mma  # noqa: E402


def test_gradients_are_products_by_wgmma_and_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 32 images, an axis that gradients of the weights would have last: a tensor that a convolution reads too keeps the convolution's layout."""
    compilations: list[Any] = []

    def prepared(module: Any, **options: Any) -> Any:
        compilations.append(prepare(module, **options))
        return compilations[-1]

    monkeypatch.setattr(torch_compile, "prepare", prepared)
    layers = (nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.SiLU(), nn.Conv2d(32, 32, 3, stride=2, padding=1, bias=False))
    net = nn.Sequential(*layers).half()
    exact = copy.deepcopy(net).double()
    own = torch.compile(net, backend=backends.torch_backend, options={"fallback": False, "target": "emulated-sm90"})
    x = torch.randn(32, 32, 8, 8).half()
    images = [x.clone().requires_grad_(), x.double().requires_grad_()]
    for run, image in zip((own, exact), images, strict=True):
        y = run(image)
        (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(y.dtype)).sum().backward()
    stages = compilations[-1].stages
    body, plans = stages["region"].main.body, {r.region: r.choices[0].plan for r in stages["plan"].main.regions}
    products = [r for r in body if r.reduce_axes]
    assert len(products) == 7 and all(isinstance(plans[r.name], Sm90Mma) for r in products)
    found = [r for r in products if any(p.memref.shape[2:] == (3, 3) for p in r.inputs)]
    assert len(found) == 5, "one, and four phases"
    outputs = set(stages["region"].main.outputs)
    orders = {stages["plan"].main.layouts[t.name].order for r in found for t in r.outputs if t.name not in outputs}
    assert orders == {(0, 2, 3, 1)}
    for ours, theirs in zip((images[0], *net.parameters()), (images[1], *exact.parameters()), strict=True):
        assert (ours.grad.double() - theirs.grad).norm() < 3e-3 * theirs.grad.norm()
