"""Models that NNSmith drew, through Tatami, onnxruntime, ONNX's reference evaluator and PyTorch: who disagrees with whom.

    python -m tests.onnx.nnsmith_runs.nnsmith FOLDER --python ENV/bin/python --count 500

draws what is missing (tests/onnx/nnsmith_runs/nnsmith_models.py, by the interpreter that has NNSmith), examines each model in a
process of its own, appends a line to FOLDER/results.jsonl, and prints the summary. Run again, it goes on where it
stopped; `--again` examines those anew on which we were not among the majority, `--only SEED` those seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.onnx.blame import Arrays, Parting, partings

SECONDS = 300
"""Limit of one model's process, in processor seconds."""
BYTES = 4 << 30
TOLERANCES = {"float16": (1e-2, 1e-3), "float32": (1e-3, 1e-5), "float64": (1e-3, 1e-5)}
"""dtype → tolerance relative to each value, and relative to the greatest finite value of its tensor (at least 1)."""
Found = dict[str, Any]


def ours(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    import tatami as tt

    function = tt.compile(model, threads=1)
    return dict(function({a.tensor: inputs[a.tensor] for a in function.arguments}))


def ort(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def reference(model: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    names = [o.name for o in model.graph.output]
    with np.errstate(all="ignore"):
        return dict(zip(names, ReferenceEvaluator(model).run(names, dict(inputs)), strict=True))


SYSTEMS: dict[str, Callable[[onnx.ModelProto, Arrays], dict[str, np.ndarray]]] = {
    "tatami": ours,
    "onnxruntime": ort,
    "reference": reference,
}


def difference(a: Arrays, b: Arrays) -> str:
    """The first difference of two systems' outputs, or nothing."""
    for name in b:
        x, y = np.asarray(a[name]), np.asarray(b[name])
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{name}: {x.dtype}{list(x.shape)} for {y.dtype}{list(y.shape)}"
        if x.dtype.kind in "biu":
            close = x == y
        else:
            of_value, of_greatest = TOLERANCES[x.dtype.name]
            x, y = x.astype(np.float64), y.astype(np.float64)
            finite = np.abs(y[np.isfinite(y)])
            with np.errstate(all="ignore"):
                close = np.isclose(x, y, of_value, of_greatest * finite.max(initial=1), equal_nan=True)
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            return f"{name}{list(at)}: {x[at]} for {y[at]}, {int((~close).sum())} of {close.size} elements"
    return ""


def examine(folder: Path, seed: int) -> Found:
    """Results of each system for a model, and the groups that agree, the largest first."""
    model = onnx.load(folder / f"{seed}.onnx")
    with np.load(folder / f"{seed}.npz") as file:
        inputs = {k[3:]: file[k] for k in file if k.startswith("in:")}
        outputs: dict[str, Arrays] = {"pytorch": {k[4:]: file[k] for k in file if k.startswith("out:")}}
    refused: dict[str, str] = {}
    for name, run in SYSTEMS.items():
        try:
            outputs[name] = run(model, inputs)
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {error}"[:400]
    groups: list[list[str]] = []
    for name, arrays in outputs.items():
        own = next((g for g in groups if not difference(arrays, outputs[g[0]])), None)
        if own is None:
            groups.append([name])
        else:
            own.append(name)
    groups.sort(key=len, reverse=True)
    apart = "tatami" in outputs and "tatami" not in groups[0]
    return {
        "seed": seed,
        "operators": sorted(n.op_type for n in model.graph.node),
        "groups": groups,
        "refused": refused,
        "differences": {g[0]: difference(outputs[g[0]], outputs[groups[0][0]]) for g in groups[1:]},
        "sensitive": apart and is_sensitive(model, inputs),
        "nodes": [f"{p.operator} {p.node}: {p.difference}" for p in _blamed(model, inputs)] if apart else [],
    }


def is_sensitive(model: onnx.ModelProto, inputs: Arrays) -> bool:
    """True if another system's own results change by more than the tolerance when each input moves by one last bit."""
    rng = np.random.default_rng(0)
    for run in (ort, reference):
        try:
            still = run(model, inputs)
            moved = (
                {
                    n: np.nextafter(a, rng.choice([-np.inf, np.inf], a.shape).astype(a.dtype)) if a.dtype.kind == "f" else a
                    for n, a in inputs.items()
                }
                for _ in range(4)
            )
            return any(difference(run(model, other), still) for other in moved)
        except Exception:  # it cannot run the model: the next one is asked
            continue
    return False


def _blamed(model: onnx.ModelProto, inputs: Arrays) -> list[Parting]:
    return partings(model, inputs, ours, (ort, reference), difference)


def limited(folder: Path, seed: int) -> Found:
    """`examine` in a child under limits: no model ends the run."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        with warnings.catch_warnings(), os.fdopen(write, "w") as answer:
            warnings.simplefilter("ignore")
            answer.write(json.dumps(examine(folder, seed)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        text = answers.read()
    _, status = os.waitpid(child, 0)
    if text:
        return dict(json.loads(text))
    why = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no answer"
    return {
        "seed": seed,
        "operators": [],
        "groups": [],
        "refused": {"process": why},
        "differences": {},
        "sensitive": False,
        "nodes": [],
    }


def verdict(found: Found) -> str:
    """One word on a model: who stands apart."""
    if not found["groups"]:
        return "fault"
    if "tatami" in found["refused"]:
        return "we refuse"
    biggest = found["groups"][0]
    if "tatami" not in biggest:
        return "we differ, and a last bit of the inputs does as much" if found.get("sensitive") else "we differ"
    apart = sorted(name for group in found["groups"][1:] for name in group)
    return f"{' and '.join(apart)} differ{'s' if len(apart) == 1 else ''}" if apart else "all agree"


def summary(results: Sequence[Found]) -> str:
    verdicts = Counter(verdict(f) for f in results)
    refusals = Counter(name for f in results for name in f["refused"] if name != "tatami")
    kinds = Counter(op for f in results for op in f["operators"])
    lines = [f"{len(results)} models, {sum(kinds.values())} nodes of {len(kinds)} operators", ""]
    lines += ["| models | verdict |", "|---|---|", *(f"| {n} | {v} |" for v, n in verdicts.most_common())]
    lines += ["", *(f"{name} cannot run {n}" for name, n in refusals.most_common())]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", help="the interpreter that has NNSmith; without it only what is drawn is examined")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--only", type=int, nargs="*", default=[])
    options = parser.parse_args()
    if options.python:
        command = [
            options.python,
            "-m",
            "tests.onnx.nnsmith_runs.nnsmith_models",
            str(options.folder),
            "--count",
            str(options.count),
        ]
        subprocess.run(command, check=True)
    log = options.folder / "results.jsonl"
    kept: dict[int, Found] = {}
    if log.exists():
        kept = {found["seed"]: found for found in map(json.loads, log.read_text().splitlines())}
    for name in ("tatami", "onnxruntime", "onnx.reference"):
        __import__(name)  # the children share what is imported here
    for seed in range(options.count):
        again = seed in options.only or (options.again and seed in kept and verdict(kept[seed]) != "all agree")
        if not (options.folder / f"{seed}.npz").exists() or (seed in kept and not again):
            continue
        kept[seed] = limited(options.folder, seed)
        with log.open("a") as file:
            file.write(json.dumps(kept[seed]) + "\n")
        if verdict(kept[seed]) != "all agree":
            told = [kept[seed][key] for key in ("refused", "differences", "nodes") if kept[seed][key]]
            print(seed, verdict(kept[seed]), *told, flush=True)
    print(summary([kept[s] for s in sorted(kept)]))
    by_verdict: dict[str, list[int]] = defaultdict(list)
    for seed in sorted(kept):
        by_verdict[verdict(kept[seed])].append(seed)
    print("\n".join(f"{v}: {' '.join(map(str, s))}" for v, s in by_verdict.items() if v != "all agree"))
    return 1 if by_verdict.keys() & {"fault", "we refuse"} else 0


if __name__ == "__main__":
    sys.exit(main())
