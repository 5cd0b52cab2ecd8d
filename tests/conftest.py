"""Options and fixtures all tests share."""

from __future__ import annotations

import os
import zlib
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tatami.core.target import PRESETS
from tatami.runtime.machine.host import runs_here
from tests.parts import parts
from tests.shares import is_whole, left_out

os.environ.setdefault("TATAMI_PROGRAM_CACHE", "0")  # tests are about the stages; those of the cache turn it on

AS_SHIPPED = ("tests/c/", "tests/models/", "tests/runtime/")
"""Tests whose C is compiled as users' is; elsewhere the meaning of programs is tested, which a quick build has too."""

SHARE_AS_SHIPPED = ("tests/loop/",)
"""Tests of which one in SHARE is compiled as users' is; all of them with TATAMI_TESTS_AS_SHIPPED=1 in the environment."""

SHARE = 8

AS_MEASURED = ("tests/models/", "tests/runtime/machine/test_calibration.py")
"""Tests that plan by the rates of the machine they run on, as users do; elsewhere plans are the same on all of an instruction set."""

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.load_profile("ci")

# Modules that are oracles themselves: without the package they compare with there is nothing to collect.
needs = {
    "torch": [
        "frontend/oracles/*.py",
        "torch/*.py",
        "models/*.py",
        "gguf/test_decoder.py",
        "generation/test_as_transformers.py",
    ],
    "transformers": ["models/*.py", "gguf/test_decoder.py", "generation/test_as_transformers.py"],
}
collect_ignore_glob = [pattern for package, patterns in needs.items() if find_spec(package) is None for pattern in patterns]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the rows of grids that a run leaves out."""
    if is_whole() or any("::" in name for name in config.args):
        return
    out = left_out(item.nodeid for item in items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]


@pytest.fixture(scope="session")
def zig_caches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which all tests of a run share what zig compiles of a C library: a minute of a processor."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder
    return {name: str(shared / "zig") for name in ("ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR")}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    os.environ["TATAMI_CALIBRATE"] = "1" if item.nodeid.startswith(AS_MEASURED) else "0"
    os.environ["TATAMI_QUICK_BUILD"] = "0" if is_built_as_shipped(item.nodeid) else "1"
    seed_generators_of_module(item)
    for mark in item.iter_markers("runs_on"):
        if not runs_here(PRESETS[mark.args[0]]):
            pytest.skip(f"this CPU lacks instructions of {mark.args[0]}")


def is_built_as_shipped(nodeid: str) -> bool:
    """True if the C of this test is compiled with the optimisation that users get."""
    if nodeid.startswith(SHARE_AS_SHIPPED):
        return os.environ.get("TATAMI_TESTS_AS_SHIPPED") == "1" or zlib.crc32(nodeid.encode()) % SHARE == 0
    return nodeid.startswith(AS_SHIPPED)


def seed_generators_of_module(item: pytest.Item) -> None:
    """Seed each generator that the test's module holds by the test's own name, so that a test draws the same numbers in any order.

    Generators that a module shares between its tests would otherwise go on where the test before it, on this worker, stopped.
    """
    module = getattr(item, "module", None)
    for value in vars(module).values() if module else ():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = np.random.default_rng(zlib.crc32(item.nodeid.encode())).bit_generator.state


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")
    parser.addoption("--parts", action="store_true", help="at the end, tests and seconds of each folder")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a line for each folder, the longest first, if `--parts` is given."""
    if config.getoption("--parts"):
        reports = [r for kept in terminalreporter.stats.values() for r in kept if isinstance(r, pytest.TestReport)]
        terminalreporter.section("parts")
        for part, tests, seconds in parts(reports):
            terminalreporter.write_line(f"{part:24} {tests:6} tests {seconds:8.1f} s")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
