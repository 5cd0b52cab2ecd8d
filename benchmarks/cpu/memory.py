"""Growth of peak memory over the first call after load, each model and contestant in a process of its own.

python -m benchmarks.cpu.memory FOLDER CONTESTANT CASE      one figure, in bytes
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.cpu.environment import environment

CONTESTANTS = ("Tatami", "ORT")
THREADS = 2


class Growth(msgspec.Struct, frozen=True):
    case: str
    bytes: dict[str, int]


def measure_growth(folder: str, titles: Sequence[str]) -> list[Growth]:
    out = []
    for title in titles:
        found = {}
        for name in CONTESTANTS:
            command = [sys.executable, "-m", "benchmarks.cpu.memory", folder, name, title]
            root, variables = Path(__file__).parents[2], environment(THREADS)
            done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=variables, check=False)
            if done.returncode == 0:
                found[name] = int(done.stdout.split()[-1])
        out.append(Growth(title, found))
    return out


def _peak() -> int:
    """High water mark of resident memory, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise SystemExit("this system does not tell the peak of a process's memory")


def main() -> None:
    from benchmarks.cpu.cases import all_cases
    from benchmarks.cpu.contestants import contestant

    folder, name, title = sys.argv[1:4]
    case = all_cases()[title]
    inputs = case.inputs()
    number = list(all_cases()).index(title)
    run = contestant(name, case, str(Path(folder) / f"{number}" / "model.onnx"), inputs, THREADS)
    Path("/proc/self/clear_refs").write_text("5")  # the high water mark begins anew
    before = _peak()
    run()
    print(_peak() - before)


if __name__ == "__main__":
    main()
