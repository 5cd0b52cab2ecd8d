"""Runs of the recipes of docs/distributed.md: `python -m tests.distributed.recipes --processes 4`."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.distributed.processes import ROOT, outputs, started

SECONDS = 300
"""Maximum number of seconds for a recipe."""


def recipes() -> dict[str, str]:
    """Name -> script, of the page."""
    page = (ROOT / "docs" / "distributed.md").read_text()
    return {name: text for text in re.findall(r"```python\n(.*?)```", page, re.S) for name in re.findall(r"^# (\w+)\.py", text)}


def run_recipe(name: str, count: int, folder: Path) -> list[tuple[int, str, str]]:
    """The ends of the processes of a recipe. `folder`: for its script and, if it has none yet, the cache."""
    script = folder / f"{name}.py"
    script.write_text(recipes()[name])
    cache = folder / "cache"
    cache.mkdir(mode=0o700, exist_ok=True)
    with started(script, count, cache=cache) as processes:
        return outputs(processes, SECONDS)


def main() -> int:
    """Run each recipe and print how it ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    count = parser.parse_args().processes
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in recipes():
            began = time.perf_counter()
            ends = run_recipe(name, count, Path(folder))
            wrong = [errors for code, _, errors in ends if code]
            failed += bool(wrong)
            print(f"{name}, {count} processes: {'wrong' if wrong else 'right'}, {time.perf_counter() - began:.1f} s")
            print(*wrong[:1], sep="\n", end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
