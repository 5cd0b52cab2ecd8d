"""Every kernel that the planner can choose for the shapes of the benchmark through NVRTC and ptxas, for both architectures.

    python -m tests.cu.every_choice.every_plan --jobs 2 --record tests/cu/every_choice/every_plan.json

A plan of a Region is a point; the record has its kernels by the hash of their text, and of each kernel the registers,
shared memory, spilled bytes and the instructions that matter. A later call with the same record compiles those whose
text it lacks. It fails where a kernel spills, is warned of, does not compile, or lacks the instructions that its plan
stands for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import Case, timed
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.cu.ir import Source, Unit
from tatami.decisions import Decisions
from tatami.gpu.ir import Kernel
from tatami.plan.choose_gpu import measurable
from tatami.plan.ir import SchedulePlan, Sm80Mma, Sm80Pair, Sm90Mma, Sm90Pair
from tatami.plan.key import plan_key
from tatami.region.ir import Region
from tatami.runtime.building.nvrtc import nvrtc_version
from tests.cu.machine_code import compiled, machine_code, without_modifiers, wrong_counts

TARGETS = ("sm80", "sm90")
GROUPS = ("gemm", "conv", "attention", "gradient", "memory")
TOLD = ("HMMA", "HGMMA", "FFMA", "LDSM", "LDGSTS", "UTMALDG", "UTMASTG", "LDS", "STS", "LDL", "STL")
WIDE = ("LDG.E.128", "STG.E.128")


@dataclass(frozen=True)
class Made:
    """A kernel of a point. `kernel`: of a product, whose instructions are counted against `plan`."""

    unit: Unit
    headers: dict[str, str]
    plan: SchedulePlan
    kernel: Kernel | None
    shared: int

    @property
    def name(self) -> str:
        text = self.unit.text.replace(f"{self.unit.symbol}(", "kernel(")
        return f"{self.unit.arch} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def points(case: Case, target: str) -> Iterator[tuple[str, Decisions]]:
    """Name of each plan of each Region of a case, and the decision that takes it."""
    compilation = prepare(case.make(), target=target)
    lying = {item.name: item for item in compilation.stages["realised"].main.body}
    for number, region in enumerate(compilation.stages["region"].main.body):
        if not isinstance(region, Region):
            continue
        key = plan_key(region, compilation.target)
        for offer in measurable(lying[region.name], compilation.target, {}):
            yield f"{target} | {case.name} | {number} {offer.line}", Decisions(plans={key: offer.plan})


def kernels_of(case: Case, target: str, decisions: Decisions) -> list[Made]:
    """Kernels of the decided Region; all kernels of a case with one Region."""
    stages = prepare(case.make(), target=target, decisions=decisions).stages
    (plan,) = decisions.plans.values()
    source: Source = stages["cu"].main
    kernels = {k.face.symbol: k for k in stages["gpu"].main.kernels}
    shared = {b.kernel: b.shared_bytes for b in stages["gpu"].main.bindings}
    out = []
    for unit in source.units:
        k = kernels[unit.symbol]
        product = k if isinstance(k, Kernel) else None
        out.append(Made(unit, dict(source.headers), plan, product, shared[unit.symbol]))
    return out


def examined(made: Made) -> tuple[dict[str, Any], str]:
    """(Entry of the record, fault or "") of a kernel."""
    try:
        cubin = compiled(made.unit, made.headers)
    except TatamiError as error:
        return {}, str(error)
    with tempfile.TemporaryDirectory() as folder:
        code = machine_code(cubin, Path(folder))
    ops = without_modifiers(code)
    told = {op: ops[op] for op in TOLD if ops[op]}
    told |= {op: n for op in WIDE if (n := sum(m for o, m in code.items() if o.startswith(op)))}
    entry = {"registers": cubin.registers, "shared": made.shared, "spilled": cubin.spill_bytes, "code": told}
    faults = [*cubin.warnings]
    if cubin.spill_bytes or ops["LDL"] or ops["STL"]:
        faults.append(f"spills {cubin.spill_bytes} bytes, {ops['LDL']} LDL, {ops['STL']} STL")
    if made.kernel is not None and isinstance(made.plan, Sm80Mma | Sm90Mma | Sm80Pair | Sm90Pair):
        faults += wrong_counts(made.kernel, made.plan, code)
    return entry, "; ".join(faults)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--group", choices=GROUPS, action="append")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    record = Record(options.record)
    todo: dict[str, Made] = {}
    seen: dict[str, list[str]] = {}
    for target in options.target or TARGETS:
        for group in options.group or GROUPS:
            for case in timed(group):
                for name, decisions in points(case, target):
                    made = {m.name: m for m in kernels_of(case, target, decisions)}
                    seen[name] = list(made)
                    todo |= {n: m for n, m in made.items() if n not in record.kernels}
    failures = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(examined, m): n for n, m in todo.items()}
        for future in as_completed(waiting):
            name = waiting[future]
            entry, fault = future.result()
            if fault:
                failures += 1
                where = next(p for p, names in seen.items() if name in names)
                print(f"{name} of {where}: {fault}", flush=True)
                continue
            record.kernels[name] = entry
            record.points |= {p: names for p, names in seen.items() if all(n in record.kernels for n in names)}
            record.write()
    whole = not options.target and not options.group
    record.points = {p: n for p, n in (seen if whole else {**record.points, **seen}).items() if record.has(n)}
    record.write()
    print(f"{len(seen)} plans, {len(todo)} kernels compiled now, {failures} at fault; {time.monotonic() - begin:.0f} s")
    return 1 if failures else 0


class Record:
    """The record, a line per entry. `points`: kernels of each plan whose kernels all passed. `kernels`: figures of each kernel."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        known = json.loads(path.read_text()) if path is not None and path.exists() else {}
        if known and known["nvrtc"] != nvrtc_version():
            raise SystemExit(f"{path} is of NVRTC {known['nvrtc']}, installed is {nvrtc_version()}: record to another file")
        self.points: dict[str, list[str]] = known.get("points", {})
        self.kernels: dict[str, dict[str, Any]] = known.get("kernels", {})

    def has(self, names: list[str]) -> bool:
        return all(n in self.kernels for n in names)

    def write(self) -> None:
        if self.path is None:
            return
        used = {n for names in self.points.values() for n in names}
        kernels = {n: k for n, k in self.kernels.items() if n in used}
        parts = (f'"nvrtc": "{nvrtc_version()}"', f'"points": {table(self.points)}', f'"kernels": {table(kernels)}')
        self.path.write_text("{" + ",\n".join(parts) + "}\n")


def table(entries: dict[str, Any]) -> str:
    lines = ",\n".join(f" {json.dumps(n)}: {json.dumps(entries[n])}" for n in sorted(entries))
    return f"{{\n{lines}\n}}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
