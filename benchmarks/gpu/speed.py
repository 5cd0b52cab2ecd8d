"""Contestants in one process, taking turns: a graph of calls over rotated inputs, timed by events; medians count.

Inputs are random normal (zeros run faster) and several sets of them, together larger than the L2 cache, so that no
call finds the last one's data there. Every contestant's calls are captured into a graph where PyTorch is at hand, so
that no one's launches are counted; without it only ours run, call by call.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import tatami as tt
from benchmarks.gpu.cases import Case
from tatami.core.algebra.visit import evaluate
from tatami.core.tensor import numpy_dtype
from tatami.decisions import Decisions
from tatami.runtime.cuda.device import split_name
from tatami.runtime.cuda.device_array import Block, DeviceArray, empty, upload

ROTATED_BYTES = 192 << 20
"""Minimum bytes of inputs and outputs that are used before a set is used again, so that no cache holds it."""
CALLS = 8
ROUNDS = 15
OURS = "Tatami"
Call = Callable[[], object]


def load_torch() -> Any:
    """PyTorch where it sees a GPU, else None."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


class Contest:
    """One case: Tatami and its peers."""

    def __init__(self, target: str, case: Case, decisions: Decisions | None = None) -> None:
        self.case = case
        self.target = target
        self.function = tt.compile(case.make(), target=target, decisions=decisions)
        self.rng = np.random.default_rng(7)
        self.shapes = [([int(evaluate(s, {})) for s in p.shape], p.dtype) for p in self.function.arguments]
        self.results = [([int(evaluate(s, {})) for s in p.shape], p.dtype) for p in self.function.signature.outputs]

    def measure(self, peers: bool = True) -> dict[str, Any]:
        if self.target.startswith("emulated"):
            return self._emulated()
        torch = load_torch()
        sets = max(2, min(16, -(-ROTATED_BYTES // int(self.case.bytes))))
        if torch is None:
            return self._row({OURS: self._alone(sets)}, {})
        with torch.no_grad():
            return self._contest(torch, sets, peers)

    # -- with PyTorch ----------------------------------------------------------------------------

    def _contest(self, torch: Any, sets: int, with_peers: bool) -> dict[str, Any]:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        device = torch.device("cuda", self.function.program.device.ordinal)
        dtypes = {tt.fp32: torch.float32, tt.fp16: torch.float16, tt.bf16: torch.bfloat16}
        inputs = [[torch.randn(s, device=device, dtype=dtypes[d]) for s, d in self.shapes] for _ in range(sets)]
        calls: dict[str, list[Call]] = {OURS: [self._call(x) for x in inputs]}
        remarks: dict[str, str] = {}
        wanted: Any = None
        for name, peer in self.case.peers.items() if with_peers else ():
            made: list[Call] = [partial(peer, torch, *x) for x in inputs]
            try:
                for _ in range(3):
                    found = made[0]()
                torch.cuda.synchronize()
                wanted = found if wanted is None else wanted
                if (apart := _apart(torch, found, wanted)) > self.case.tolerance:
                    raise ValueError(f"its result differs from the first peer's by {apart:.3g}")
                calls[name] = made
            except Exception as refused:
                remarks[name] = f"{type(refused).__name__}: {refused}"[:200]
        (result,) = self.function({p.tensor: x for p, x in zip(self.function.arguments, inputs[0])}).values()
        error = None
        if wanted is not None:
            error = _apart(torch, result, wanted)
        graphs: dict[str, Call] = {}
        for name, some in calls.items():
            graphs[name] = captured(torch, [some[k % sets] for k in range(max(CALLS, sets))], remarks, name)
        count = max(CALLS, sets)
        samples: dict[str, list[float]] = {name: [] for name in graphs}
        for _ in range(3):
            for call in graphs.values():
                call()
        for _ in range(ROUNDS):
            for name, call in graphs.items():
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                call()
                end.record()
                end.synchronize()
                samples[name].append(begin.elapsed_time(end) * 1e-3 / count)
        return self._row(samples, remarks, error)

    def _call(self, tensors: Sequence[Any]) -> Call:
        """One call on tensors, launch by launch, so that whoever captures the stream has its kernels."""
        f = self.function
        program, device = f.program, f.program.device
        arrays = [f.arrays.take(t, p).array for t, p in zip(tensors, f.arguments)]
        made = [empty(device, s, d) for s, d in self.results]
        at = program.sized("main", {})
        arena = Block(device, at.steps.arena_bytes, device.current_stream())
        bases = (arena.address, *(a.address for a in (*arrays, *made)), *program.constant_addresses())

        def call(keep: object = (arrays, made, arena, tensors)) -> None:
            with device:
                program.enqueue(at.steps, bases, device.current_stream())

        call()
        return call

    # -- without ---------------------------------------------------------------------------------

    def _alone(self, sets: int) -> list[float]:
        """Ours through its own graph, timed by the driver's events."""
        device = self.function.program.device
        driver = device.driver
        calls: list[Any] = []
        for _ in range(sets):
            given: dict[str, DeviceArray] = {}
            for p, (shape, d) in zip(self.function.arguments, self.shapes):
                given[p.tensor] = upload(device, self.rng.standard_normal(shape).astype(numpy_dtype(d)), d)
            calls.append(self.function.bind(given))
        stream = device.stream(device.current_stream())
        samples = []
        with device:
            begin, end = driver.call("cuEventCreate", 0), driver.call("cuEventCreate", 0)
        for round in range(ROUNDS + 3):
            with device:
                driver.call("cuEventRecord", begin, stream)
            for k in range(CALLS):
                calls[k % sets]()
            with device:
                driver.call("cuEventRecord", end, stream)
                driver.call("cuEventSynchronize", end)
                ms = float(driver.call("cuEventElapsedTime", begin, end))
            if round >= 3:
                samples.append(ms * 1e-3 / CALLS)
        return samples

    def _emulated(self) -> dict[str, Any]:
        """The path of a measurement on the emulated GPU: its seconds are the emulator's, and say so."""
        given = {
            p.tensor: self.rng.standard_normal(s).astype(numpy_dtype(d))
            for p, (s, d) in zip(self.function.arguments, self.shapes)
        }
        began = time.perf_counter()
        made = self.function(given)
        row = self._row({OURS: [time.perf_counter() - began]}, {OURS: "the emulator's time"})
        return {**row, "ok": all(np.isfinite(np.asarray(v, np.float64)).all() for v in made.values())}

    def _row(self, samples: dict[str, list[float]], remarks: dict[str, str], error: float | None = None) -> dict[str, Any]:
        medians = {n: statistics.median(s) for n, s in samples.items()}
        ours = medians[OURS]
        peers = {n: m for n, m in medians.items() if n != OURS}
        best = min(peers, key=lambda n: peers[n], default="")
        row: dict[str, Any] = {
            "name": self.case.name,
            "ok": error is None or error <= self.case.tolerance,
            "error": error,
            "median": medians,
            "samples": samples,
            "tflops": self.case.operations / ours / 1e12,
            "gbytes": self.case.bytes / ours / 1e9,
            "best_peer": best,
            "ratio": peers[best] / ours if best else None,
        }
        return {**row, "remarks": remarks} if remarks else row


def _apart(torch: Any, found: Any, wanted: Any) -> float:
    """Norm of the difference over the norm of what is wanted."""
    norm = torch.linalg.vector_norm
    return float(norm(found.double() - wanted.double()) / norm(wanted.double()))


def captured(torch: Any, calls: Sequence[Call], remarks: dict[str, str], name: str) -> Call:
    """The calls as one graph; as they are where they cannot be captured."""
    try:
        graph = torch.cuda.CUDAGraph()
        kept: list[object] = []
        with torch.cuda.graph(graph):
            kept += [call() for call in calls]
        graph.replay()
        torch.cuda.synchronize()
    except Exception as error:
        remarks[name] = f"not captured: {type(error).__name__}: {error}"[:200]
        return lambda: [call() for call in calls]

    def replay(keep: object = kept) -> None:
        graph.replay()

    return replay


CEILINGS = ("copy", "cuBLAS bf16 8192")
"""Names of the rates of a machine: bytes a second of a large copy (read and written), and a large product of cuBLAS."""


def ceiling(target: str, name: str) -> dict[str, Any]:
    """One of `CEILINGS`."""
    torch = load_torch()
    if target.startswith("emulated") or torch is None:
        return {"skipped": "no PyTorch with a GPU here"}
    named = split_name(target)
    device = torch.device("cuda", named[0] if named else 0)
    if name == "copy":
        x = torch.randn(1 << 29, device=device)
        y = torch.empty_like(x)
        return {"gbytes": 2 * x.nbytes / _seconds(torch, lambda: y.copy_(x)) / 1e9}
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    return {"tflops": 2 * 8192**3 / _seconds(torch, lambda: a @ b) / 1e12}


def _seconds(torch: Any, call: Call) -> float:
    times = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times[3:])
