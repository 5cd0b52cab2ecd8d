"""A real architecture through Tatami, against PyTorch in float64: `python -m tests.models.compare [name …]` prints a line each.

The measure is the error of PyTorch's own float32 run: Tatami may have three times that (D2.15).
"""

from __future__ import annotations

import copy
import logging
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tatami as tt
from tests.models.zoo import ZOO, Architecture, Inputs, linear_maps, make


@dataclass(frozen=True)
class Errors:
    """Relative errors to float64 (Frobenius norms), and the standard deviation of the reference."""

    ours: float
    eager: float
    std: float

    def good(self) -> bool:
        return self.std > 1e-2 and self.ours <= 3 * self.eager + 1e-7


def export(module: nn.Module, architecture: Architecture, inputs: Inputs, path: Path) -> None:
    """An ONNX file with the symbolic sizes of the architecture."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            _export(module, architecture, inputs, path)
    finally:
        logging.disable(logging.NOTSET)


def _export(module: nn.Module, architecture: Architecture, inputs: Inputs, path: Path) -> None:
    if architecture.needs_scripting:
        axes = {name: dict(dims) for name, dims in architecture.dynamic.items()}
        args = tuple(inputs.values())
        names = list(inputs)
        torch.onnx.export(
            module, args, path, input_names=names, output_names=["y"], dynamo=False, opset_version=17, dynamic_axes=axes
        )
        return
    dims: dict[str, Any] = {}
    shapes = {
        name: {axis: dims.setdefault(symbol, torch.export.Dim(symbol, min=1, max=200)) for axis, symbol in axes.items()}
        for name, axes in architecture.dynamic.items()
    }
    torch.onnx.export(module, (), path, kwargs=inputs, dynamo=True, output_names=["y"], dynamic_shapes=shapes, verbose=False)


def widened(inputs: Inputs) -> Inputs:
    return {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


def perturbed(module: nn.Module) -> nn.Module:
    """A copy with one weight of its middle linear map changed by one standard deviation of the weights."""
    other = copy.deepcopy(module)
    maps: list[Any] = linear_maps(other)
    weight = maps[len(maps) // 2].weight
    with torch.no_grad():
        weight.view(-1)[weight.numel() // 2] += 3 * weight.std()
    return other


def relative_error(value: Any, reference: Tensor) -> float:
    return float((torch.as_tensor(np.asarray(value)).double() - reference).norm() / reference.norm())


def compare(name: str) -> tuple[list[Errors], Errors, float]:
    """Errors at the exported and at other sizes, those against a perturbed model, and the seconds of compilation."""
    architecture = ZOO[name]
    module = make(name)
    reference = copy.deepcopy(module).double()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(module, architecture, architecture.inputs(architecture.sizes), path)
        start = time.perf_counter()
        function = tt.compile(path)
        seconds = time.perf_counter() - start
    found: list[Errors] = []
    with torch.no_grad():
        for sizes in (architecture.sizes, architecture.other_sizes):
            inputs = architecture.inputs(sizes)
            (got,) = function({k: v.numpy() for k, v in inputs.items()}).values()
            expected = reference(**widened(inputs))
            eager = relative_error(module(**inputs), expected)
            found.append(Errors(relative_error(got, expected), eager, float(expected.std())))
        other = perturbed(reference)(**widened(inputs))
        against = Errors(relative_error(got, other), found[-1].eager, float(other.std()))
    return found, against, seconds


if __name__ == "__main__":
    for chosen in sys.argv[1:] or ZOO:
        errors, changed, took = compare(chosen)
        verdict = "good" if all(e.good() for e in errors) and not changed.good() else "BAD"
        figures = ", ".join(f"{e.ours:.1e} (PyTorch {e.eager:.1e})" for e in errors)
        print(
            f"{chosen:16} {verdict}  error {figures}; one weight changed {changed.ours:.1e}; compiled in {took:.1f} s",
            flush=True,
        )
