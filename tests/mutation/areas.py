"""The verifiers, each with the test files that are asked about its mutants."""

from __future__ import annotations

from typing import Final

_REGION = ("tests/region/test_verify.py", "tests/region/test_verify_rules.py")
_EXECUTION = (
    "tests/execution/test_verify.py",
    "tests/execution/test_verify_rules.py",
    "tests/execution/test_verify_calls.py",
)
_TINY = ("tests/tiny/test_verify.py", "tests/tiny/test_verify_rules.py")

AREAS: Final[dict[str, tuple[str, ...]]] = {
    "tatami/loop/verify.py": ("tests/loop/test_verify.py", "tests/loop/test_verify_rules.py"),
    "tatami/execution/verify.py": _EXECUTION,
    "tatami/execution/verify_calls.py": _EXECUTION,
    "tatami/region/verify.py": _REGION,
    "tatami/region/checks/lets.py": _REGION,
    "tatami/region/checks/yields.py": _REGION,
    "tatami/tiny/verify.py": _TINY,
    "tatami/tiny/checks/views.py": _TINY,
    "tatami/indexbook/verify.py": ("tests/indexbook/test_verify.py", "tests/indexbook/test_verify_rules.py"),
    "tatami/frontend/verify.py": ("tests/frontend/test_verify.py", "tests/frontend/test_verify_rules.py"),
    "tatami/gpu/proof/verify_stream.py": ("tests/gpu/proof/test_verify_stream_rules.py",),
    "tatami/gpu/proof/verify_stream_k.py": ("tests/gpu/proof/test_verify_stream_k.py",),
    "tatami/plan/verify.py": ("tests/plan/test_verify.py",),
    "tatami/plan/verify_plan.py": ("tests/plan/test_verify_rules.py", "tests/plan/test_verify_gpu_rules.py"),
    "tatami/poly_core/verify.py": ("tests/poly_core/test_verify.py",),
    "tatami/c/verify.py": ("tests/c/test_verify.py",),
    "tatami/c/check_launches.py": ("tests/c/test_verify.py",),
    "tatami/cu/verify.py": ("tests/cu/test_verify.py",),
}
