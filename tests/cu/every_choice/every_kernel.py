"""Every kernel of the small graphs of the operations through NVRTC and ptxas, for one architecture or both.

    python -m tests.cu.every_choice.every_kernel --record tests/cu/every_choice/every_kernel.json --jobs 2

A kernel is named by the hash of its text. The record has registers and spilled bytes of each that was compiled; a later
call with the same record compiles the others. It fails where a kernel spills, is warned of, or does not compile.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tatami.core.diagnostic import TatamiError
from tatami.core.target import PRESETS
from tatami.cu.ir import Source
from tatami.decisions import Decisions
from tatami.pipeline import compile_stages
from tatami.runtime.building.nvrtc import compile_cubin
from tests.emulated.every_case import NO_CUDA_BODY
from tests.frontend.cases import CASES
from tests.frontend.test_meaning import built


def kernels_of(case: str, target: str) -> dict[str, tuple[str, str, Mapping[str, str]]]:
    """Name -> text, architecture and headers of every kernel that a case runs."""
    module = built(case)[0]
    stages = compile_stages({"frontend": module}, PRESETS[target], Decisions(), lambda name, make: make())
    source: Source = stages["cu"].main
    out: dict[str, tuple[str, str, Mapping[str, str]]] = {}
    for unit in source.units:
        text = unit.text.replace(f" {unit.symbol}(", " kernel(").replace(f"\n{unit.symbol}(", "\nkernel(")
        out[f"{unit.arch} {hashlib.sha256(text.encode()).hexdigest()[:16]}"] = (unit.text, unit.arch, source.headers)
    return out


def compiled(text: str, arch: str, headers: Mapping[str, str]) -> tuple[int, int, str]:
    """Registers, spilled bytes, and what is wrong ("": nothing)."""
    try:
        cubin = compile_cubin(text, arch, headers)
    except TatamiError as error:
        return 0, 0, str(error)
    return cubin.registers, cubin.spill_bytes, "; ".join(cubin.warnings) or ("spills" if cubin.spill_bytes else "")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=("sm80", "sm90"), action="append")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    record: dict[str, list[int]] = {}
    if options.record is not None and options.record.exists():
        record = json.loads(options.record.read_text())
    todo: dict[str, tuple[str, str, Mapping[str, str]]] = {}
    for target in options.target or ("sm80", "sm90"):
        for case in options.names or [n for n in CASES if n not in NO_CUDA_BODY]:
            todo.update(kernels_of(case, target))
    names = set(todo)
    if not options.names and not options.target:
        record = {n: r for n, r in record.items() if n in names}
    left = sorted(names - record.keys())
    failures = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(compiled, *todo[n]): n for n in left}
        for future in as_completed(waiting):
            name = waiting[future]
            registers, spilled, fault = future.result()
            if fault:
                failures += 1
                print(f"{name}: {fault}", flush=True)
                continue
            record[name] = [registers, spilled]
            if options.record is not None:
                lines = ",\n".join(f" {json.dumps(n)}: {json.dumps(record[n])}" for n in sorted(record))
                options.record.write_text(f"{{\n{lines}\n}}\n")
    print(f"{len(names)} kernels, {len(left)} compiled now, {failures} at fault; {time.monotonic() - begin:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
