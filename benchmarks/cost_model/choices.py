"""Every candidate of some Regions, timed: where the planner's choice is slower than the fastest, and by how much.

    python -m benchmarks.cost_model.choices                         the Regions of cases.py
    python -m benchmarks.cost_model.choices --only max              cases whose name begins so; their rows are replaced
    python -m benchmarks.cost_model.choices --model rapidocr-det    the Regions of a trained model, in addition
    python -m benchmarks.cost_model.choices --report                the tables from the record

A plan whose time the record has is not timed again, unless all are (--again): after a change of estimates alone, the record tells
at once what the planner would choose now. All times of a Region are taken in turns, on one thread, the least of many.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from platformdirs import user_cache_path

from benchmarks.cost_model.candidates import Choice, Question, Timed, questions, timed
from benchmarks.cost_model.cases import CASES
from benchmarks.cost_model.process import sizes_of
from benchmarks.cpu.machine import describe
from benchmarks.real.arrays import arrays_of
from benchmarks.real.models import MODELS
from benchmarks.real.packages import Absent, fetch
from tatami.core.diagnostic import TatamiError
from tatami.core.target import Target
from tatami.targets import resolve_target

RECORD = Path(__file__).parents[1] / "results" / "plan_choices.json"
NEAR = 1.1
"""Ratio to the least time up to which a choice counts as good: noise of a turn is some percent."""


class Choices(msgspec.Struct):
    """All Regions, by name, with the machine."""

    machine: dict[str, str]
    regions: dict[str, Choice]

    def text(self) -> str:
        """JSON text, a line for each candidate."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cost_model.choices", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", action="append", default=[], help="cases whose name begins so")
    parser.add_argument("--model", action="append", default=[], help="models of benchmarks.real")
    parser.add_argument("--again", action="store_true", help="time plans that the record has, too")
    parser.add_argument("--every", action="store_true", help="with the alternatives that a search tries")
    parser.add_argument("--record", type=Path, default=RECORD, help="the file of the record")
    parser.add_argument(
        "--packages", type=Path, default=user_cache_path("tatami") / "real-models", help="where packages are kept"
    )
    parser.add_argument("--report", action="store_true", help="only print the tables of the record")
    args = parser.parse_args()
    known = {m.name for m in MODELS}
    if unknown := [n for n in args.model if n not in known]:
        parser.error(f"no such model: {', '.join(unknown)}; the names are those of benchmarks.real")
    path: Path = args.record
    record = msgspec.json.decode(path.read_bytes(), type=Choices) if path.exists() else Choices({}, {})
    if not args.report:
        target = msgspec.structs.replace(resolve_target("cpu"), cores=1)
        for question in _asked(args, target):
            before = record.regions.get(question.name)
            found = renewed(before, question) if before is not None and not args.again else None
            record.regions[question.name] = made = found or timed(question)
            record.machine = describe()
            path.write_text(record.text())
            print(line(made), flush=True)
    print("\n".join(tables([*record.regions.values()])))


def _asked(args: argparse.Namespace, target: Target) -> Iterator[Question]:
    """The Regions that are asked about."""
    for name, make in CASES.items():
        if (not args.only and not args.model) or (args.only and name.startswith(tuple(args.only))):
            yield from questions(name, make(), {}, target, args.every)
    for model in (m for m in MODELS if m.name in args.model):
        try:
            path = fetch(model, args.packages)
            sizes = sizes_of(str(path), arrays_of(model.inputs, model.sizes[0], 1))
            yield from questions(model.name, path, sizes, target, args.every)
        except (Absent, TatamiError) as error:
            print(f"{model.name}: {error}", flush=True)


def renewed(before: Choice, question: Question) -> Choice | None:
    """The candidates of a Region in the order of today's estimates with the times of the record; None if it lacks one."""
    known = {c.plan: c for c in before.candidates}
    out: list[Timed] = []
    for c in question.candidates:
        if (old := known.get(c.plan)) is None:
            return None
        out.append(msgspec.structs.replace(c, seconds=old.seconds, why=old.why))
    return Choice(question.name, question.kind, out)


def line(choice: Choice) -> str:
    """One line of a Region: its choice against the fastest."""
    own, best = choice.candidates[0], min(choice.timed, key=lambda c: c.seconds, default=None)
    if best is None or not own.seconds:
        return f"{choice.name}: {own.why or 'no time'}"
    text = f"{choice.name}: {choice.loss:.2f}  {_told(own)}"
    return text if best is own else f"{text}; fastest {_told(best)}"


def _told(c: Timed) -> str:
    return f"{c.line[:60]} {c.seconds * 1e6:.4g} us (estimate {c.estimate * 1e6:.4g})"


def tables(choices: Sequence[Choice]) -> Iterator[str]:
    """The share of Regions whose choice is near the fastest, the others with the worst first, and ratios of estimates by kind."""
    known = [c for c in choices if c.loss > 0]
    if not known:
        return
    near = sum(c.loss <= NEAR for c in known)
    own, best = (sum(f(c) for c in known) for f in (_own_seconds, _best_seconds))
    yield f"within {NEAR - 1:.0%} of the fastest: {near} of {len(known)} Regions ({near / len(known):.0%}); {own / best:.3f} times the least time in all"
    for c in sorted((c for c in known if c.loss > NEAR), key=lambda c: -c.loss):
        yield f"  {line(c)}"
    kinds = sorted({t.kind for c in known for t in c.timed})
    for kind in kinds:
        ratios = sorted(t.estimate / t.seconds for c in known for t in c.timed if t.kind == kind)
        low, middle, high = (ratios[min(len(ratios) - 1, int(len(ratios) * q))] for q in (0.1, 0.5, 0.9))
        yield f"  {kind}: {len(ratios)} plans, estimate over time {low:.2f} {middle:.2f} {high:.2f} (tenth, half, nine tenths)"
    faults = [f"  {c.name}: {t.line}: {t.why}" for c in choices for t in c.candidates if t.why]
    yield from (f"{len(faults)} candidates without a time", *faults) if faults else ()


def _own_seconds(c: Choice) -> float:
    return c.candidates[0].seconds


def _best_seconds(c: Choice) -> float:
    return min(t.seconds for t in c.timed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
