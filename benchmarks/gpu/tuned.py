"""The table of tuned plans of a chip (tatami/plan/tuned_plans): products, attention and convolutions, each with its best plan.

    python -m benchmarks.gpu.tuned --chip h100 h200                by simulation of every plan of the space, through NVRTC
    python -m benchmarks.gpu.tuned --chip h200 --measured FILE     entries of a record of `make gpu` take their place

The kept plan is the best one by simulation whose kernel the compiler takes without spills or warnings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import tatami
from benchmarks.gpu.cases import Case, tuned
from benchmarks.gpu.report import fastest_plans
from tatami.api import prepare
from tatami.core.codec import to_builtins
from tatami.cu.ir import Source
from tatami.decisions import Decisions
from tatami.plan.choose_gpu import measurable, tunable
from tatami.plan.ir import Candidate, Guarded
from tatami.plan.key import plan_key
from tatami.plan.rename import kept_choices
from tatami.plan.tuned import Entry
from tatami.region.ir import Region
from tatami.region.views.kinds import contractions
from tatami.runtime.building.nvrtc import compile_cubin, nvrtc_version

CLOSE = 1.01
"""The simulation does not tell plans apart that are this close: then the one that the planner takes by itself is kept."""
FOLDER = Path(tatami.__file__).parent / "plan" / "tuned_plans"


def simulated(chip: str) -> Iterator[tuple[str, Entry]]:
    """Key and entry of each case whose Region with products the templates take."""
    for case in tuned():
        compilation = prepare(case.make(), target=chip)
        (region,) = (r for r in compilation.stages["realised"].main.body if isinstance(r, Region) and contractions(r))
        key = plan_key(region, compilation.target)
        candidates = tunable(region, compilation.target, {})
        (own, *_) = measurable(region, compilation.target, {})
        if candidates and own.estimate["total"] <= CLOSE * candidates[0].estimate["total"]:
            candidates = (own, *candidates)
        best = next((o for o in candidates if is_clean(case, chip, key, o)), None)
        if best is not None:
            record = f"simulated (decision 0016); compiled by NVRTC {nvrtc_version()} without spills or warnings"
            document = to_builtins(kept_choices((Guarded((), best.plan),), region))
            yield key, Entry(case.name, "simulation", best.estimate["total"], len(candidates), record, document)


def is_clean(case: Case, chip: str, key: str, candidate: Candidate) -> bool:
    stages = prepare(case.make(), target=chip, decisions=Decisions(plans={key: candidate.plan})).stages
    source: Source = stages["cu"].main
    return all(is_clean_text(u.text, u.arch, tuple(source.headers.items())) for u in source.units)


@cache
def is_clean_text(text: str, arch: str, headers: tuple[tuple[str, str], ...]) -> bool:
    cubin = compile_cubin(text, arch, dict(headers))
    return not cubin.warnings and not cubin.spill_bytes


def measured(record: Mapping[str, Any], name: str) -> dict[str, Entry]:
    """The fastest plan of each key in a record of `make gpu`, whose file is `name`."""
    return {
        key: Entry(row["name"], "measurement", row["median"]["Tatami"], count, name, row["document"])
        for key, (row, count) in fastest_plans(record).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chip", required=True, nargs="+")
    parser.add_argument("--measured", type=Path, help="a record of `make gpu`")
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for chip in args.chip:
        path = FOLDER / f"{chip}.json"
        if args.measured is None:
            table = dict(simulated(chip))
        else:
            table = msgspec.json.decode(path.read_bytes(), type=dict[str, Entry])
            table |= measured(json.loads(args.measured.read_text()), args.measured.name)
        path.write_text(json.dumps(msgspec.to_builtins(table), indent=1) + "\n")
        for entry in table.values():
            print(f"{chip}, {entry.case}: {entry.seconds * 1e6:.1f} us by {entry.ranked_by} of {entry.plans} plans", flush=True)


if __name__ == "__main__":
    main()
