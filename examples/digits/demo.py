"""Compile the digits network for this CPU, classify held-out images, and show what the compiler did."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import tatami as tt
from tatami.report.explain import kernel_origins
from tatami.report.playback import compare_outputs
from tatami.storage.code_folder import print_program
from tatami.storage.dump import write_dump, write_pieces

HERE = Path(__file__).parent
OUT = Path("dumps/digits")
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    held_out = np.load(HERE / "held_out.npz")
    images, labels = held_out["image"], held_out["label"]

    start = time.perf_counter()
    f = tt.compile(HERE / "digits.onnx")
    compiled_in = time.perf_counter() - start
    probability = f(image=images)["probability"]
    accuracy = float((probability.argmax(1) == labels).mean())
    console.print(
        f"accuracy: {accuracy:.2f}   ({int((probability.argmax(1) == labels).sum())} of {len(labels)} held-out images)"
    )

    compilation = f.compilation
    reference = compilation.reference_run({"image": images}, {})
    agreements = compare_outputs(f.signature, {"probability": probability}, reference)
    for a in agreements:
        verdict = "agrees with" if a.difference is None else "DIFFERS from"
        console.print(
            f"{a.output} {verdict} the float64 reference: relative error {a.error:.1e}, largest difference {a.worst:.1e}"
        )

    show_stages(compilation, compiled_in)
    show_kernels(compilation)
    show_memory(f)
    show_speed(f, compilation, images)

    values = compilation.values()
    written = write_dump(OUT, values, values, compilation.target)
    written += [write_pieces(OUT / file, data) for file, data in print_program(compilation, {}).files()]
    console.print(f"\nall dumps and the generated C: {OUT}/ ({len(written)} files)")
    if accuracy < 0.97 or any(a.difference for a in agreements):
        sys.exit(1)


def table(*columns: str) -> Table:
    out = Table(box=None, pad_edge=False, show_edge=False)
    for c in columns:
        out.add_column(c, justify="right" if c.endswith(("ms", "bytes")) else "left")
    return out


def show_stages(compilation: object, total: float) -> None:
    console.print("\n[bold]stages[/bold]")
    t = table("stage", "time, ms")
    for stage, seconds in compilation.observer.seconds.items():
        t.add_row(stage, f"{seconds * 1e3:.1f}")
    t.add_row("all, with the C compiler", f"{total * 1e3:.0f}")
    console.print(t)


def show_kernels(compilation: object) -> None:
    console.print("\n[bold]kernels and the ONNX nodes fused into each[/bold]")
    t = table("kernel", "kind", "ONNX nodes")
    for kernel in kernel_origins(compilation):
        t.add_row(kernel.name, kernel.kind, ", ".join(kernel.sources))
    console.print(t)


def show_memory(f: object) -> None:
    console.print("\n[bold]memory for this batch[/bold]")
    memory = f.memory
    t = table("what", "bytes")
    t.add_row("constants", f"{memory['constants']:,}")
    t.add_row("intermediates, each in its own buffer", f"{memory['arena_without_reuse']:,}")
    t.add_row("intermediates in the arena, reused", f"{memory['arena']:,}")
    for buffer in memory["buffers"]:
        t.add_row(
            f"  {buffer['id']}: written by step {buffer['first_use']}, last read by step {buffer['last_use']}",
            f"{buffer['bytes']:,}",
        )
    console.print(t)


def show_speed(f: object, compilation: object, images: np.ndarray) -> None:
    call = f.bind(image=images)
    call()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    ours = sorted(times)[len(times) // 2]
    start = time.perf_counter()
    compilation.reference_run({"image": images}, {}, mode="declared")
    numpy_time = time.perf_counter() - start
    count = len(images)
    console.print(
        f"\ntime per image: {ours / count * 1e6:.1f} µs (median of 20 calls with {count} images); "
        f"numpy reference {numpy_time / count * 1e6:.0f} µs, {numpy_time / ours:.0f} times as long"
    )


if __name__ == "__main__":
    main()
