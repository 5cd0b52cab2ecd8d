"""The Target of a name, of a document, or of a file that holds one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tatami.core.codec import from_builtins, parse_text
from tatami.core.diagnostic import fail
from tatami.core.document import read_bytes
from tatami.core.faults.target_check import check_target
from tatami.core.target import PRESETS, Target

GPU_NUMBERS = (
    "arch", "sms", "clock", "l2_bytes", "l2_bytes_per_clock", "smem_per_sm", "smem_per_block", "registers_per_sm",
    "max_threads_per_sm", "max_blocks_per_sm", "flops_fp32", "flops_fp16", "bandwidth",
)  # fmt: skip
"""Fields of a GPU's description that the planner divides by."""


def resolve_target(target: str | Path | Target | dict[str, object]) -> Target:
    """The Target that a name, a document or a .json file stands for. Raises UnknownTarget, also for a GPU's Target without
    a number that plans need."""
    if isinstance(target, str | Path) and Path(target).suffix.lower() == ".json":
        path = Path(target)
        return resolve_target(from_builtins(parse_text(read_bytes(path), path.name), Target, path.name))
    if not isinstance(target, str | dict | Target):
        raise fail("UnknownTarget", "target", f"a {type(target).__name__} is not a target", "give a name or a Target document")
    if isinstance(target, str):
        return _named(target)
    target = check_target(from_builtins(target, Target, "target") if isinstance(target, dict) else target)
    missing = [f for f in GPU_NUMBERS if not getattr(target, f)] if target.kind == "cuda" else []
    if missing:
        use = "start from a known one: msgspec.structs.replace(tatami.core.target.PRESETS['h200'], name=…)"
        raise fail("UnknownTarget", f"target {target.name[:60]}", f"{', '.join(missing)} is not given", use)
    return target


def _named(target: str) -> Target:
    """The Target of a name: "cpu" is this machine, the rest are presets."""
    if target == "cpu":
        from tatami.runtime.machine.calibration import this_machine

        return this_machine()
    if target in PRESETS:
        if PRESETS[target].kind != "cpu":
            return PRESETS[target]
        from tatami.runtime.machine.host import as_this_machine

        return as_this_machine(PRESETS[target])
    gpu = PRESETS.get(target.removeprefix("emulated-"))
    if gpu is not None and gpu.kind == "cuda":
        return msgspec.structs.replace(gpu, name=target, emulated=True, chip=gpu.name)
    from tatami.runtime.cuda.device import cuda_target, split_name

    device = split_name(target)
    if device is not None:
        return cuda_target(*device)
    known = ", ".join(["cpu", *PRESETS, "cuda", "emulated-sm80", "emulated-sm90"])
    raise fail("UnknownTarget", "target", f"{target[:60]!r} is not a target", f"use one of {known}, or a Target document")
