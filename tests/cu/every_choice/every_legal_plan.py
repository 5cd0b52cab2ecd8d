"""Every plan of the SM90 templates through NVRTC and ptxas, as far as time allows: the space of `legal_space.py` in its order.

    python -m tests.cu.every_choice.every_legal_plan --record tests/cu/every_choice/legal_plans.jsonl --jobs 2 --seconds 3600

The record has a line for each point that is a plan: its draw, its kernels by the hash of their text, and of each the registers,
shared memory and instructions that matter. A line is appended when the point's kernels are compiled; a later call with the same
record goes on behind it, looks again at points at fault, and drops lines of texts that are not made. It fails where a kernel
spills, is warned of, does not compile, or lacks the instructions that its plan stands for.

    python -m tests.cu.every_choice.every_legal_plan --fields

says how the space factors: of plans that differ in one field, how many have another text.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext, suppress
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tatami.core.diagnostic import TatamiError
from tatami.runtime.building.nvrtc import nvrtc_version
from tests.cu.every_choice.every_plan import Made, examined
from tests.cu.every_choice.legal_space import SPACE, Row, Template, is_refused_alone, kernels_of, legal_points, size_of

Key: TypeAlias = tuple[Template, int]
"""Template and draw."""


Examine: TypeAlias = Callable[[list[Made]], Iterable[tuple[dict[str, Any], str]]]
"""A function from kernels to (entry of the record, fault or "") for each."""


class Line(NamedTuple):
    """A line of the record, for one point. `kernels`: registers, shared memory in bytes and instructions of each, by the hash of its text."""

    template: Template
    draw: int
    kernels: dict[str, str]
    fault: str = ""

    @property
    def key(self) -> Key:
        return self.template, self.draw

    @property
    def text(self) -> str:
        return json.dumps(self if self.fault else self[:3], separators=(",", ":"))


class Record:
    """Lines of JSON: the compiler, then one for each point, of which the last counts."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: dict[Key, Line] = {}
        if path is not None and path.exists():
            head, *lines = path.read_text().splitlines()
            if (of := json.loads(head)["nvrtc"]) != nvrtc_version():
                raise SystemExit(f"{path} is of NVRTC {of}, installed is {nvrtc_version()}: record to another file")
            for text in lines:
                with suppress(json.JSONDecodeError):  # a call was ended while it wrote
                    line = Line(*json.loads(text))
                    self.lines[line.key] = line

    def has(self, key: Key, names: list[str]) -> bool:
        line = self.lines.get(key)
        return line is not None and not line.fault and list(line.kernels) == names

    def add(self, line: Line) -> None:
        self.lines[line.key] = line
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(f"{line.text}\n")

    def write(self, without: Iterable[Key] = ()) -> None:
        """The file as a whole, one line to a point, in the order of the draws."""
        for key in without:
            del self.lines[key]
        if self.path is None:
            return
        lines = [json.dumps({"nvrtc": nvrtc_version()}), *(self.lines[k].text for k in sorted(self.lines))]
        beside = self.path.with_suffix(".new")
        beside.write_text("".join(f"{line}\n" for line in lines))
        os.replace(beside, self.path)


def name_of(made: Made) -> str:
    """All kernels are of one architecture."""
    return made.name.split()[1]


def figures_of(entry: dict[str, Any]) -> str:
    if not entry:
        return ""
    code = "".join(f" {op} {count}" for op, count in entry["code"].items())
    return f"{entry['registers']} registers {entry['shared']} B{code}"


class Walk:
    """A walk through the plans of one template in their order. `seen`: plans that were met."""

    def __init__(self, template: Template, points: int | None = None) -> None:
        self.template = template
        self.draws = 0
        self.seen: set[Key] = set()
        self.points = islice(legal_points(template), points)

    def __iter__(self) -> Iterator[tuple[Key, list[Made]]]:
        for draw, _, made in self.points:
            self.draws = draw + 1
            self.seen.add((self.template, draw))
            yield (self.template, draw), made

    def stale(self, record: Record) -> list[Key]:
        """Lines of points whose plans the planner refuses."""
        return [k for k in record.lines if k[0] == self.template and k[1] < self.draws and k not in self.seen]

    def told(self, record: Record) -> str:
        """How far the record is, and how many plans there are, by the share of the draws that were some."""
        lines = [line for key, line in record.lines.items() if key in self.seen]
        kernels = {name for line in lines for name in line.kernels}
        count, share = size_of(self.template), len(self.seen) / max(1, self.draws)
        fault = sum(bool(line.fault) for line in lines)
        return (
            f"{self.template}: {len(lines)} of about {count * share:.2g} plans ({100 * share:.2g} % of {count:.3g} points), "
            f"{len(kernels)} kernels, {fault} at fault"
        )


def turns(walks: list[Walk]) -> Iterator[tuple[Key, list[Made]]]:
    """A plan of each template in turn."""
    open_ = [iter(w) for w in walks]
    while open_:
        for one in list(open_):
            point = next(one, None)
            if point is None:
                open_.remove(one)
            else:
                yield point


def compile_points(points: Iterator[tuple[Key, list[Made]]], record: Record, examine: Examine, at_once: int) -> int:
    """Compile the points that the record lacks, at least `at_once` kernels at a time. Returns the number of kernels compiled."""
    known = {name: figures for line in record.lines.values() if not line.fault for name, figures in line.kernels.items()}
    waiting: dict[Key, list[Made]] = {}
    new: dict[str, Made] = {}
    compiled = 0

    def finish() -> None:
        faults: dict[str, str] = {}
        for name, (entry, fault) in zip(new, examine(list(new.values())), strict=True):
            known[name] = figures_of(entry)
            faults |= {name: fault} if fault else {}
        for (template, draw), made in waiting.items():
            names = list(map(name_of, made))
            line = Line(
                template, draw, {n: known[n] for n in names}, "; ".join(f"{n}: {faults[n]}" for n in names if n in faults)
            )
            record.add(line)
            if line.fault:
                print(f"{template} {draw}: {line.fault}", flush=True)
        for name in faults:
            del known[name]
        waiting.clear()
        new.clear()

    for key, made in points:
        if record.has(key, list(map(name_of, made))):
            continue
        waiting[key] = made
        lacking = {name_of(m): m for m in made if name_of(m) not in {**known, **new}}
        new |= lacking
        compiled += len(lacking)
        if len(new) >= at_once:
            finish()
    finish()
    return compiled


def until(points: Iterator[tuple[Key, list[Made]]], end: float) -> Iterator[tuple[Key, list[Made]]]:
    for point in points:
        yield point
        if time.monotonic() > end:
            return


# -- how the space factors ---------------------------------------------------------------------------


def other_texts(template: Template, points: int) -> dict[str, tuple[int, int]]:
    """Field → (plans that differ from one of the first `points` plans in that field alone, how many of these have another text)."""
    rng = random.Random(template)
    same: Counter[str] = Counter()
    other: Counter[str] = Counter()
    for _, row, made in islice(legal_points(template), points):
        names = list(map(name_of, made))
        for field, values in SPACE[template].items():
            beside: Row = row | {field: rng.choice([v for v in values if v != row[field]])}
            if is_refused_alone(template, beside):
                continue
            try:
                found = list(map(name_of, kernels_of(template, beside)))
            except TatamiError:
                continue
            (same if found == names else other)[field] += 1
    return {f: (same[f] + other[f], other[f]) for f in SPACE[template]}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--template", choices=list(SPACE), action="append")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--points", type=int, help="of each template")
    parser.add_argument(
        "--fields", action="store_true", help="say which fields change the text of a kernel, and compile nothing"
    )
    options = parser.parse_args(arguments)
    templates: list[Template] = options.template or list(SPACE)
    begin = time.monotonic()
    if options.fields:
        for t in templates:
            for field, (plans, other) in other_texts(t, options.points or 60).items():
                print(f"{t} {field}: {len(SPACE[t][field])} values, {other} of {plans} plans beside have another text")
        return 0
    record = Record(options.record)
    record.write()  # without what a call that was ended has left
    walks = [Walk(t, options.points) for t in templates]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) if options.jobs > 1 else nullcontext() as pool:

        def examine(some: list[Made]) -> Iterable[tuple[dict[str, Any], str]]:
            return map(examined, some) if pool is None else pool.map(examined, some)

        compiled = compile_points(
            until(turns(walks), begin + options.seconds), record, examine, 8 * options.jobs if pool else 1
        )
    stale = [key for w in walks for key in w.stale(record)]
    record.write(without=stale)
    for w in walks:
        print(w.told(record))
    faults = sum(bool(line.fault) for line in record.lines.values())
    print(
        f"{compiled} kernels compiled now, {len(stale)} lines dropped, {faults} plans at fault; {time.monotonic() - begin:.0f} s"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
