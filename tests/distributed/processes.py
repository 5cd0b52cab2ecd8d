"""Python scripts started as the processes of one group, as torchrun does, without its monitor."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """A port of this machine that nothing listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def started(script: Path, count: int, *arguments: str, cache: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """`count` processes that run `script`, ended at the end of the block whatever happened."""
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TATAMI_CACHE_DIR": str(cache),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "TATAMI_PROGRAM_CACHE": "1",
        "OMP_NUM_THREADS": "1",
    }
    made = []
    try:
        for rank in range(count):
            mine = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            command = [sys.executable, "-W", "ignore", str(script), *arguments]
            made.append(subprocess.Popen(command, env=shared | mine, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        yield made
    finally:
        for p in made:
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.kill()
            p.communicate()


def outputs(processes: Sequence[subprocess.Popen[str]], seconds: float) -> list[tuple[int, str, str]]:
    """(return code, output, errors) of each process, once all have ended. Raises TimeoutExpired."""
    out = []
    for p in processes:
        told, errors = p.communicate(timeout=seconds)
        out.append((p.returncode, told, errors))
    return out
