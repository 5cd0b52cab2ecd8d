"""How long six real models take to compile, the first time and from the cache.

    python -m benchmarks.compile_time.models [--folder FOLDER] [--record] [NAME ...]

exports the models of `benchmarks/cpu/models.py` into FOLDER (what is there already is taken; default: a temporary one) and
compiles each with an empty cache and again: by `tatami compile MODEL`, and by `tt.compile(path)` in a process that has
imported Tatami. Wall time and processor time (of the C compilers too); of the second time the best of five. Python's
bytecode of all modules is there, as after an installation: each model is compiled once before that counts.
`--record` writes benchmarks/results/compile_models.json, in which models that were not measured keep their rows, and the
table docs/compile-time.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.cpu.models import SIX, model

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "compile_models.json"
AGAIN = 5
IN_PROCESS = """
import json, os, resource, sys, time
def used():
    return [time.perf_counter(), sum(sum(resource.getrusage(w)[:2]) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))]
before = used()
import tatami as tt
compile = tt.compile
imported = used()
compile(sys.argv[1])
done = used()
print(json.dumps({"import": [b - a for a, b in zip(before, imported)], "compile": [b - a for a, b in zip(imported, done)]}))
"""
Times = tuple[float, float]
"""Wall seconds, processor seconds."""


def run(command: list[str], place: str, cache: str) -> tuple[Times, str]:
    """(seconds and processor seconds of a process, the text that it prints). `place` has the caches and the bytecode."""
    before, start = _processor(), time.perf_counter()
    own = {"TATAMI_CACHE_DIR": f"{place}/{cache}", "TATAMI_PROGRAM_CACHE": "1", "PYTHONPYCACHEPREFIX": f"{place}/bytecode"}
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"} | own
    done = subprocess.run([sys.executable, *command], env=environment, check=True, capture_output=True, text=True)
    return (time.perf_counter() - start, _processor() - before), done.stdout


def _processor() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def best(times: list[Times]) -> Times:
    """The least of each, which need not be of one run."""
    return min(t[0] for t in times), min(t[1] for t in times)


def measure(path: Path) -> dict[str, Times]:
    with tempfile.TemporaryDirectory() as place:
        command, inside = ["-m", "tatami", "compile", str(path), "-o", f"{place}/out"], ["-c", IN_PROCESS, str(path)]
        for which, before in enumerate((command, inside)):
            run(before, place, f"before{which}")
        first = run(command, place, "a")[0]
        again = best([run(command, place, "a")[0] for _ in range(AGAIN)])
        called = [json.loads(run(inside, place, "b")[1]) for _ in range(1 + AGAIN)]
    return {
        "tatami compile, first": first,
        "tatami compile, from the cache": again,
        "import": best([c["import"] for c in called]),
        "tt.compile, first": tuple(called[0]["compile"]),
        "tt.compile, from the cache": best([c["compile"] for c in called[1:]]),
    }


def table(found: dict[str, dict[str, Times]]) -> str:
    columns = list(next(iter(found.values())))
    lines = [
        "# Compile time",
        "",
        "Written by `python -m benchmarks.compile_time.models --record`: six models with random weights, exported by `torch.onnx`,",
        "each with an empty cache and again, in seconds: wall time, and in parentheses processor time with that of the C",
        f"compilers; Python's bytecode is there, as after an installation. From the cache: the best of {AGAIN}. `tt.compile` is",
        "timed in a process that has imported Tatami, which is the column before it. "
        f"Cores: {os.cpu_count()}; other work per core while this was measured: {_load():.1f} (load average).",
        "Where the time of trained models goes, by stage: [compile-stages.md](compile-stages.md).",
        "",
        f"| model | {' | '.join(columns)} |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for name, times in found.items():
        lines.append(f"| {name} | {' | '.join(f'{t[0]:.2f} ({t[1]:.2f})' for t in times.values())} |")
    return "\n".join(lines) + "\n"


def _load() -> float:
    return os.getloadavg()[2] / (os.cpu_count() or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(SIX))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, Times]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        for name in options.names or SIX:
            path = folder / f"{name}.onnx"
            if not path.exists():
                case = model(name, *SIX[name])
                case.onnx(str(path))
            found[name] = measure(path)
            print(name, {n: [round(t, 3) for t in times] for n, times in found[name].items()}, flush=True)
    if options.record:
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        found = {n: t for n in SIX if (t := found.get(n, before.get(n)))}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        (ROOT / "docs" / "compile-time.md").write_text(table(found))


if __name__ == "__main__":
    main()
