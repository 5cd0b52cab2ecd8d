"""Random programs of PyTorch against eager: values, dtypes, shapes, strides, shared memory, arguments written in place,
gradients and what is raised.

    python -m tests.fuzz.torch --seeds 0-1999              what differs, each program with its source
    python -m tests.fuzz.torch --seeds 17-17 --show        one program
    python -m tests.fuzz.torch --seconds 600               as many as end in that time

Where PyTorch's own backend `aot_eager` differs from eager in the same way the difference is PyTorch's, and counted apart. So is
a program that is as in eager with `topk` written as a stable sort: of several equal values either may be taken, and gradients go
to the one that is.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from tatami import backends
from tatami.torch.decompose import decompositions
from tests.fuzz.torch_programs import Program, program


@dataclass
class Outcome:
    """The outcome of one call: results, arguments after it, gradients; or the error raised."""

    results: list[torch.Tensor]
    arguments: list[torch.Tensor]
    gradients: list[torch.Tensor | None]
    raised: Exception | None = None


def call(made: Program, f: Any, longer: int) -> Outcome:
    arguments = made.make(longer)
    try:
        results = list(f(*arguments))
        followed = [r for r in results if r.requires_grad]
        if followed:
            torch.autograd.backward(
                followed, [torch.linspace(0.5, 1.5, r.numel()).reshape(r.shape).to(r.dtype) for r in followed]
            )
    except Exception as error:
        return Outcome([], [], [], error)
    return Outcome(results, arguments, [a.grad for a in arguments])


def compiled(made: Program, backend: Any) -> list[Outcome]:
    torch._dynamo.reset()
    backends.reset()
    f = torch.compile(made.function(), backend=backend, dynamic=made.dynamic or None)
    return [call(made, f, longer) for longer in lengths(made)]


def lengths(made: Program) -> Sequence[int]:
    return (0, 2, 1) if made.dynamic else (0,)


# -- comparison ------------------------------------------------------------------------------------
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-8, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def precision(made: Program) -> float:
    """The tolerance of a program: of the narrowest float in it."""
    used = {a.dtype for a in made.arguments if a.dtype.is_floating_point} | {torch.float32}
    return max(t for d, t in TOLERANCE.items() if d in used or str(d) in made.source)


def values_differ(a: torch.Tensor | None, b: torch.Tensor | None, rough: float) -> str | None:
    if a is None or b is None:
        return None if a is b else f"{'none' if a is None else 'one'}, eager {'none' if b is None else 'one'}"
    if (a.dtype, a.shape, a.requires_grad) != (b.dtype, b.shape, b.requires_grad):
        return f"{a.dtype}{list(a.shape)} {a.requires_grad}, eager {b.dtype}{list(b.shape)} {b.requires_grad}"
    if b.is_floating_point():
        rough = max(rough, TOLERANCE[b.dtype])
        scale = float(b.detach().double().nan_to_num(0, 0, 0).abs().max()) if b.numel() else 0.0
        near = torch.isclose(a.detach().double(), b.detach().double(), rough, rough * max(scale, 1e-3), equal_nan=True)
    else:
        near = a == b
    if bool(near.all()):
        return None
    at = tuple((~near).nonzero()[0].tolist())
    return f"{int((~near).sum())} of {b.numel()} values, first at {at}: {a[at].item()}, eager {b[at].item()}"


def strides(t: torch.Tensor) -> tuple[int, ...]:
    return tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()


def memory(outcome: Outcome) -> list[tuple[int, int]]:
    """Per result the first of arguments and results whose memory it is, and where in it the result begins, if not in its own."""
    all_ = [*outcome.arguments, *outcome.results]
    owners = [t.untyped_storage().data_ptr() for t in all_]
    count = len(outcome.arguments)
    told = zip(owners[count:], outcome.results)
    return [(owners.index(o), t.storage_offset() if owners.count(o) > 1 else 0) for o, t in told if t.numel()]


def differ(got: Outcome, wanted: Outcome, rough: float) -> str | None:
    """The first thing that is not as in eager."""
    if got.raised or wanted.raised:
        if got.raised and wanted.raised:
            return None
        ours, eager = (f"{type(e).__name__}: {str(e)[:300]}" if e else "nothing" for e in (got.raised, wanted.raised))
        return f"raises {ours}; eager {eager}"
    for what, mine, theirs in (("result", got.results, wanted.results), ("argument", got.arguments, wanted.arguments), ("gradient", got.gradients, wanted.gradients)):  # fmt: skip
        for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if (why := values_differ(a, b, rough)) is not None:
                return f"{what} {k}: {why}"
            if what == "result" and strides(a) != strides(b):
                return f"strides of result {k}: {a.stride()}, eager {b.stride()}"
    if memory(got) != memory(wanted):
        return f"shared memory (owner, offset): {memory(got)}, eager {memory(wanted)}"
    return None


def promises_other_strides(made: Program) -> bool:
    """True if PyTorch's metadata of a result has other strides than its own operators give: backends can only keep the promise."""
    found = []

    def look(gm: torch.fx.GraphModule, _: Any) -> Any:
        (given,) = next(n for n in gm.graph.nodes if n.op == "output").args

        def run(*args: Any) -> Any:
            results = gm(*args)
            for node, result in zip(given, results):
                if isinstance(result, torch.Tensor) and tuple(map(int, node.meta["val"].stride())) != result.stride():
                    found.append(node)
            return results

        return make_boxed_func(run)

    compiled(made, aot_autograd(fw_compiler=look, decompositions=decompositions()))
    return bool(found)


TOPK = re.compile(r"\.topk\(2, (-?\d+)\)\[0\]")


def first_of_equals(made: Program) -> Program:
    """The program with the first of equal values where `topk` may take any of them."""
    sort = r".sort(dim=\1, descending=True, stable=True)[0].narrow(\1, 0, 2).contiguous()"
    return replace(made, source=TOPK.sub(sort, made.source))


def differs_in_ties(made: Program, got: Sequence[Outcome]) -> bool:
    """True if all calls are as in eager with the first of equal values."""
    other = first_of_equals(made)
    if other == made:
        return False
    wanted = (call(other, other.function(), longer) for longer in lengths(made))
    return all(differ(a, b, precision(made)) is None for a, b in zip(got, wanted))


def check(made: Program) -> tuple[str, str]:
    """("same" | "differs" | "pytorch" | "ties", why): as eager; not as eager; not as eager where PyTorch's own is not either; as
    eager where it takes another of several equal values."""
    f = made.function()
    wanted = [call(made, f, longer) for longer in lengths(made)]
    got = compiled(made, backends.torch_backend)
    rough = precision(made)
    for k, (a, b) in enumerate(zip(got, wanted)):
        why = differ(a, b, rough)
        if why is None:
            continue
        if differs_in_ties(made, got):
            return "ties", f"call {k}: {why}"
        own = compiled(made, "aot_eager")[k]
        theirs = differ(a, own, rough)
        is_theirs = theirs is None or ("strides" in theirs and promises_other_strides(made))
        return ("pytorch" if is_theirs else "differs"), f"call {k}: {why}; aot_eager: {theirs}"
    return "same", ""


def stays() -> list[str]:
    """Parts of the last program that PyTorch computed."""
    return [f"{u.operator}: {u.why}" for r in backends.torch_reports() for u in r.unsupported] + [
        why for r in backends.torch_reports() for why in r.refused
    ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0-1999")
    parser.add_argument("--seconds", type=float, default=1e9, help="end after so many")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    first, last = map(int, given.seeds.split("-"))
    counts: Counter[str] = Counter()
    left: Counter[str] = Counter()
    start = time.monotonic()
    for seed in range(first, last + 1):
        if time.monotonic() - start > given.seconds:
            print(f"seeds {first} to {seed - 1} in {given.seconds:.0f} s")
            break
        made = program(seed)
        if given.show:
            print(made.source, made.arguments, "dynamic" * made.dynamic, "backward" * made.backward)
        verdict, why = check(made)
        counts[verdict] += 1
        left.update(set(stays()))
        if verdict == "differs":
            print(f"-- seed {seed}: {why}\n{made.source}   {made.arguments}", flush=True)
        elif verdict != "same":
            print(f"-- seed {seed}, {verdict}: {why}", flush=True)
    print(dict(counts))
    for why, count in left.most_common(20):
        print(f"  in PyTorch {count}: {why}")
    return int(counts["differs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
