"""Comments that tell a reader which tensors of the model a kernel reads and writes. Names are text of a user: of a name, letters,
digits and a few marks are kept, so that it can neither end a comment nor be code."""

from __future__ import annotations

import re

from tatami.core.module import Module
from tatami.execution.ir import ExecutionPlan, launches

MOST = 300
"""Maximum length of a comment in characters."""


def kernel_labels(execution: Module[ExecutionPlan]) -> dict[str, str]:
    """Kernel -> its tensors, by the names of the model where they have one, from the first instruction that launches it."""
    out: dict[str, str] = {}
    for plan in execution.programs.values():
        named = dict(zip(plan.input_buffers, (p.tensor for p in plan.signature.inputs)))
        named |= {id: p.tensor for id, p in zip(plan.output_buffers, plan.signature.outputs) if id not in named}
        for ins in plan.instructions:
            read, written = ([named.get(b, b) for b in some if b] for some in (ins.inputs, ins.outputs))
            text = f"{', '.join(read)} to {', '.join(written)}"
            for launch in launches(ins.op):
                out.setdefault(launch.kernel, text)
    return out


def comment(label: str) -> str:
    """The label as a comment of C on a line of its own; empty without one."""
    return f"/* kernel of {re.sub(r'[^A-Za-z0-9_.:, ]', '_', label)[:MOST]} */\n" if label else ""
