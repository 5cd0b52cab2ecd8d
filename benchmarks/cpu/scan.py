"""Prefix sums and reduces to few results: time and error of compiled programs against numpy and torch.

    python -m benchmarks.cpu.scan [--threads 2] [--seconds 3] [--json benchmarks/results/scan.json]

Contestants take turns call by call, each into memory of its own that it has used before. `ratio` is the median over the
rounds of tatami's time over the other's in the same round, so that a busy machine slows both; errors are the largest
difference from float64, in units of the largest result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cpu.environment import environment

SCANS = [
    ((10**7,), 0), ((10, 10**6), 1), ((100, 1000, 100), 1), ((1000, 100, 100), 1), ((3163, 3162), 0), ((10**6, 10), 0),
]  # fmt: skip
REDUCES = [
    (name, shape, axis)
    for shape, axis in (((10**7,), 0), ((4, 2500000), 1), ((2500000, 4), 0))
    for name in ("sum", "max", "argmax", "mean", "logsumexp")
]
MARKS = {((10**7,), 0): 0.7, ((10, 10**6), 1): 0.7, ((100, 1000, 100), 1): 1.0, ((1000, 100, 100), 1): 1.0}
"""The most that tatami's time may be of numpy's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="per case")
    parser.add_argument("--json", type=Path, default=Path(__file__).parents[1] / "results" / "scan.json")
    args = parser.parse_args()
    os.environ.update(environment(args.threads))

    from tatami.runtime.machine.host import detect_host

    rows = []
    for name, shape, axis in [("cumsum", shape, axis) for shape, axis in SCANS] + REDUCES:
        row = measure(name, shape, axis, args.threads, args.seconds)
        if name == "cumsum" and (shape, axis) in MARKS:
            row["mark"] = MARKS[shape, axis]
        rows.append(row)
        print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
    record = {
        "machine": platform.processor() or platform.machine(),
        "target": detect_host().name,
        "threads": args.threads,
        "load": round(os.getloadavg()[0], 1),
        "unit": "milliseconds, medians of rounds in which contestants take turns",
        "rows": rows,
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(record, indent=1) + "\n")


def measure(name: str, shape: tuple[int, ...], axis: int, threads: int, seconds: float) -> dict[str, Any]:
    import numpy as np

    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    runs = {"tatami": compiled(name, x, axis, threads), "numpy": with_numpy(name, x, axis)}
    torch_run = with_torch(name, x, axis, threads)
    if torch_run is not None:
        runs["torch"] = torch_run
    results = {who: np.array(run()) for who, run in runs.items()}
    times: dict[str, list[float]] = {who: [] for who in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["tatami"]) < 5:
        for who, run in runs.items():
            begin = time.perf_counter()
            run()
            times[who].append((time.perf_counter() - begin) * 1e3)
    row: dict[str, Any] = {"op": name, "shape": list(shape), "axis": axis}
    row |= {who: round(statistics.median(t), 2) for who, t in times.items()}
    for who in list(runs)[1:]:
        ratios = [a / b for a, b in zip(times["tatami"], times[who], strict=True)]
        row[f"ratio to {who}"] = round(statistics.median(ratios), 3)
    exact = with_numpy(name, x.astype(np.float64), axis)()
    row |= {
        f"error of {who}": float(f"{np.abs(r - exact).max() / max(np.abs(exact).max(), 1e-30):.2g}")
        for who, r in results.items()
    }
    return row | {"rounds": len(times["tatami"])}


def compiled(name: str, x: Any, axis: int, threads: int) -> Callable[[], Any]:
    import tatami as tt

    g = tt.Graph(name)
    g.output("y", getattr(g.input("x", x.shape, tt.fp32), name)(axis))
    call = tt.compile(g, threads=threads).bind(x=x)
    return lambda: call()["y"]


def with_numpy(name: str, x: Any, axis: int) -> Callable[[], Any]:
    import numpy as np

    if name == "logsumexp":

        def run() -> Any:
            top = x.max(axis, keepdims=True)
            return np.log(np.exp(x - top).sum(axis)) + np.squeeze(top, axis)

        return run
    if name == "cumsum":
        out = np.empty_like(x)
        return lambda: np.cumsum(x, axis, out=out)
    return lambda: getattr(x, name)(axis)


def with_torch(name: str, x: Any, axis: int, threads: int) -> Callable[[], Any] | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    t = torch.from_numpy(x)
    if name == "cumsum":
        out = torch.empty_like(t)
        return lambda: torch.cumsum(t, axis, out=out)
    function = {"max": torch.amax}.get(name) or getattr(torch, name)
    return lambda: function(t, axis)


if __name__ == "__main__":
    main()
