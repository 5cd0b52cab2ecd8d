"""Language models with random weights: a token after a context, and a prompt, next to llama.cpp if the package `llama_cpp` is there.

python -m benchmarks.narrow.decoders                        Q8_0 and Q4_0, 24 layers, contexts of 128 and 1024, a prompt of 512
python -m benchmarks.narrow.decoders --layers 8 Q8_0        fewer layers, one format

One thread each, in processes of their own that take turns; milliseconds of processor time, the least of the rounds. Tatami runs
twice: exact, and with precision="int8", which rounds what weights are multiplied with as llama.cpp does.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.cpu.environment import environment
from benchmarks.narrow.random_decoder import written

ROOT = Path(__file__).parents[2]
ENGINES = ("exact", "int8", "llama.cpp")
ROOM = 8
"""Places of a cache after the context."""


def step_of_tatami(model: str, precision: str, rows: int, keys: int) -> Callable[[], object]:
    """A step of `rows` tokens, the last of `keys`."""
    import tatami as tt

    f = tt.compile(model, threads=1, precision=precision)
    arrays: dict[str, np.ndarray] = {}
    for port in f.signature.inputs:
        if port.tensor.startswith(("keys.", "values.")):
            heads, head = (n.as_int() or 0 for n in (port.shape[1], port.shape[3]))
            arrays[port.tensor] = np.zeros((1, heads, keys + ROOM, head), np.float32)
    arrays |= {
        "tokens": np.full((1, rows), 5),
        "positions": np.arange(keys - rows, keys)[None],
        "span": np.zeros(keys, np.uint8),
    }
    return f.bind(**arrays)


def step_of_llama(model: str, rows: int, keys: int) -> Callable[[], object]:
    """The same step of llama.cpp, with its own cache of 16 bits."""
    held = importlib.import_module("llama_cpp").Llama(
        model, n_ctx=keys + ROOM, n_batch=512, n_ubatch=512, n_threads=1, n_threads_batch=1, verbose=False
    )
    if keys > rows:
        held.eval([5] * (keys - rows))

    def step() -> None:
        held.n_tokens = keys - rows
        held.eval([5] * rows)

    return step


def work(engine: str, model: str, rows: int, keys: int) -> None:
    """Answer each line on stdin with the seconds of processor time of a step."""
    step = (
        step_of_llama(model, rows, keys)
        if engine == "llama.cpp"
        else step_of_tatami(model, {"exact": "fp32"}.get(engine, engine), rows, keys)
    )
    step()
    print("ready", flush=True)
    for _ in sys.stdin:
        begun = time.process_time()
        step()
        print(time.process_time() - begun, flush=True)


def measure(model: Path, rows: int, keys: int, rounds: int) -> dict[str, float]:
    """Least seconds of a step for each engine that is there."""
    engines = ENGINES if importlib.util.find_spec("llama_cpp") else ENGINES[:2]
    workers: dict[str, subprocess.Popen[str]] = {}
    for engine in engines:
        command = [sys.executable, "-m", "benchmarks.narrow.decoders", "--work", engine, str(model), str(rows), str(keys)]
        workers[engine] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(1)
        )
    for engine, w in workers.items():
        assert w.stdout is not None
        if w.stdout.readline().strip() != "ready":
            raise SystemExit(f"{engine} did not get ready for {model.name}")
    best = dict.fromkeys(engines, float("inf"))
    for _ in range(rounds):
        for engine, w in workers.items():
            assert w.stdin is not None and w.stdout is not None
            w.stdin.write("\n")
            w.stdin.flush()
            best[engine] = min(best[engine], float(w.stdout.readline()))
    for w in workers.values():
        assert w.stdin is not None
        w.stdin.close()
        w.wait()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", default=["Q8_0", "Q4_0"])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--work", nargs=4, metavar=("ENGINE", "MODEL", "ROWS", "KEYS"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        engine, model, rows, keys = asked.work
        work(engine, model, int(rows), int(keys))
        return
    with tempfile.TemporaryDirectory() as folder:
        for form in asked.formats:
            path = written(Path(folder) / f"{form}.gguf", form, asked.layers)
            for rows, keys in ((1, 128), (1, 1024), (512, 512)):
                rounds = asked.rounds if rows == 1 else max(3, asked.rounds // 5)
                found = measure(path, rows, keys, rounds)
                told = ", ".join(f"{e} {s * 1e3:.2f} ms ({rows / s:.1f} tokens/s)" for e, s in found.items())
                print(f"{form}, {rows} of {keys}: {told}", flush=True)


if __name__ == "__main__":
    main()
