"""Derivatives of the zoo's models by all their parameters, in float64, against PyTorch's.

    python -m tests.models.gradients [names]      a line for each model

The number that is differentiated is the sum of the first output's elements, each with a weight of its own.
"""

from __future__ import annotations

import sys
import warnings
from typing import NamedTuple

import numpy as np
import torch

from tatami.core.module import Module
from tatami.derivative.api import gradient
from tatami.derivative.reverse import dependent
from tatami.frontend import ir
from tatami.frontend.reopen import reopened
from tatami.frontend.run import run
from tatami.models import open_model
from tests.derivative.differences import with_loss
from tests.models.zoo import ZOO, make


class Compared(NamedTuple):
    """Number of the parameters compared, the largest difference relative to the largest element, and nodes before and after."""

    parameters: int
    error: float
    before: int
    after: int


def compared(name: str) -> Compared:
    """The derivatives of one model, compared with PyTorch's by the content of the parameters."""
    module = make(name)
    inputs = ZOO[name].inputs(ZOO[name].sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module, (), dict(inputs), strict=False)
    model: Module[ir.Graph] = with_loss(open_model(exported)["frontend"])
    wrt = _weights(model)
    made = gradient(model, of="loss_", wrt=wrt)
    wide = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    wanted = _by_torch(module, wide)
    ports = [p.tensor for p in made.main.signature.inputs if p.storage == "argument"]
    arrays = dict(zip(ports, (v.numpy() for v in wide.values()), strict=True))
    got = run(made, arrays, mode="float64")
    largest = max(float(np.abs(w).max()) for w in wanted.values())
    count, worst = 0, 0.0
    for weight in wrt:
        want = wanted.get(_content(made.constants[weight].array))
        if want is not None:
            difference = np.abs(got[f"{weight}.gradient"] - want).max()
            worst = max(worst, float(difference / (np.abs(want).max() + 1e-6 * largest)))
            count += 1
    return Compared(count, worst, len(model.main.graph), len(made.main.graph))


def _weights(model: Module[ir.Graph]) -> list[str]:
    g = reopened(model)
    ports = [p.tensor for p in model.main.signature.inputs if p.tensor in model.constants and p.dtype.is_float and p.shape]
    return [p for p in ports if "loss_" in dependent(g, g.nodes, [p])]


def _by_torch(module: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[tuple[tuple[int, ...], bytes], np.ndarray]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    keys = [_content(p.detach().numpy()) for p in parameters]
    out = module.double()(**inputs).reshape(-1)
    loss = (out * torch.cos(torch.arange(out.numel(), dtype=torch.float64) * 0.7 + 1.0)).sum()
    found = torch.autograd.grad(loss, [p for p in module.parameters() if p.requires_grad], allow_unused=True)
    wanted: dict[tuple[tuple[int, ...], bytes], np.ndarray] = {}
    for key, g in zip(keys, found, strict=True):
        if g is not None:
            wanted[key] = wanted[key] + g.numpy() if key in wanted else g.numpy()
    return wanted


def _content(array: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    return array.shape, np.float32(array).tobytes()


def main(names: list[str]) -> None:
    for name in names or list(ZOO):
        c = compared(name)
        print(f"{name}: {c.parameters} parameters, error {c.error:.1e}, {c.before} nodes become {c.after}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
