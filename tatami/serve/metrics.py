"""Counts of a server, in the text format that Prometheus reads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

HELP = {
    "tatami_requests_total": "Requests answered, by status.",
    "tatami_prompt_tokens_total": "Tokens of prompts.",
    "tatami_generated_tokens_total": "Tokens generated.",
    "tatami_cancelled_total": "Sequences whose client left.",
    "tatami_faults_total": "Steps of the program that failed.",
    "tatami_request_seconds_total": "Seconds of all requests for text.",
    "tatami_first_token_seconds_total": "Seconds to the first text of all requests.",
}
"""Name of a count -> what it counts."""


class Metrics:
    """Counts, each of which any thread may raise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    def add(self, name: str, value: float = 1, *, label: str = "") -> None:
        """Raise a count of HELP; `label` as ``status="200"``."""
        key = f"{name}{{{label}}}" if label else name
        with self._lock:
            if isinstance(value, int):
                self._counts[key] += value
            else:
                self._seconds[key] = self._seconds.get(key, 0.0) + value

    def value(self, name: str, label: str = "") -> float:
        """The value of a count of HELP."""
        key = f"{name}{{{label}}}" if label else name
        with self._lock:
            return self._counts[key] + self._seconds.get(key, 0.0)

    def text(self, now: Mapping[str, int]) -> str:
        """All counts, and the numbers `now`."""
        with self._lock:
            every: dict[str, float] = {**self._counts, **self._seconds}
        lines = []
        for name, what in HELP.items():
            lines += [f"# HELP {name} {what}", f"# TYPE {name} counter"]
            found = {k: v for k, v in sorted(every.items()) if k.partition("{")[0] == name}
            lines += [f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in (found or {name: 0}).items()]
        for name, value in now.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"
