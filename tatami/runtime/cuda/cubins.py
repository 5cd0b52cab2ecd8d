"""Machine code of kernels: looked up by content, else compiled by NVRTC in processes of their own, several at a time."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypedDict

import msgspec

from tatami.core.diagnostic import fail
from tatami.cu.ir import Unit
from tatami.runtime.building.apart import apart
from tatami.runtime.building.cache import Cache, content_key, default_cache
from tatami.runtime.building.compiler import time_limit
from tatami.runtime.building.leftovers import at_end
from tatami.runtime.building.nvrtc import Cubin, compile_cubin, nvrtc_version
from tatami.runtime.cores import usable_cores

FORMAT = "cubin 2"
"""Version of the entries in the cache."""
LONGEST_WAIT = 3_600_000
"""Maximum of TATAMI_CUDA_WAIT in milliseconds: an hour."""


def compile_units(
    units: Sequence[Unit], headers: Mapping[str, str], arch: str, *, cache: Cache | None = None, jobs: int | None = None
) -> dict[str, Cubin]:
    """Symbol -> machine code for `arch`. Equal texts are compiled once. Raises CompilerFailed, MissingPackage."""
    cache = cache or default_cache()
    keys = {u.symbol: unit_key(u, headers, arch) for u in units}
    made: dict[str, Cubin] = {}
    missing: list[Unit] = []
    for unit in units:
        body = cache.get(keys[unit.symbol])
        if body is None:
            missing.append(unit)
        else:
            made[unit.symbol] = msgspec.msgpack.decode(body, type=Cubin)
    can_fault = {u.symbol: "tt_fault(" in u.text for u in units}
    cores = jobs or usable_cores()
    for symbol, cubin in apart(lambda seen: _compile_all(missing, headers, arch, cores, seen.stop)).items():
        made[symbol] = msgspec.structs.replace(cubin, can_fault=can_fault[symbol])
        cache.put(keys[symbol], msgspec.msgpack.encode(made[symbol]))
    return made


def unit_key(unit: Unit, headers: Mapping[str, str], arch: str) -> str:
    """The key of a unit's machine code in the cache: NVRTC's version, architecture, text and headers."""
    named = [part for item in sorted(headers.items()) for part in item]
    return content_key((FORMAT, nvrtc_version(), arch, unit.symbol, unit.text, *options(unit), "headers", *named))


def options(unit: Unit) -> tuple[str, ...]:
    """NVRTC's options for a unit. With TATAMI_CUDA_WAIT=N waits at barriers end the kernel with a trap after N milliseconds.
    Raises InvalidAttribute for any other setting."""
    wait = os.environ.get("TATAMI_CUDA_WAIT", "")
    if wait and not (wait.isascii() and wait.isdigit() and len(wait) < 10 and 1 <= int(wait) <= LONGEST_WAIT):
        why = f"{wait[:40]!r} is not a time in milliseconds"
        raise fail("InvalidAttribute", "TATAMI_CUDA_WAIT", why, f"set it to a number from 1 to {LONGEST_WAIT}, or leave it out")
    limit = (f"-DTT_WAIT_MILLISECONDS={int(wait)}",) if wait else ()
    return (*(() if unit.contracts else ("--fmad=false",)), *limit)


def _compile_all(
    units: Sequence[Unit], headers: Mapping[str, str], arch: str, jobs: int, stop: threading.Event
) -> dict[str, Cubin]:
    """Symbol -> machine code, compiled by several processes; the longest texts first."""
    ordered = sorted(units, key=lambda u: (-len(u.text), u.symbol))
    hands = [ordered[k::jobs] for k in range(min(jobs, len(ordered)))]
    out: dict[str, Cubin] = {}
    with ThreadPoolExecutor(max(1, len(hands))) as threads:
        for made in threads.map(lambda hand: _compile_some(hand, headers, arch, stop), hands):
            out |= made
    return out


def _compile_some(units: Sequence[Unit], headers: Mapping[str, str], arch: str, stop: threading.Event) -> dict[str, Cubin]:
    if getattr(sys, "frozen", False):  # a frozen program has no interpreter to start
        return {u.symbol: compile_cubin(u.text, arch, headers, f"{u.symbol}.cu", options(u)) for u in units}
    limit = time_limit() + 2.0 * len(units)
    asked = [
        json.dumps({"text": u.text, "arch": arch, "headers": dict(headers), "name": f"{u.symbol}.cu", "more": list(options(u))})
        for u in units
    ]
    command = [sys.executable, "-m", "tatami.runtime.building.nvrtc_worker"]
    done = _ended(command, "\n".join(asked) + "\n", limit, stop)
    if done is None:
        at = units[0].symbol
        raise fail("CompilerFailed", at, f"NVRTC did not end within {limit:.0f} s", "report the kernel's text; it is generated")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers:
        if "kind" in answer:
            raise fail(answer["kind"], answer["at"], answer["why"], answer["suggestion"])
    if len(answers) < len(units):
        said = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise fail(
            "CompilerFailed", units[len(answers)].symbol, f"NVRTC's process ended: {said[:300]}", "report the kernel's text"
        )
    return {u.symbol: _cubin(a) for u, a in zip(units, answers)}


def _ended(command: list[str], text: str, limit: float, stop: threading.Event) -> subprocess.CompletedProcess[str] | None:
    """The finished command, which got `text` on stdin; None if it was stopped. It does not outlive this process. The text is a
    file: a pipe is not filled further by `communicate` once a wait for the answer was cut off."""
    deadline = time.monotonic() + limit
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile("w+", encoding="utf-8") as given:
        given.write(text)
        given.seek(0)
        with subprocess.Popen(command, stdin=given, stdout=pipe, stderr=pipe, text=True) as process:
            not_at_end = at_end(process.kill)
            try:
                while True:
                    try:
                        out, said = process.communicate(timeout=max(0.0, min(0.2, deadline - time.monotonic())))
                        return subprocess.CompletedProcess(command, process.returncode, out, said)
                    except subprocess.TimeoutExpired:
                        if stop.is_set() or time.monotonic() > deadline:
                            return None
            finally:
                process.kill()
                not_at_end()


class _Answer(TypedDict):
    """The answer of `nvrtc_worker` for a unit that it compiled."""

    data: str
    log: str
    registers: int
    spill_bytes: int
    warnings: list[str]


def _cubin(answer: _Answer) -> Cubin:
    data = base64.b64decode(answer["data"])
    return Cubin(data, answer["log"], answer["registers"], answer["spill_bytes"], tuple(answer["warnings"]))
