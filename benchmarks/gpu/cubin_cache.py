"""Machine code of the kernels of `make gpu`, made where there is no GPU: ``make gpu-cache``.

    python -m benchmarks.gpu.cubin_cache --chip h100 --to .gpu-cache

The entries are those that a run on that chip looks up (by text, headers, options and NVRTC's version), so that its minutes go to
kernels and not to NVRTC. `make gpu` reads `.gpu-cache` where it is there and TATAMI_CACHE_DIR says nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import tatami as tt
from benchmarks.gpu.cases import checked, timed
from benchmarks.gpu.first import models
from tatami.api import prepare
from tatami.core.target import CHIPS, Target
from tatami.cu.ir import Source
from tatami.runtime.building.cache import Cache
from tatami.runtime.cuda import cubins

FOLDER = Path(__file__).parents[2] / ".gpu-cache"
GROUPS = ("gemm", "attention", "conv", "memory", "gradient")


def device_target(chip: str) -> Target:
    """The target that a device of this chip has."""
    return msgspec.structs.replace(CHIPS[chip].target, name="cuda:0", chip=chip)


def programs(groups: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], tt.Graph], dict[str, Any]]]:
    """(name, graph, options) of every program that `make gpu` compiles as it stands."""
    if "models" in groups:
        for name, (make, options) in models().items():
            yield name, lambda make=make: make(False), options  # type: ignore[misc]
    for case in checked(False) if "kernels" in groups else ():
        yield case.name, case.make, {}
    for group in GROUPS:
        for case in timed(group) if group in groups else ():
            yield case.name, case.make, {}


def fill(chip: str, to: Path, groups: tuple[str, ...]) -> int:
    """Compile what is missing; the number of kernels."""
    cache, target, count = Cache(to), device_target(chip), 0
    for name, make, options in programs(groups):
        source: Source = prepare(make(), target=target, **options).stages["cu"].main
        count += len(cubins.compile_units(source.units, source.headers, target.arch, cache=cache))
        print(name, flush=True)
    return count


def main() -> None:
    every = ("models", "kernels", *GROUPS)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chip", choices=sorted(CHIPS), default="h100")
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument("--only", default=",".join(every), help=f"groups, with commas: {', '.join(every)}")
    args = parser.parse_args()
    print(f"{fill(args.chip, args.to.resolve(), tuple(args.only.split(',')))} kernels in {args.to}")


if __name__ == "__main__":
    main()
