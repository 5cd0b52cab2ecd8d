"""The verifiers, each with the test files that are asked about its mutants."""

from __future__ import annotations

from typing import Final

_REGION = ("tests/region/test_verify.py", "tests/region/test_load.py", "tests/region/test_run.py")
_EXECUTION = (
    "tests/execution/test_verify.py",
    "tests/execution/test_verify_rules.py",
    "tests/execution/test_verify_calls.py",
    "tests/execution/test_from_graph.py",
    "tests/execution/test_joined.py",
)

AREAS: Final[dict[str, tuple[str, ...]]] = {
    "tatami/loop/verify.py": ("tests/loop/test_verify.py", "tests/loop/test_verify_rules.py"),
    "tatami/execution/verify.py": _EXECUTION,
    "tatami/execution/verify_calls.py": _EXECUTION,
    "tatami/region/verify.py": _REGION,
    "tatami/region/verify_lets.py": _REGION,
    "tatami/region/verify_yields.py": _REGION,
}
