"""Products of floats and narrow weights, and quantised image networks, next to ONNX Runtime, one thread each, in processes of
their own that take turns.

python -m benchmarks.narrow                       measures, writes the record and docs/performance-narrow.md
python -m benchmarks.narrow --networks            the networks alone; the record keeps its other rows
python -m benchmarks.narrow --only int4 --rows 1  some rows, printed only
python -m benchmarks.narrow --report              the page from the record
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import onnx

from benchmarks.cpu.environment import environment
from benchmarks.cpu.machine import describe
from benchmarks.narrow.layers import FORMATS, made
from benchmarks.narrow.networks import NETWORKS, quantised

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks/results/narrow.json"
PAGE = ROOT / "docs/performance-narrow.md"
ENGINES = ("tatami", "onnxruntime")
SIZES = ((4096, 4096), (2048, 5632))
ROWS = (1, 4, 32, 256)


class Row(msgspec.Struct):
    """One product: seconds of a call and relative error to float64, by engine."""

    format: str
    rows: int
    k: int
    n: int
    seconds: dict[str, float]
    errors: dict[str, float]


class Network(msgspec.Struct):
    """One network: seconds of processor time of a call by engine and form (fp32, int8), and the distance of the two engines' int8 results, relative
    to their norm."""

    name: str
    seconds: dict[str, float]
    distance: float


class Record(msgspec.Struct):
    """All rows, and the machine that they were measured on."""

    machine: dict[str, str]
    rows: list[Row]
    networks: list[Network] = []
    networks_machine: dict[str, str] = {}


class Worker:
    """An engine in a process of its own."""

    def __init__(self, engine: str, model: Path, x: Path, cache: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.narrow.worker", engine, str(model), str(x)]
        variables = environment(1) | {"TATAMI_CACHE_DIR": str(cache)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=variables
        )
        if self.said() != "ready":
            raise SystemExit(f"{engine} did not get ready for {model.name}")

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.said()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(name: str, rows: int, k: int, n: int, rounds: int) -> Row:
    """The least mean of a block of calls for each engine, in turns."""
    layer = made(name, k, n)
    x = np.random.default_rng(1).standard_normal((rows, k)).astype(np.float32)
    wanted = x.astype(np.float64) @ layer.real
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "model.onnx").write_bytes(layer.model(rows))
        np.save(folder / "x.npy", x)
        workers = {e: Worker(e, folder / "model.onnx", folder / "x.npy", folder / "cache") for e in ENGINES}
        seconds = dict.fromkeys(ENGINES, float("inf"))
        for _ in range(rounds):
            for engine, worker in workers.items():
                seconds[engine] = min(seconds[engine], float(worker.ask("block")))
        errors = {}
        for engine, worker in workers.items():
            y = np.load(worker.ask(f"write {folder / engine}.npy"))
            errors[engine] = float(np.linalg.norm(y - wanted) / np.linalg.norm(wanted))
            worker.close()
    return Row(name, rows, k, n, seconds, errors)


def measure_network(name: str, rounds: int) -> Network:
    """The least mean of a block of calls for each engine and form, in turns."""
    model = NETWORKS[name]()
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        onnx.save(model, folder / "fp32.onnx")
        onnx.save(quantised(model), folder / "int8.onnx")
        np.save(folder / "x.npy", np.random.default_rng(2).normal(0, 1, shape).astype(np.float32))
        forms = [(e, form) for form in ("fp32", "int8") for e in ENGINES]
        workers = {(e, f): Worker(e, folder / f"{f}.onnx", folder / "x.npy", folder / "cache") for e, f in forms}
        seconds = dict.fromkeys((f"{e} {f}" for e, f in forms), float("inf"))
        for _ in range(rounds):
            for (e, f), worker in workers.items():
                seconds[f"{e} {f}"] = min(seconds[f"{e} {f}"], float(worker.ask("busy")))
        ours, theirs = (np.load(workers[e, "int8"].ask(f"write {folder / e}.npy")).astype(np.float64) for e in ENGINES)
        for worker in workers.values():
            worker.close()
    return Network(name, seconds, float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)))


def networks_of_page(record: Record) -> list[str]:
    """The part of the page on networks."""
    if not record.networks:
        return []
    machine = ", ".join(f"{k} {v}" for k, v in record.networks_machine.items())
    lines = [
        "",
        "## Quantised image networks",
        "",
        "Random weights; int8 as `onnxruntime.quantization.quantize_static` writes it (QDQ, a scale for each filter, u8 values). *ms* is",
        "processor time, least of the blocks. *ratio*: ONNX Runtime's int8 over Tatami's; *of fp32*: Tatami's own fp32 over its int8. *distance*: of the two engines'",
        "int8 results, relative to their norm: 0 is the same to the bit.",
        "",
        f"Machine: {machine}.",
        "",
        "| network | fp32 ms | ONNX Runtime fp32 ms | int8 ms | ONNX Runtime int8 ms | ratio | of fp32 | distance |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for n in record.networks:
        plain, other, ours, theirs = (n.seconds[f"{e} {f}"] for f in ("fp32", "int8") for e in ENGINES)
        times = " | ".join(f"{t * 1e3:.3g}" for t in (plain, other, ours, theirs))
        lines.append(f"| {n.name} | {times} | {theirs / ours:.2f} | {plain / ours:.2f} | {n.distance:.1e} |")
    return lines


def page(record: Record) -> str:
    """The page of a record."""
    machine = ", ".join(f"{k} {v}" for k, v in record.machine.items())
    lines = [
        "# Performance: narrow weights",
        "",
        "Written by `python -m benchmarks.narrow`: y = x @ w for weights narrower than fp32, one thread, next to ONNX Runtime.",
        "",
        "*ms* is the least mean of a block of calls; the engines take turns, each in a process of its own. On a busy",
        "machine (a *load* above the cores) milliseconds are several times those of a quiet one, and ratios differ by half from run to",
        "run. *ratio* is ONNX Runtime's time over Tatami's. *error* is the norm of the difference from float64, relative to the norm of the result. Where ONNX",
        "Runtime's error is near 1e-2, it rounds x to 8 bits: unasked for `DequantizeLinear`, which Tatami does not",
        "([0087](decisions/0087-narrow-weights.md)), and as a permission of the file for accuracy 4, which both take",
        "([0088](decisions/0088-rounded-operands-of-level-4.md)). Blocks have 32 steps of k. Repeated calls find",
        "weights of less than the L3 cache there; in a model they come from memory.",
        "",
        f"Machine: {machine}.",
    ]
    for k, n in dict.fromkeys((r.k, r.n) for r in record.rows):
        lines += ["", f"## {k} x {n}", "", "| weights | rows | ms | ONNX Runtime ms | ratio | error | ONNX Runtime's error |"]
        lines.append("| --- | --- | --- | --- | --- | --- | --- |")
        for r in record.rows:
            if (r.k, r.n) == (k, n):
                (ours, theirs), (error, other) = ([d[e] for e in ENGINES] for d in (r.seconds, r.errors))
                times = f"{ours * 1e3:.3g} | {theirs * 1e3:.3g} | {theirs / ours:.2f}"
                lines.append(f"| {r.format} | {r.rows} | {times} | {error:.1e} | {other:.1e} |")
    return "\n".join([*lines, *networks_of_page(record)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="write the page from the record, measure nothing")
    parser.add_argument("--only", default="", help="formats whose name contains this text; nothing is recorded")
    parser.add_argument("--rows", type=int, action="append", help="this number of rows only; nothing is recorded")
    parser.add_argument("--rounds", type=int, default=6, help="blocks of each engine")
    parser.add_argument("--networks", action="store_true", help="measure the networks alone")
    asked = parser.parse_args()
    here = describe() | {"load": f"{os.getloadavg()[2]:.0f}"}
    if asked.networks:
        record = msgspec.json.decode(RECORD.read_bytes(), type=Record)
        record.networks, record.networks_machine = [measure_network(n, asked.rounds) for n in NETWORKS], here
        RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    elif not asked.report:
        rows = []
        for k, n in SIZES:
            for name in FORMATS:
                for count in asked.rows or ROWS:
                    if asked.only in name:
                        rows.append(measure(name, count, k, n, asked.rounds))
                        print(msgspec.json.encode(rows[-1]).decode(), flush=True)
        if asked.only or asked.rows:
            return
        networks = [measure_network(n, asked.rounds) for n in NETWORKS]
        record = Record(here, rows, networks, here)
        RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    PAGE.write_text(page(msgspec.json.decode(RECORD.read_bytes(), type=Record)))


if __name__ == "__main__":
    main()
