"""Gradients of the OpInfo database: `python -m tests.torch.opinfo --gradients`.

Each sample of a name that `supports_autograd` is called by a compiled function; the gradients of its results, with random
cotangents, are compared with eager's. Operators that cannot be imported stay in PyTorch, as they do for a user; a name tells
of how many of its samples all of forward and backward is ours. Samples without a result that has a gradient do not count.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.torch import opinfo_samples


def check_gradients(name: str, target: str, limit: int | None, whole: bool = True) -> dict[str, Any]:
    """{"passed", "run", "samples", "ours", "reason"}, as `opinfo_samples.check_name`; "ours": samples without an operator that stays in
    PyTorch."""
    import torch

    found = [op for op in opinfo_samples.variants(name) if op.supports_autograd and torch.float32 in op.supported_dtypes("cpu")]
    if not found:
        return {"passed": 0, "run": 0, "samples": 0, "ours": 0, "reason": "no gradients of float32"}
    passed = run = total = ours = 0
    reason = ""
    for op in found:
        samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
        total += len(samples)
        for first in range(0, len(samples[:limit]), opinfo_samples.TOGETHER):
            if reason and not whole:
                break
            part = samples[:limit][first : first + opinfo_samples.TOGETHER]
            part, absent = with_gradients(op, part)
            total -= absent
            if not part:
                continue
            whys, stays = check_together(op, part, target)
            if len(part) > 1 and any(whys):
                alone = [check_together(op, [s], target) for s in part]
                whys, stays = [why for (why,), _ in alone], sum(s for _, s in alone)
            elif stays:
                stays = len(part)
            run += len(part)
            ours += len(part) - stays
            passed += whys.count(None)
            reason = reason or next(filter(None, whys), "")
    reason = reason if run else reason or "no gradients of float32"
    return {"passed": passed, "run": run, "samples": total, "ours": ours, "reason": reason}


def with_gradients(op: Any, samples: list[Any]) -> tuple[list[Any], int]:
    """(the samples of which eager finds gradients or raises, the number of others)."""

    def counts(sample: Any) -> bool:
        call = ((sample.input, *sample.args), dict(sample.kwargs))
        try:
            return gradients(lambda given: [op(*args, **kwargs) for args, kwargs in given], op, [sample], [call])[0] is not None
        except Exception:  # `check_together` tells why
            return True

    kept = [s for s in samples if counts(s)]
    return kept, len(samples) - len(kept)


def check_together(op: Any, samples: list[Any], target: str) -> tuple[list[str | None], int]:
    """(per sample None where the gradients agree, else why not; 1 if an operator stays in PyTorch, else 0)."""
    import torch

    from tatami import backends
    from tatami.backends.torch_report import REPORTS

    calls = [((s.input, *s.args), dict(s.kwargs)) for s in samples]

    def apply(given: Any) -> Any:
        return [op(*args, **kwargs) for args, kwargs in given]

    try:
        wanted = gradients(apply, op, samples, calls)
        again = gradients(apply, op, samples, calls, seed=1)
    except Exception as error:  # the database has samples that its own operator refuses on this build
        return [f"eager: {opinfo_samples.one_line(error)}"] * len(samples), 0
    torch._dynamo.reset()
    REPORTS.clear()
    compiled = torch.compile(apply, backend=backends.torch_backend, fullgraph=True, dynamic=False, options={"target": target})
    try:
        got = gradients(compiled, op, samples, calls)
    except Exception as error:
        return [opinfo_samples.one_line(error)] * len(samples), 0
    stays = any(r.unsupported or r.refused for r in REPORTS)
    try:
        exact: Any = gradients(apply, op, samples, [in_double(c) for c in calls])
    except Exception:
        exact = [None] * len(samples)
    whys = [
        opinfo_samples.differ(mine, theirs, not opinfo_samples.same(other, theirs), partial(_given, e))
        for mine, theirs, other, e in zip(got, wanted, again, exact, strict=True)
    ]
    return whys, int(stays)


def _given(value: Any) -> Any:
    """The value itself, for `differ`, which asks for it only where eager is far off."""
    return value


def gradients(apply: Any, op: Any, samples: list[Any], calls: list[Any], seed: int = 0) -> list[Any]:
    """Per sample the gradients of its tensors that require one, for random cotangents of its results; None if no result has a
    gradient."""
    import torch
    from torch.utils._pytree import tree_leaves

    given = [leaves_of(c) for c in calls]
    torch.manual_seed(seed)
    results = apply(given)
    out: list[list[Any] | None] = []
    for sample, call, result in zip(samples, given, results, strict=True):
        made = [r for r in tree_leaves(sample.output_process_fn_grad(result)) if is_differentiable(r)]
        inputs = [t for t in tree_leaves(call) if isinstance(t, torch.Tensor) and t.requires_grad]
        torch.manual_seed(7)
        along = [torch.randn(r.shape, dtype=torch.float32).to(r.dtype) for r in made]
        if not made or not inputs:
            out.append(None)
            continue
        found = torch.autograd.grad(made, inputs, along, allow_unused=True)
        out.append([torch.zeros_like(t) if g is None else g.detach() for g, t in zip(found, inputs)])
    return out


def is_differentiable(value: Any) -> bool:
    """True if the value is a tensor that has a gradient function."""
    import torch

    return isinstance(value, torch.Tensor) and value.requires_grad


def leaves_of(call: Any) -> Any:
    """A call with tensors of its own, leaves that require gradients where those of `call` do."""
    import torch
    from torch.utils._pytree import tree_map_only

    def own(t: Any) -> Any:
        copied = opinfo_samples.fresh(t)
        return copied.requires_grad_(t.requires_grad) if t.is_floating_point() or t.is_complex() else copied

    return tree_map_only(torch.Tensor, own, call)


def in_double(call: Any) -> Any:
    """A call with its fp32 tensors in fp64."""
    import torch
    from torch.utils._pytree import tree_map_only

    def wide(t: Any) -> Any:
        return t.detach().double().requires_grad_(t.requires_grad) if t.dtype == torch.float32 else t

    return tree_map_only(torch.Tensor, wide, call)


def section(results: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of docs/opinfo.md about gradients: of the CPU target if they were run there, else of the reference."""
    key = next((k for k in ("gradients", "gradients reference") if k in results), None)
    if key is None:
        return []
    found = {n: r for n, r in results[key].items() if r["run"]}
    right = [n for n, r in found.items() if opinfo_samples.passes(r)]
    whole = [n for n in right if found[n]["ours"] == found[n]["run"]]
    wrong = [n for n, r in found.items() if "differs from eager" in r["reason"]]
    rest = {n: r["reason"] for n, r in found.items() if n not in right}
    target = "CPU" if key == "gradients" else "reference"
    missing = len(set(opinfo_samples.all_names()) - results[key].keys())
    run, of = (sum(r[k] for r in found.values()) for k in ("run", "samples"))
    return [
        "",
        "## Gradients",
        "",
        f"Names that `supports_autograd`, through `torch.compile` with operators that stay in PyTorch where no row imports them, on the"
        f" {target} target; written by `python -m tests.torch.opinfo --gradients` ({run} of {of} samples have run). Gradients for"
        " random cotangents are compared with eager's as values are.",
        "",
        f"**{len(right)} of {len(found)} names agree with eager**, {len(whole)} of them with all of forward and backward compiled;"
        f" {len(wrong)} differ; {len(rest) - len(wrong)} raise."
        f" {missing} names of the database have not run.",
        "",
        "| name | agree | ran | reason of the first failure |",
        "|---|---|---|---|",
        *(
            f"| `{n}` | {found[n]['passed']} | {found[n]['run']} | {opinfo_samples.shown(why)} |"
            for n, why in sorted(rest.items())
        ),
    ]
