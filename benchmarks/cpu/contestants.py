"""The contestants: Tatami, and its peers at their best settings. Each becomes a call without arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cpu.case import Arrays, Case

Run = Callable[[], Any]
OURS = "Tatami"
NAMES = (
    OURS, "eager", "eager channels-last", "compile", "compile channels-last", "ORT", "ORT no spin", "ORT fused", "numpy",
)  # fmt: skip


def applies(name: str, case: Case, threads: int) -> bool:
    """True if contestant `name` has a setting of its own for the case."""
    if name.startswith(("eager", "compile")) and case.torch is None:
        return False
    if "channels-last" in name:
        return case.images
    if name == "ORT no spin":
        return threads > 1
    if name == "ORT fused":
        return name in case.peers
    return name != "numpy" or case.numpy is not None


def contestant(name: str, case: Case, model: str, inputs: Arrays, threads: int) -> Run:
    """A call that computes the case and returns its output. `model` is the ONNX file it reads, where it reads one."""
    if name == OURS:
        return _tatami(model, inputs, threads)
    if name.startswith("ORT"):
        return _ort(model, inputs, threads, spin="no spin" not in name)
    if name == "numpy":
        assert case.numpy is not None
        function = case.numpy
        return lambda: function(inputs)
    return _torch(case, inputs, threads, name.startswith("compile"), "channels-last" in name)


def _tatami(model: str, inputs: Arrays, threads: int) -> Run:
    """A call of Tatami as a user makes it, f(...)."""
    import tatami as tt

    f = tt.compile(model, threads=threads)
    return lambda: f(inputs)


def _ort(model: str, inputs: Arrays, threads: int, spin: bool) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def _torch(case: Case, inputs: Arrays, threads: int, compiled: bool, channels_last: bool) -> Run:
    import torch

    torch.set_num_threads(threads)
    assert case.torch is not None
    module = case.torch().eval()
    args = {k: torch.from_numpy(v) for k, v in inputs.items()}
    if channels_last:
        form: Any = torch.channels_last
        module = module.to(memory_format=form)
        args = {k: v.contiguous(memory_format=form) if v.ndim == 4 else v for k, v in args.items()}
    if compiled:
        import torch._inductor.config as settings

        settings.freezing = True
        settings.compile_threads = 1
        torch._dynamo.reset()
        module = torch.compile(module)
    named = case.group == "model"

    def run() -> Any:
        with torch.inference_mode() if not compiled else torch.no_grad():
            return module(**args) if named else module(*args.values())

    return run


def first_array(value: Any) -> np.ndarray:
    """The one output of any contestant as an array."""
    if isinstance(value, dict):
        value = next(iter(value.values()))
    if isinstance(value, list | tuple):
        value = value[0]
    return value if isinstance(value, np.ndarray) else value.detach().contiguous().numpy()
