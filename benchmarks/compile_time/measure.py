"""Compile time and call overhead against their budgets.

    python benchmarks/compile_time/measure.py [--record]

Each figure is the best of several runs in a warm process, except the import, which starts a process of its own.
`--record` writes benchmarks/results/compile_time.json.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tatami as tt
from tatami.api import build, prepare
from tatami.indexbook.analyse import analyse
from tatami.tiny.lower import lower
from tatami.tiny.normalize import normalize

ROOT = Path(__file__).parent.parent.parent


def best(action: Callable[[], object], runs: int = 5) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def import_seconds(use: str) -> float:
    """A new process: ``import tatami``, and with `use` until what it names can be called."""
    code = f"import time; t = time.perf_counter(); import tatami as tt; {use}; print(time.perf_counter() - t)"
    return min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(3)
    )


def gemm() -> tt.Graph:
    g = tt.Graph("gemm")
    a, b, bias = g.input("A", ("M", "K"), tt.fp16), g.input("B", ("K", "N"), tt.fp16), g.input("bias", ("N",), tt.fp16)
    g.output("C", a.gemm(b, bias).relu())
    return g


def chain(length: int) -> tt.Graph:
    g = tt.Graph("chain")
    y = g.input("x", ("N",), tt.fp32)
    for i in range(length):
        y = y.relu() if i % 3 else -y
    g.output("y", y)
    return g


def index_book(length: int) -> float:
    """Seconds of the IndexBook's analysis alone."""
    module = normalize(lower(chain(length).module()))
    return best(lambda: analyse(module), 3)


def to_c(model: object) -> None:
    prepare(model).stages["c"]


def found_again(model: object) -> float:
    """Seconds of `tt.compile` for a model that was compiled before: opened, hashed, loaded."""
    tt.compile(model)
    return best(lambda: tt.compile(model))


def calls() -> tuple[float, float]:
    """Seconds per bound call and per ``f(...)`` of a program that adds 1 to 16 numbers."""
    g = tt.Graph("tiny")
    g.output("y", g.input("x", (16,), tt.fp32) + 1.0)
    f = build(prepare(g), 1)
    x = np.zeros(16, np.float32)
    call = f.bind(x=x)
    count = 20000

    def bound() -> None:
        for _ in range(count):
            call()

    def unbound() -> None:
        for _ in range(count):
            f(x=x)

    return best(bound) / count, best(unbound, 3) / count


def main() -> None:
    digits = ROOT / "examples" / "digits" / "digits.onnx"
    bound, unbound = calls()
    few, many = index_book(1000), index_book(10_000)
    short, long = best(lambda: to_c(chain(1000)), 2), best(lambda: to_c(chain(10_000)), 1)
    rows = [
        ("import tatami, s", import_seconds("pass"), 0.3),
        ("import tatami and tt.compile, s", import_seconds("tt.Graph, tt.compile"), None),
        ("GEMM+bias+ReLU, graph to plan, s", best(lambda: prepare(gemm()).stages["plan"]), 0.1),
        ("digits, ONNX to C text, s", best(lambda: to_c(digits)), 1.0),
        ("digits, compiled before, s", found_again(digits), 0.5),
        ("1,000-node chain to C text, s", short, None),
        ("10,000-node chain to C text, s", long, None),
        ("  ratio of the two (10 is linear)", long / short, 15.0),
        ("IndexBook of 1,000 nodes, s", few, None),
        ("IndexBook of 10,000 nodes, s", many, None),
        ("  ratio of the two (10 is linear)  ", many / few, 15.0),
        ("f.bind call, µs", bound * 1e6, 10.0),
        ("f(...) call, µs", unbound * 1e6, 20.0),
    ]
    for name, value, budget in rows:
        mark = "" if budget is None else f"   budget {budget:g}" + ("" if value <= budget else "   OVER")
        print(f"{name:<36} {value:10.4g}{mark}")
    if "--record" in sys.argv:
        out = ROOT / "benchmarks" / "results" / "compile_time.json"
        record = {"python": platform.python_version(), "machine": platform.machine(), "figures": {n: v for n, v, _ in rows}}
        out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
