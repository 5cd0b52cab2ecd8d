"""A real architecture through Tatami, against PyTorch in float64, a line each:

    python -m tests.models.compare [name …]             from ONNX
    python -m tests.models.compare --torch [name …]     by torch.compile and by torch.export
    python -m tests.models.compare --record             the six of the core by all three; writes docs/models.md

The measure is the error of PyTorch's own float32 run: Tatami may have three times that (D2.15).
"""

from __future__ import annotations

import copy
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tatami as tt
from tatami import backends
from tests.models.zoo import CORE, ZOO, Architecture, Inputs, linear_maps, make

Run = Callable[[Inputs], Tensor]


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


@dataclass(frozen=True)
class Comparison:
    """Errors at the first and at other sizes, those at the others against a model with one weight changed, and the
    seconds until the program could be called."""

    errors: tuple[Errors, ...]
    changed: Errors
    seconds: float

    def good(self) -> bool:
        return all(e.good() for e in self.errors) and not self.changed.good()


def from_onnx(module: nn.Module, architecture: Architecture) -> Run:
    """The exported file, compiled for every size that the architecture leaves open."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(module, architecture, architecture.inputs(architecture.sizes), path)
        return called(tt.compile(path))


def by_torch_export(module: nn.Module, architecture: Architecture) -> Run:
    """The program that `tt.compile` makes of the module itself."""
    dims: dict[str, Any] = {}
    shapes = {
        name: {axis: dims.setdefault(symbol, torch.export.Dim(symbol, min=1, max=200)) for axis, symbol in axes.items()}
        for name, axes in architecture.dynamic.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = {k: max(v, 2) for k, v in architecture.sizes.items()}  # an export that sees 1 takes it for a number
        return called(tt.compile(module, architecture.inputs(seen), dynamic_shapes=shapes))


def called(function: Any) -> Run:
    def run(inputs: Inputs) -> Tensor:
        (got,) = function({k: v.numpy() for k, v in inputs.items()}).values()
        return torch.as_tensor(np.asarray(got))

    return run


def by_torch_compile(module: nn.Module, architecture: Architecture) -> Run:
    """`torch.compile` without graph breaks and without an operator left to PyTorch, its open sizes marked dynamic."""
    torch._dynamo.reset()
    backends.reset()
    function = torch.compile(module, backend=backends.torch_backend, fullgraph=True, options={"fallback": False})

    def run(inputs: Inputs) -> Tensor:
        for name, axes in architecture.dynamic.items():
            for axis in axes:
                torch._dynamo.mark_dynamic(inputs[name], axis)
        got: Tensor = function(**inputs)
        return got

    run(architecture.inputs(architecture.sizes))
    return run


WAYS: dict[str, Callable[[nn.Module, Architecture], Run]] = {
    "onnx": from_onnx,
    "torch.compile": by_torch_compile,
    "torch.export": by_torch_export,
}


def compare(name: str, way: str = "onnx") -> Comparison:
    """One architecture through one way in."""
    architecture = ZOO[name]
    module = make(name)
    reference = copy.deepcopy(module).double()
    with torch.no_grad():
        start = time.perf_counter()
        run = WAYS[way](module, architecture)
        seconds = time.perf_counter() - start
        found: list[Errors] = []
        for sizes in (architecture.sizes, architecture.other_sizes):
            inputs = architecture.inputs(sizes)
            got = run(inputs)
            expected = reference(**widened(inputs))
            eager = relative_error(module(**inputs), expected)
            found.append(Errors(relative_error(got, expected), eager, float(expected.std())))
        other = perturbed(reference)(**widened(inputs))
        against = Errors(relative_error(got, other), found[-1].eager, float(other.std()))
    return Comparison(tuple(found), against, seconds)


def line(name: str, way: str, c: Comparison) -> str:
    figures = ", ".join(f"{e.ours:.1e} (PyTorch {e.eager:.1e})" for e in c.errors)
    verdict = "good" if c.good() else "BAD"
    return f"{name:16} {way:14} {verdict}  error {figures}; one weight changed {c.changed.ours:.1e}; ready in {c.seconds:.1f} s"


def table(found: Mapping[tuple[str, str], Comparison]) -> str:
    """docs/models.md."""
    rows = [
        "| model | way in | sizes | error | PyTorch float32 | other sizes | error | PyTorch float32 | one weight changed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, way), c in found.items():
        architecture = ZOO[name]
        cells = [name, way]
        for sizes, e in zip((architecture.sizes, architecture.other_sizes), c.errors, strict=True):
            cells += [", ".join(f"{k} {v}" for k, v in sizes.items()), f"{e.ours:.1e}", f"{e.eager:.1e}"]
        rows.append("| " + " | ".join([*cells, f"{c.changed.ours:.1e}" + ("" if c.good() else " **BAD**")]) + " |")
    return PAGE + "\n".join(rows) + "\n"


PAGE = """# Real models, three ways in

Written by `python -m tests.models.compare --record`. Architectures of `transformers` with random weights (and a U-Net in plain PyTorch), redrawn so that activations keep a standard deviation near one (`tests/models/zoo.py`).

Errors are relative to PyTorch in float64 (Frobenius norms). Each program has to stay within three times the error of PyTorch's own float32 run, at the sizes it was compiled with and, without another compilation, at others; the last column is the distance to a model with one weight changed, which has to be outside.

`onnx` is the exported file; `torch.compile` is `torch.compile(module, backend="tatami", fullgraph=True, options={"fallback": False})`: no graph break, no operator left to PyTorch; `torch.export` is `tt.compile(module, inputs, dynamic_shapes=…)`.

"""


def main(arguments: Sequence[str]) -> None:
    options = {a for a in arguments if a.startswith("--")}
    ways = tuple(WAYS) if "--record" in options else ("torch.compile", "torch.export") if "--torch" in options else ("onnx",)
    names = [a for a in arguments if a not in options] or (ZOO if ways == ("onnx",) else CORE)
    found: dict[tuple[str, str], Comparison] = {}
    for name in names:
        for way in ways:
            found[name, way] = compare(name, way)
            print(line(name, way, found[name, way]), flush=True)
    if "--record" in options:
        Path(__file__).parent.parent.parent.joinpath("docs", "models.md").write_text(table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
