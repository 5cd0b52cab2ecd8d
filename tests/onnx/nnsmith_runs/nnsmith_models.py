"""Writes the models that NNSmith 0.1.0 draws from seeds, with inputs and PyTorch's outputs: `<seed>.onnx`, `<seed>.npz`.

Run by the interpreter of an environment that has NNSmith, since its pins disturb others (it needs antlr 4.9):

    python -m venv --system-site-packages ENV && ENV/bin/pip install nnsmith==0.1.0
    ENV/bin/python -m tests.onnx.nnsmith_runs.nnsmith_models FOLDER --count 500

Seeds that are there already are not drawn again. A seed that NNSmith fails on leaves `<seed>.txt` with the reason.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

NODES = (5, 20)
"""The fewest and the most operators of a model, by seed."""
RISKY_EVERY = 4
"""Every so many seeds operators of a limited domain (Sqrt, Log2, Pow, Asin, Acos) are drawn too."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    missing = [s for s in range(options.count) if not any((options.folder / f"{s}.{e}").exists() for e in ("npz", "txt"))]
    if not missing:
        return 0
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    draw = _generator()
    for seed in missing:
        try:
            model, inputs, outputs = draw(seed)
        except Exception as error:  # whatever NNSmith raises is its own
            (options.folder / f"{seed}.txt").write_text(f"{type(error).__name__}: {error}"[:2000])
            continue
        (options.folder / f"{seed}.onnx").write_bytes(model.SerializeToString())
        arrays = {f"in:{k}": v for k, v in inputs.items()} | {f"out:{k}": v for k, v in outputs.items()}
        partial = options.folder / f"{seed}.partial"
        with partial.open("wb") as file:
            np.savez(file, **arrays)
        partial.rename(options.folder / f"{seed}.npz")
        print(f"drew {seed}", file=sys.stderr, flush=True)
    return 0


def _generator() -> Any:
    """A function from a seed to a model, its inputs and PyTorch's outputs."""
    import onnx
    import torch

    # NNSmith 0.1.0 was written for an onnx and a torch where these were so.
    setattr(onnx, "_serialize", lambda m: m.SerializeToString())  # noqa: B010
    export = torch.onnx.export
    setattr(torch.onnx, "export", lambda *a, **k: export(*a, **{**k, "dynamo": False}))  # noqa: B010
    torch.set_num_threads(1)

    from nnsmith.abstract.extension import activate_ext
    from nnsmith.graph_gen import model_gen
    from nnsmith.materialize import Model
    from nnsmith.narrow_spec import auto_opset

    kind = Model.init("onnx", backend_target="cpu")
    kind.add_seed_setter()
    operators = {risky: auto_opset(kind, None, vulops=risky) for risky in (False, True)}
    for chosen in operators.values():
        activate_ext(opset=chosen, factory=None)

    def draw(seed: int) -> tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        least, most = NODES
        made = model_gen(
            opset=operators[seed % RISKY_EVERY == 0],
            method="symbolic-cinit",
            seed=seed,
            max_elem_per_tensor=65536,
            max_nodes=least + seed % (most - least + 1),
            timeout_ms=10000,
        )
        model = kind.from_gir(made.make_concrete())
        model.refine_weights()
        oracle = model.make_oracle()
        return model.native_model, oracle.input, oracle.output

    return draw


if __name__ == "__main__":
    sys.exit(main())
