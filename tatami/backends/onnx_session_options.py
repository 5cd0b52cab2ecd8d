"""Options of a drop-in session: those with an effect, and those that are accepted with one note in the log.

An option of ONNX Runtime's own machinery (its arena, its graph optimiser, its profiler) changes nothing here. It is
accepted, so that code which sets it runs; the first time that a session meets a value other than the usual one, the logger
`tatami.onnx` reports it, once for each option and process.
"""

from __future__ import annotations

import enum
import logging
from typing import Any

from tatami.backends.onnx_session_errors import Fail, invalid_argument
from tatami.core.diagnostic import diagnostic

_log = logging.getLogger("tatami.onnx")
_said: set[str] = set()


class GraphOptimizationLevel(enum.IntEnum):
    """ONNX Runtime's levels of graph rewriting; Tatami always compiles the whole graph."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """ONNX Runtime's modes of running operators; Tatami runs kernels in order, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """ONNX Runtime's orders of operators; Tatami fixes the order of kernels when it compiles."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_NO_EFFECT: dict[str, tuple[Any, str]] = {
    "graph_optimization_level": (GraphOptimizationLevel.ORT_ENABLE_ALL, "the whole graph is always compiled"),
    "optimized_model_filepath": ("", "no optimised ONNX model exists; Function.save keeps the compiled program"),
    "execution_mode": (ExecutionMode.ORT_SEQUENTIAL, "kernels run in order, each on all threads"),
    "execution_order": (ExecutionOrder.DEFAULT, "the order of kernels is fixed when the model is compiled"),
    "inter_op_num_threads": (0, "kernels run in order, each on intra_op_num_threads"),
    "enable_cpu_mem_arena": (True, "each program plans its memory when it is compiled"),
    "enable_mem_pattern": (True, "each program plans its memory when it is compiled"),
    "enable_mem_reuse": (True, "each program plans its memory when it is compiled"),
    "enable_profiling": (False, "`tatami profile` times each kernel"),
    "profile_file_prefix": ("onnxruntime_profile_", "`tatami profile` times each kernel"),
    "log_severity_level": (-1, "the loggers `tatami` and TATAMI_LOG decide what is said"),
    "log_verbosity_level": (0, "the loggers `tatami` and TATAMI_LOG decide what is said"),
    "logid": ("", "the loggers `tatami` and TATAMI_LOG decide what is said"),
    "use_deterministic_compute": (False, "the same inputs always give the same bits"),
    "use_per_session_threads": (True, "all programs of a process share one pool of threads"),
}
"""Option -> (usual value, why another one changes nothing)."""


def note(what: str, why: str) -> None:
    """Log once in this process that something has no effect."""
    if what not in _said:
        _said.add(what)
        _log.warning("%s has no effect: %s", what, why)


class SessionOptions:
    """Options with the names and usual values of ONNX Runtime's. `intra_op_num_threads`: threads of a program; 0:
    TATAMI_NUM_THREADS, else OMP_NUM_THREADS, else all cores."""

    def __init__(self) -> None:
        self.__dict__["_values"] = {"intra_op_num_threads": 0, **{name: usual for name, (usual, _) in _NO_EFFECT.items()}}
        self.__dict__["_entries"] = {}
        self.__dict__["dimensions"] = {}
        """Numbers for named axes, by name."""

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(f"'SessionOptions' object has no attribute {name!r}")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(f"'SessionOptions' object has no attribute {name!r}")
        if name == "intra_op_num_threads" and (not isinstance(value, int) or value < 0):
            raise invalid_argument(f"intra_op_num_threads is {value!r}", name, "give a number of threads, or 0 for all cores")
        self._values[name] = value

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Compile for this size of the axis `name`."""
        if not isinstance(value, int) or value < 0:
            raise invalid_argument(f"the size {value!r} of the axis {name}", name, "give a size, a whole number")
        self.dimensions[name] = value

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; no entry has an effect."""
        self._entries[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry that was added. Raises Fail for an unknown key."""
        if key not in self._entries:
            message = f"SessionOptions does not have configuration with key: {key}"
            raise Fail(message, diagnostic("UnknownName", str(key), "the options have no such entry", "add it before"))
        return str(self._entries[key])

    def say_what_has_no_effect(self) -> None:
        """Log a note for each option that differs from its usual value and has no effect."""
        for name, (usual, why) in _NO_EFFECT.items():
            if self._values[name] != usual:
                note(f"SessionOptions.{name}", why)
        for key in self._entries:
            note(f"the session's entry {key!r}", "Tatami knows no configuration entries")


class RunOptions:
    """Options of one run; none has an effect here, which is logged once."""

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.terminate = False
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry; no entry has an effect."""
        self._entries[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry that was added. Raises Fail for an unknown key."""
        if key not in self._entries:
            message = f"RunOptions does not have configuration with key: {key}"
            raise Fail(message, diagnostic("UnknownName", str(key), "the options have no such entry", "add it before"))
        return self._entries[key]

    def say_what_has_no_effect(self) -> None:
        """Log a note for each option that differs from its usual value."""
        usual = RunOptions()
        for name, value in vars(self).items():
            if value != getattr(usual, name):
                note(
                    f"RunOptions{'' if name.startswith('_') else '.' + name}", "a run always computes every output, to its end"
                )
