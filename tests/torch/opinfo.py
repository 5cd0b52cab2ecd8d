"""PyTorch's own OpInfo database through torch.compile(backend="tatami", fullgraph=True), fallback refused.

    python -m tests.torch.opinfo                       the names that have no result yet, on the CPU target
    python -m tests.torch.opinfo --only add linalg     names that begin so, again
    python -m tests.torch.opinfo --samples 3           the first samples of each only, to find faults quickly
    python -m tests.torch.opinfo --target reference    without compiling C: is the import right?
    python -m tests.torch.opinfo --errors              every error_inputs sample raises as eager does
    python -m tests.torch.opinfo --gradients           gradients against eager's (opinfo_gradients)
    python -m tests.torch.opinfo --quick --share 1/3 --results part1.json   a third, each name up to its first failure
    python -m tests.torch.opinfo --table               write docs/opinfo.md from the results so far

Every float32 sample of a name, of all its variants, has to compile and agree with eager within PyTorch's tolerance, or
be no farther than eager from the operator in float64. Where eager itself draws random numbers or leaves memory undefined,
shapes and dtypes are compared; of factors that are not unique, what the database says is. Results go
to tests/torch/opinfo.json after each name, so that a run can be stopped and gone on with. Each name runs in a process
that may crash or be ended when it takes too long.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from tests.torch.opinfo_gradients import check_gradients, section
from tests.torch.opinfo_samples import all_names, check_errors, check_name, one_line, passes, shown

HERE = Path(__file__).parent
RESULTS = HERE / "opinfo.json"
PAGE = HERE.parent.parent / "docs" / "opinfo.md"


def seed_outside() -> None:
    """Operators of the database that set the seed around their call leave it to us: Dynamo does not trace that."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch.testing._internal") and hasattr(module, "wrapper_set_seed"):
            vars(module)["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)


def checked(job: dict[str, Any]) -> dict[str, Any]:
    """The result of a name: its values, its errors or its gradients."""
    if job["check"] == "errors":
        return check_errors(job["name"], job["target"])
    check = check_gradients if job["check"] == "gradients" else check_name
    return check(job["name"], job["target"], job["samples"], job["whole"])


def worker() -> None:
    warnings.simplefilter("ignore")
    import torch
    import torch.testing._internal.common_methods_invocations

    torch._dynamo.config.recompile_limit = 10_000
    seed_outside()
    for line in sys.stdin:
        job = json.loads(line)
        if "name" not in job:
            print(json.dumps({"names": all_names()}), file=sys.__stdout__, flush=True)
            continue
        began = time.monotonic()
        try:
            found = checked(job)
        except Exception as error:
            found = {"passed": 0, "run": 0, "samples": 0, "reason": one_line(error)}
        print(json.dumps({**found, "seconds": round(time.monotonic() - began, 1)}), file=sys.__stdout__, flush=True)


# -- all names ------------------------------------------------------------------------------------
class Worker:
    """A process that checks names one after another; a new one after a crash or a time-out."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def check(self, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        if self.process is None or self.process.poll() is not None:
            command = [sys.executable, "-W", "ignore", "-m", "tests.torch.opinfo", "--worker"]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        selector = selectors.DefaultSelector()
        selector.register(self.process.stdout, selectors.EVENT_READ)
        ready = selector.select(seconds)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return dict(json.loads(line))
        why = "the process crashed" if ready else f"not done after {seconds:.0f} s"
        self.process.kill()
        self.process.wait()
        self.process = None
        return {"passed": 0, "run": 0, "samples": 0, "reason": why, "seconds": seconds}


def check_of(options: argparse.Namespace) -> str:
    return "errors" if options.errors else "gradients" if options.gradients else "values"


def key_of(options: argparse.Namespace) -> str:
    """The part of the results that a run fills."""
    check = check_of(options)
    if check == "gradients" and options.target != "cpu":
        return f"gradients {options.target}"
    return str(options.target) if check == "values" else check


def run(options: argparse.Namespace) -> None:
    results = load(options.results)
    mine = results.setdefault(key_of(options), {})
    child = Worker()
    every = child.check({}, 600)["names"]
    names = [n for n in every if not options.only or any(n.startswith(o) for o in options.only)]
    if options.names is not None:
        names = [n for n in options.names.read_text().split() if n in names]
    if options.errors:
        names = [n for n in names if passes(results.get(options.target, {}).get(n))]
    part, of = map(int, options.share.split("/"))
    names = names[part::of]
    todo = [n for n in names if options.only or not done(mine.get(n), options.samples)]
    for k, name in enumerate(todo):
        job = {"name": name, "target": options.target, "samples": options.samples, "check": check_of(options),
               "whole": not options.quick}  # fmt: skip
        mine[name] = child.check(job, options.seconds)
        save(results, options.results)
        found = mine[name]
        print(f"{k + 1}/{len(todo)} {name}: {found['passed']}/{found['run']} {found['reason'][:150]}", flush=True)
    if child.process is not None and child.process.stdin is not None:
        child.process.stdin.close()
        child.process.wait()
    print(f"{sum(passes(r) for r in mine.values())} of {len(every)} names pass what ran of them ({key_of(options)})")


def done(result: dict[str, Any] | None, samples: int | None) -> bool:
    """True if there is a result for this many samples."""
    if result is not None and result["passed"] < result["run"]:
        return True
    return result is not None and (result["run"] >= result["samples"] or (samples is not None and result["run"] > 0))


def load(path: Path) -> dict[str, dict[str, Any]]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(results: dict[str, dict[str, Any]], path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=0, sort_keys=True) + "\n")
    os.replace(temporary, path)


def table(path: Path, page: Path = PAGE) -> None:
    """Write the page; results without values leave its part about them as it is."""
    results = load(path)
    if not results.get("cpu"):
        values = page.read_text().partition("\n## Gradients\n")[0].rstrip("\n").split("\n")
        page.write_text("\n".join([*values, *section(results)]) + "\n")
        return
    cpu, errors = results.get("cpu", {}), results.get("errors", {})
    names = all_names()
    whole = [n for n in names if passes(cpu.get(n)) and cpu[n]["run"] == cpu[n]["samples"]]
    partly = [n for n in names if passes(cpu.get(n)) and n not in whole]
    raising = [errors[n] for n in whole if n in errors]
    lines = [
        "# PyTorch's OpInfo database",
        "",
        'Float32 samples of `op_db` through `torch.compile(backend="tatami", fullgraph=True, options={"fallback": False})`'
        " on the CPU target; written by `python -m tests.torch.opinfo --table`. A sample passes if it agrees with eager within"
        " PyTorch's tolerance, or is no farther than eager from the operator in float64; factors of matrices are compared by what is"
        " unique of them. A name that fails may have been left at its first failure. Results of names"
        " that a run leaves out are those of the last run that had them.",
        "",
        f"**{len(whole)} of {len(names)} names pass every sample**; {len(partly)} more pass the samples that ran of them; "
        f"{len(names) - len(set(cpu) & set(names))} have not run. Error inputs of the {len(raising)} passing names: "
        f"{sum(e['passed'] for e in raising)} of {sum(e['run'] for e in raising)} raise as in eager mode. The others are settled before a"
        " backend is asked: Dynamo itself answers otherwise (`cat` of numbers, `narrow_copy`), or passes on as valid what eager"
        " refuses (`out=` of another dtype or over an input, `__radd__` and `__rmul__` of a number).",
        "",
        "| why a name fails | names |",
        "|---|---|",
    ]
    failing = {n: cpu[n]["reason"] for n in names if n in cpu and not passes(cpu[n])}
    for why, count in Counter(category(r) for r in failing.values()).most_common():
        lines.append(f"| {why} | {count} |")
    lines += ["", "| operator that no row of the table imports | names it stops |", "|---|---|"]
    missing = Counter(match[1] for r in failing.values() if (match := _MISSING.search(r)))
    lines += [f"| `{operator}` | {count} |" for operator, count in missing.most_common()]
    lines += [
        "",
        "| name | samples passed | of | error inputs that raise | reason of the first failure |",
        "|---|---|---|---|---|",
    ]
    for n in names:
        if (r := cpu.get(n)) is not None:
            e = errors.get(n, {"passed": 0, "run": 0, "reason": ""})
            raised = f"{e['passed']} of {e['run']}" if e["run"] else ""
            lines.append(f"| `{n}` | {r['passed']} | {r['samples']} | {raised} | {shown(r['reason'] or e['reason'])} |")
    lines += section(results)
    page.write_text("\n".join(lines) + "\n")


_MISSING = re.compile(r"at torch\.compile: (\S+) at [^;]*?: no function of the operator table")


def category(reason: str) -> str:
    kinds = {
        "no function of the operator table": "an operator is not in the table",
        "complex": "complex numbers",
        "differs from eager": "differs from eager",
        "no float32 samples": "the name has no float32 samples",
        "no argument decides": "a size that data decide",
        "Unsupported:": "Dynamo does not trace it",
        "not done after": "takes too long",
        "crashed": "the process crashed",
        "E1606": "an argument the operator's function refuses",
    }
    return next((v for k, v in kinds.items() if k in reason), "another reason")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--samples", type=int, help="at most so many per variant")
    parser.add_argument("--only", nargs="*", default=[], help="names that begin so")
    parser.add_argument("--seconds", type=float, default=600, help="for one name")
    parser.add_argument("--quick", action="store_true", help="a name ends with its first failure")
    parser.add_argument("--names", type=Path, help="a file of names, in the order they are to run")
    parser.add_argument("--share", default="0/1", help="k/n: the k-th of n processes, each with a file of its own")
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--gradients", action="store_true", help="gradients of what supports them, in place of values")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file the results go to")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker()
    elif options.table:
        table(options.results)
    else:
        run(options)


if __name__ == "__main__":
    main()
