"""Libraries of small models, built with their caller (driver.c) under sanitizers or as they ship, and run in processes that
have no environment."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tatami.api import prepare
from tatami.compilation import Compilation
from tatami.core.tensor import numpy_dtype
from tatami.deploy.library import make_library, public_header
from tatami.frontend.graph import Graph
from tatami.runtime.building.compiler import find_compiler

DRIVER = Path(__file__).with_name("driver.c")
ADDRESSES = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("-fsanitize=thread",)


@dataclass(frozen=True)
class Built:
    """An executable of a model and its caller."""

    folder: Path
    compilation: Compilation

    def run(
        self, inputs: Mapping[str, np.ndarray], threads: int = 1, repeats: int = 1, callers: int = 1
    ) -> dict[str, np.ndarray]:
        """Output -> array. Raises Refused."""
        done = self.finished(inputs, threads, repeats, callers)
        if done.returncode:
            raise Refused(done.stderr.decode())
        out: dict[str, np.ndarray] = {}
        at = 0
        for port in self.compilation.stages["execution"].main.signature.outputs:
            rank, dtype = len(port.shape), numpy_dtype(port.dtype)
            shape = np.frombuffer(done.stdout, np.int64, rank, at)
            at += 8 * rank
            count = int(np.prod(shape, dtype=np.int64))
            out[port.tensor] = np.frombuffer(done.stdout, dtype, count, at).reshape(shape)
            at += count * dtype.itemsize
        assert at == len(done.stdout)
        return out

    def finished(
        self, inputs: Mapping[str, np.ndarray], threads: int = 1, repeats: int = 1, callers: int = 1
    ) -> subprocess.CompletedProcess[bytes]:
        """The ended process."""
        plan = self.compilation.stages["execution"].main
        kinds = {b.id: b.kind for b in plan.buffers}
        names = [p.tensor for id, p in zip(plan.input_buffers, plan.signature.inputs) if kinds[id] == "input"]
        data = b"".join(np.asarray(inputs[n].shape, np.int64).tobytes() + inputs[n].tobytes() for n in names)
        command = ["./driver", "constants.bin", str(threads), str(repeats), str(callers)]
        return subprocess.run(command, cwd=self.folder, input=data, capture_output=True, env={}, timeout=300, check=False)


class Refused(Exception):
    """The text of a refusal."""


def build(folder: Path, model: Graph | str, sanitizer: Sequence[str] = ADDRESSES, **options: object) -> Built:
    """The model for a generic CPU, with sanitizers in every file."""
    compilation = prepare(model, target="cpu:generic", **options)  # type: ignore[arg-type]
    library = make_library(compilation)
    texts = {f"u{k}.c": u.text for k, u in enumerate((*library.units, *library.runtime))}
    texts |= {**library.headers, "model.h": public_header(), "driver.c": DRIVER.read_text()}
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "constants.bin").write_bytes(b"".join(library.constants))
    sources = sorted(n for n in texts if n.endswith(".c"))
    flags = ("-std=gnu17", "-g", "-O1", "-w", "-ffp-contract=off", *sanitizer)
    subprocess.run([*find_compiler().argv, *flags, *sources, "-lm", "-pthread", "-o", "driver"], cwd=folder, check=True)
    return Built(folder, compilation)
