"""Estimate against measurement for every kernel of the six models of the benchmark and of trained models, one thread each.

    python -m benchmarks.cost_model                     every model; writes the record and docs/cost-model.md
    python -m benchmarks.cost_model --only resnet18     models whose name begins so; their rows of the record are replaced
    python -m benchmarks.cost_model --report            the page from the record

A kernel's time is the least of some hundred runs inside its program, so that its operands are where the kernels before it leave
them. Other work on the machine adds time: run it on a quiet one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from platformdirs import user_cache_path

from benchmarks.cost_model.process import THREADS
from benchmarks.cost_model.record import Model, Record
from benchmarks.cost_model.report import page
from benchmarks.cpu.environment import environment
from benchmarks.cpu.machine import describe
from benchmarks.cpu.models import SIX, model
from benchmarks.real.arrays import arrays_of
from benchmarks.real.models import MODELS
from benchmarks.real.packages import Absent, fetch

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "cost_model.json"
PAGE = ROOT / "docs" / "cost-model.md"
TRAINED = (
    "rapidocr-det",
    "ppocr-rec",
    "slanet",
    "wake-embedding",
    "basic-pitch",
    "nsnet2",
    "nudenet",
    "centerface",
    "waifu2x-cunet",
    "minilm-int8",
    "deepcut",
    "mtcnn-o",
)
"""Trained models of the record: detectors, readers, sound, text, in floats and in 8 bits."""
LIMIT = 900.0
"""Seconds after which a model's process is ended."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_model", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="models whose name begins so")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each model is run")
    parser.add_argument(
        "--packages", type=Path, default=user_cache_path("tatami") / "real-models", help="where packages are kept"
    )
    parser.add_argument("--report", action="store_true", help="only write the page from the record")
    args = parser.parse_args()
    names = [n for n in (*SIX, *TRAINED) if not args.only or n.startswith(tuple(args.only))]
    if not names:
        parser.error(f"no such model; there are {', '.join((*SIX, *TRAINED))}")
    record = msgspec.json.decode(RECORD.read_bytes(), type=Record) if RECORD.exists() else Record({}, 0, 0, [])
    if not args.report:
        target = _target()
        with tempfile.TemporaryDirectory() as folder:
            for name, path, arrays in _chosen(names, args.packages, Path(folder)):
                made = _ask(name, path, arrays, args.seconds)
                known = {m.name: m for m in record.models} | {name: made}
                models = [known[n] for n in (*SIX, *TRAINED) if n in known]
                record = Record(describe(), target.l2_bytes, target.l3_bytes, models)
                RECORD.write_text(record.text())
                print(f"{name}: {made.refused or f'{len(made.kernels)} kernels, {made.whole * 1e3:.2f} ms'}", flush=True)
    PAGE.write_text(page(record))


def _target() -> Any:
    from tatami.targets import resolve_target

    return resolve_target("cpu")


def _chosen(names: list[str], packages: Path, folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Name, file and arrays of each model."""
    for name in names:
        path, arrays = folder / f"{name}.onnx", folder / f"{name}.npz"
        if name in SIX:
            case = model(name, *SIX[name])
            case.onnx(str(path))
            feed = case.inputs()
        else:
            found = next(m for m in MODELS if m.name == name)
            try:
                path = fetch(found, packages)
            except Absent as absent:
                print(f"{name}: {absent}", flush=True)
                continue
            feed = arrays_of(found.inputs, found.sizes[0], 1)
        np.savez(arrays, allow_pickle=False, **feed)
        yield name, path, arrays


def _ask(name: str, path: Path, arrays: Path, seconds: float) -> Model:
    """The answer of a model's process."""
    command = [sys.executable, "-m", "benchmarks.cost_model.process", str(path), str(arrays), str(seconds), name]
    try:
        done = subprocess.run(
            command, env=environment(THREADS), cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return Model(name, refused=f"no end after {LIMIT:.0f} s")
    if done.returncode:
        return Model(name, refused=f"ended with {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), Model)


if __name__ == "__main__":
    main()
