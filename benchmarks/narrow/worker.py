"""One engine and one model in a process: `python -m benchmarks.narrow.worker tatami|onnxruntime MODEL X`. It answers a line
on stdin with a line: `block` with the seconds of a call, `busy` with its processor time, `write FILE` with the file that has its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

BLOCK_SECONDS = 0.1
"""Seconds of a block of calls."""


def call_of(engine: str, model: str, x: np.ndarray) -> Callable[[], np.ndarray]:
    """A call of the engine, with one thread."""
    if engine == "tatami":
        import tatami as tt

        call = tt.compile(model, threads=1).bind(x=x)
        return lambda: np.asarray(next(iter(call().values())))
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: np.asarray(session.run(None, {"x": x})[0])


def main() -> None:
    engine, model, file = sys.argv[1:]
    call = call_of(engine, model, np.load(file))
    call()
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["block"]:
                call()
                count, begun = 0, time.perf_counter()
                while (passed := time.perf_counter() - begun) < BLOCK_SECONDS:
                    call()
                    count += 1
                print(passed / max(count, 1), flush=True)
            case ["busy"]:
                call()
                count, begun, busy = 0, time.perf_counter(), time.process_time()
                while time.perf_counter() - begun < BLOCK_SECONDS:
                    call()
                    count += 1
                print((time.process_time() - busy) / max(count, 1), flush=True)
            case ["write", to]:
                np.save(to, call())
                print(to, flush=True)
            case _:
                raise SystemExit(f"{line!r}: send block, busy or write FILE")


if __name__ == "__main__":
    main()
