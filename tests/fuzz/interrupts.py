"""Signals at random moments of a compilation: no compiler goes on, no temporary file stays, wherever the signal falls.

    python -m tests.fuzz.interrupts --seeds 0-100 [--jobs 2] [--hosts command,raises]

Every run has folders of its own for temporary files, cache and results. A program is started, gets a signal after a time
drawn between its start and its end, and is looked at two seconds after its own end: processes that it started, files below
its folders. A file left behind is a finding, and so is a process that does not end within ten seconds. Hosts: `command` (tatami
compile), `plain` (a program without handlers), `raises` (its handler raises), `exits` (its handler calls sys.exit),
`goes_on` (its handler notes the signal: the program has to end by itself, with its results), `thread` (it compiles in
another thread, and its handler lets it end).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODEL = """
import sys
import numpy as np
import tatami as tt
g = tt.Graph("g")
x = g.input("x", ("N", 64), tt.fp32)
for k in range(6):
    w = g.input(f"w{k}", (64, 64), tt.fp32)
    x = (x @ w).relu() + float(k)
g.output("y", x.softmax(1))
g.output("s", x.topk(5, axis=1)[0])
"""
COMPILE = "f = tt.compile(g, progress=None)\nf.save('p.tatami')\nprint('made', flush=True)\n"
HOSTS = {
    "plain": COMPILE,
    "raises": """
import signal
class Stopped(Exception): pass
def stopped(*_): raise Stopped
signal.signal(signal.SIGINT, stopped), signal.signal(signal.SIGTERM, stopped)
try:
    f = tt.compile(g)
    f.save("p.tatami")
except Stopped:
    print("stopped", flush=True)
    sys.exit(3)
print("made", flush=True)
""",
    "exits": """
import signal
signal.signal(signal.SIGINT, lambda *_: sys.exit(4)), signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
"""
    + COMPILE,
    "goes_on": """
import signal
signal.signal(signal.SIGINT, lambda *_: print("noted", flush=True)), signal.signal(signal.SIGTERM, lambda *_: None)
"""
    + COMPILE,
    "thread": """
import signal, threading
ended = threading.Event()
signal.signal(signal.SIGINT, lambda *_: ended.set()), signal.signal(signal.SIGTERM, lambda *_: ended.set())
def work():
    f = tt.compile(g)
    f.save("p.tatami")
    print("made", flush=True)
t = threading.Thread(target=work)
t.start()
t.join()
""",
}
COMMAND = "from tatami.cli import main\nmain(['compile', sys.argv[1], '-o', 'p.tatami'], prog_name='tatami')\n"
KINDS = ("command", *HOSTS)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
ENDS_WITHIN = 10.0
LEFT_AFTER = 2.0
"""Seconds."""


def started(kind: str, folder: Path) -> subprocess.Popen[str]:
    """The program, in a session of its own."""
    for name in ("tmp", "cache", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder / "tmp"),
        "TATAMI_CACHE_DIR": str(folder / "cache"),
        "TATAMI_CALIBRATE": "0",
        "TATAMI_FAULT_MARK": str(folder),
    }
    if kind == "command":
        program, arguments = "import sys\n" + COMMAND, [str(model_document())]
    else:
        program, arguments = MODEL + HOSTS[kind], []
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=env,
        cwd=folder / "work",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


_document: list[Path] = []
_lock = threading.Lock()


def model_document() -> Path:
    with _lock:
        if not _document:
            path = Path(tempfile.mkdtemp()) / "model.json"
            program = MODEL + "open(sys.argv[1], 'w').write(tt.compile(g, target='reference').stages['frontend'].json)\n"
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            subprocess.run([sys.executable, "-c", program, str(path)], check=True, env=env)
            _document.append(path)
    return _document[0]


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that carry the folder's mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder).encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100])
            except OSError:
                continue
    return found


def left_in(folder: Path) -> list[str]:
    """Files that should not be there: temporary ones, and what was half written."""
    out = [str(p.relative_to(folder)) for p in (folder / "tmp").rglob("*")]
    out += [str(p.relative_to(folder)) for p in (folder / "cache").rglob(".*")]
    return out + [p.name for p in (folder / "work").iterdir() if p.name != "p.tatami"]


def duration(kind: str) -> float:
    """Seconds that the program takes with an empty cache."""
    with tempfile.TemporaryDirectory() as name:
        start = time.monotonic()
        process = started(kind, Path(name))
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert not left_in(Path(name)), left_in(Path(name))
        return time.monotonic() - start


def outcome(kind: str, seed: int, seconds: float) -> tuple[str, str]:
    """The outcome of a run with one signal: `ended`, `made`, or a finding."""
    rng = random.Random(f"{kind} {seed}")
    number = rng.choice(SIGNALS)
    moment = rng.uniform(0.05, 1.1) * seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        process = started(kind, folder)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            for _ in range(rng.choice((0, 0, 1, 2))):
                time.sleep(rng.uniform(0, 0.05))
                process.send_signal(number)
        where = f"{number.name} at {moment:.3f} s"
        try:
            out, said = process.communicate(timeout=ENDS_WITHIN if kind not in ("goes_on", "thread") else 120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "hung", where
        deadline = time.monotonic() + LEFT_AFTER
        while (left := processes_of(folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left:
            return "process", f"{where}: {left}"
        if files := left_in(folder):
            return "file", f"{where}: {files[:4]} rc={process.returncode}"
        if kind == "goes_on" and (process.returncode != 0 or "made" not in out) and process.returncode not in (-2, -15, 1):
            return "lost", f"{where}: rc {process.returncode}: {said[-300:]}"
        if kind == "command" and "Traceback" in said and "tatami/" in said and "importlib" not in said:
            return "traceback", f"{where}: {said[-400:]}"
        return ("made" if process.returncode == 0 else "ended"), where


FINE = ("made", "ended")


def campaign(kinds: list[str], seeds: range, jobs: int = 1) -> Counter[str]:
    counts: Counter[str] = Counter()
    for kind in kinds:
        seconds = duration(kind)

        def one(seed: int, kind: str = kind, seconds: float = seconds) -> tuple[int, str, str]:
            return (seed, *outcome(kind, seed, seconds))

        with ThreadPoolExecutor(jobs) as threads:
            for seed, found, why in threads.map(one, seeds):
                counts[f"{kind} {found}"] += 1
                if found not in FINE:
                    print(f"{found} {kind} {seed}: {why}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.interrupts", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", default="0-20", help="first-last, the last left out")
    parser.add_argument("--hosts", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    counts = campaign(given.hosts.split(","), range(first, last), given.jobs)
    for name, count in sorted(counts.items()):
        print(f"{name:24} {count}")
    return 1 if any(name.split()[1] not in FINE for name in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
