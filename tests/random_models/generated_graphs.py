"""Random graphs of the whole vocabulary, compiled for this CPU and compared with the numpy meaning; one seed, one graph.

    python -m tests.random_models.generated_graphs --count 1000 --seed 0 --jobs 2

prints what differs, then how often each operation of the table was drawn; `--target emulated-sm80` compares another target. Where PyTorch knows every operation of a graph
(`tests/random_models/torch_meaning.py`), the numpy meaning is compared with it as well.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import numpy as np

from tatami.api import build, prepare
from tatami.core.module import Module
from tatami.frontend.ops import OPS
from tatami.report.playback import compare_outputs, least_precise
from tests.random_models.model_maker import Model, make_model

if importlib.util.find_spec("torch") is not None:
    from tests.random_models.torch_meaning import run_in_torch
else:

    def run_in_torch(model: Model) -> dict[str, np.ndarray] | None:
        return None


def drawn_operations(module: Module[Any]) -> Counter[str]:
    """How often each operation stands in the module's graphs."""
    return Counter(node.op for graph in module.programs.values() for node in graph.graph)


def disagreement(model: Model, seed: int, target: str = "cpu") -> tuple[str, bool]:
    """(Difference between the kernels, the numpy meaning and PyTorch, "" if none; whether PyTorch took part)."""
    signature = model.module.main.signature
    compilation = prepare(model.module, target=target)
    with np.errstate(all="ignore"):
        reference = compilation.reference_run(model.inputs, model.sizes)
        other = run_in_torch(model)
    faults = []
    if other is not None:
        faults += [f"PyTorch: {a.difference}" for a in compare_outputs(signature, other, reference) if a.difference is not None]
    function = build(compilation, 1 + seed % 2, model.sizes)
    got = function({name: array.copy() for name, array in model.inputs.items()})
    through = least_precise(model.module)
    differ = [a for a in compare_outputs(signature, got, reference, through) if a.difference is not None]
    if differ and (through or any(o.dtype.is_narrow_float for o in signature.outputs)):
        with np.errstate(all="ignore"):
            rounded = compilation.reference_run(model.inputs, model.sizes, mode="declared")
        own = {a.output: a.error for a in compare_outputs(signature, rounded, reference, through)}
        differ = [a for a in differ if not a.error <= 4 * own[a.output]]  # a chain that narrow dtypes round as far off
    faults += [f"kernels: {a.difference}" for a in differ]
    return "; ".join(faults), other is not None


def examine(seed: int, target: str = "cpu") -> tuple[int, str, Counter[str], bool]:
    """Make the graph of `seed` and compare it; an exception is a fault too."""
    drawn: Counter[str] = Counter()
    try:
        model = make_model(seed, vocabulary=True)
        drawn = drawn_operations(model.module)
        fault, in_torch = disagreement(model, seed, target)
        return seed, f"{fault} after {model.ops}" if fault else "", drawn, in_torch
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return seed, f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})", drawn, False


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    total: Counter[str] = Counter()
    failures = compared = done = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(examine, seed, options.target) for seed in range(options.seed, options.seed + options.count)]
        for future in as_completed(waiting):
            seed, fault, drawn, in_torch = future.result()
            total += drawn
            done += 1
            compared += in_torch
            if fault:
                failures += 1
                print(f"seed {seed}: {fault}", flush=True)
    print(f"\n{done} graphs, {failures} differ; {compared} compared with PyTorch too; {time.monotonic() - begin:.0f} s")
    print(", ".join(f"{name} {total[name]}" for name in sorted(OPS, key=lambda n: -total[n])))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
