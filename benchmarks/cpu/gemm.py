"""Matrix products: GFLOP/s of compiled programs beside numpy and torch, in the same rounds as the machine's own peak.

    python -m benchmarks.cpu.gemm [--threads 1] [--seconds 2] [--constant] [--json benchmarks/results/gemm.json]

Contestants take turns call by call. Each round is framed by a register-only multiply-add loop; rounds in which that loop
ran below 0.93 of its best are dropped (the machine was busy with something else); the best and the median of the
others are recorded. With --constant the right operand is a
weight that setup packs once.
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

SHAPES = [
    (64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (333, 333, 333),
    (1, 768, 768), (7, 3072, 768), (33, 768, 768), (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (197, 768, 768),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="per shape")
    parser.add_argument("--constant", action="store_true", help="the right operand is a constant")
    parser.add_argument("--shape", action="append", default=[], help="MxNxK; may be repeated")
    parser.add_argument("--json", type=Path, default=Path(__file__).parents[1] / "results" / "gemm.json")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)

    import numpy as np

    from tatami.runtime.host import detect_host
    from tatami.search.peak import Probe

    target = detect_host()
    shapes = [tuple(int(v) for v in s.split("x")) for s in args.shape] or SHAPES
    probe = Probe(1)
    rows = []
    print(
        f"{target.name}, {args.threads} thread(s), {'constant' if args.constant else 'given'} right operand; GFLOP/s, best of quiet rounds"
    )
    for m, n, k in shapes:
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        contestants = {"tatami": compiled(a, b, args.threads, args.constant), "numpy": lambda a=a, b=b: np.matmul(a, b)}
        torch_run = with_torch(a, b, args.threads)
        if torch_run is not None:
            contestants["torch"] = torch_run
        result = measure(contestants, probe, 2.0 * m * n * k, args.seconds)
        rows.append({"m": m, "n": n, "k": k, **result})
        figures = "  ".join(f"{name} {result[name]:7.1f}" for name in contestants)
        print(
            f"  {m:5} {n:5} {k:5}  {figures}  peak {result['peak']:6.1f}  {result['tatami'] / result['peak'] / args.threads:5.2f} of peak"
        )
    args.json.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "machine": platform.processor() or platform.machine(),
        "target": target.name,
        "threads": args.threads,
        "constant": args.constant,
        "unit": "GFLOP/s, best and median of quiet rounds; peak is of one thread",
        "rows": rows,
    }
    args.json.write_text(json.dumps(record, indent=1) + "\n")


def compiled(a: object, b: object, threads: int, constant: bool) -> Callable[[], object]:
    """The product as a program: `b` an input, or a weight."""
    import tatami as tt

    g = tt.Graph("gemm")
    x = g.input("a", a.shape, tt.fp32)  # type: ignore[attr-defined]
    w = g.constant(b) if constant else g.input("b", b.shape, tt.fp32)  # type: ignore[attr-defined]
    g.output("y", x @ w)
    f = tt.compile(g, threads=threads)
    return f.bind(a=a) if constant else f.bind(a=a, b=b)


def with_torch(a: object, b: object, threads: int) -> Callable[[], object] | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    out = torch.empty(x.shape[0], y.shape[1])
    return lambda: torch.mm(x, y, out=out)


def measure(
    contestants: dict[str, Callable[[], object]], probe: Callable[[], float], flops: float, seconds: float
) -> dict[str, float]:
    """Best and median GFLOP/s of each contestant over the rounds in which the machine was quiet, and the peak."""
    repeat = {}
    for name, run in contestants.items():
        run()
        t = time.perf_counter()
        run()
        repeat[name] = max(1, int(5e-4 / max(time.perf_counter() - t, 1e-7)))
    rounds: list[tuple[float, dict[str, float]]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds) < 3:
        peaks, rates = [], {}
        for name, run in contestants.items():
            peaks.append(probe())
            t = time.perf_counter()
            for _ in range(repeat[name]):
                run()
            rates[name] = flops * repeat[name] / (time.perf_counter() - t) / 1e9
        rounds.append((min(peaks), rates))
    best = max(p for p, _ in rounds)
    quiet = [r for p, r in rounds if p >= 0.93 * best] or [r for _, r in rounds]
    out = {name: round(max(r[name] for r in quiet), 2) for name in contestants}
    medians = {f"{name} median": round(statistics.median(r[name] for r in quiet), 2) for name in contestants}
    return {**out, **medians, "peak": round(best, 2), "rounds": len(rounds), "quiet": len(quiet)}


if __name__ == "__main__":
    main()
