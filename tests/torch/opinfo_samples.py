"""The samples of PyTorch's OpInfo database: calls compiled and compared with eager's, one name at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

UNDEFINED = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
"""Operators whose values eager leaves open."""
NOT_UNIQUE = frozenset({"svd", "linalg.svd", "linalg.eigh"})
"""Operators whose factors have signs of their own: `output_process_fn_grad` of a sample makes of them what has none."""
TOGETHER = 8
"""Samples of one compiled function: most of the time goes to tracing and to starting the C compiler."""


# -- one name, in a process of its own ------------------------------------------------------------
def variants(name: str) -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if op.name == name]


def check_name(name: str, target: str, limit: int | None, whole: bool = True) -> dict[str, Any]:
    """{"passed", "run", "samples", "reason"}: samples that agree, that ran, that there are, and why the first failed.

    Samples are compiled TOGETHER at a time, and each alone where those do not pass. Without `whole` a name ends with
    its first failure.
    """
    import torch

    found = [op for op in variants(name) if torch.float32 in op.supported_dtypes("cpu")]
    if not found:
        return {"passed": 0, "run": 0, "samples": 0, "reason": "no float32 samples"}
    passed = run = total = 0
    reason = ""
    for op in found:
        samples = list(op.sample_inputs("cpu", torch.float32))
        total += len(samples)
        for first in range(0, len(samples[:limit]), TOGETHER):
            if reason and not whole:
                break
            for why in check_samples(op, samples[:limit][first : first + TOGETHER], target, whole):
                run += 1
                passed += why is None
                reason = reason or why or ""
    return {"passed": passed, "run": run, "samples": total, "reason": reason}


def check_samples(op: Any, samples: list[Any], target: str, whole: bool) -> Iterator[str | None]:
    """Per sample None where the compiled operator agrees with eager, else why not, on one line."""
    whys = check_together(op, samples, target)
    if len(samples) == 1 or whys == [None] * len(samples):
        yield from whys
        return
    for sample in samples:
        why = check_together(op, [sample], target)[0]
        yield why
        if why is not None and not whole:
            return


def check_together(op: Any, samples: list[Any], target: str) -> list[str | None]:
    """One compiled function that calls the operator on every sample; per sample why it does not agree with eager."""
    import torch

    from tatami import backends

    calls = [((s.input, *s.args), dict(s.kwargs)) for s in samples]
    wanted, varies = [], []
    for args, kwargs in calls:
        torch.manual_seed(0)
        try:
            wanted.append(op(*fresh(args), **fresh(kwargs)))
        except Exception as error:  # the database has samples that its own operator refuses on this build
            return [f"eager: {one_line(error)}"] * len(samples)
        torch.manual_seed(1)
        again = op(*fresh(args), **fresh(kwargs))
        varies.append(op.name in UNDEFINED or (op.name not in NOT_UNIQUE and not same(again, wanted[-1])))

    def run(given: Any) -> Any:
        return [op(*args, **kwargs) for args, kwargs in given]

    torch._dynamo.reset()
    options = {"fallback": False, "target": target}
    try:
        got = torch.compile(run, backend=backends.torch_backend, fullgraph=True, dynamic=False, options=options)(fresh(calls))
    except Exception as error:
        return [one_line(error)] * len(samples)
    return [
        differ(mine, theirs, free) and differ(unique(op, s, mine), unique(op, s, theirs), free, partial(in_double, op, s, call))
        for s, call, mine, theirs, free in zip(samples, calls, got, wanted, varies, strict=True)
    ]


def unique(op: Any, sample: Any, result: Any) -> Any:
    """The part of a result that does not depend on the signs of its factors."""
    return sample.output_process_fn_grad(result) if op.name in NOT_UNIQUE else result


def in_double(op: Any, sample: Any, call: Any) -> Any:
    """The result of the operator on the same numbers in float64; None where it has none."""
    import torch
    from torch.utils._pytree import tree_map_only

    def wide(t: Any) -> Any:
        return t.double() if t.dtype == torch.float32 else t

    torch.manual_seed(0)
    args, kwargs = tree_map_only(torch.Tensor, wide, fresh(call))
    try:
        return unique(op, sample, op(*args, **kwargs))
    except (RuntimeError, TypeError, ValueError):
        return None


def fresh(value: Any) -> Any:
    """Tensors copied, with the memory around a view: operators may write into their arguments, and as_strided reads beyond."""
    import torch
    from torch.utils._pytree import tree_map_only

    def copied(t: Any) -> Any:
        if t.layout != torch.strided:
            return t.detach()
        if t.untyped_storage().nbytes() == t.numel() * t.element_size() or t.is_complex():
            return t.detach().clone()
        whole = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage().clone())
        return whole.as_strided(t.shape, t.stride(), t.storage_offset())

    return tree_map_only(torch.Tensor, copied, value)


def same(a: Any, b: Any) -> bool:
    import torch
    from torch.utils._pytree import tree_leaves

    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return all(torch.equal(x.nan_to_num(), y.nan_to_num()) if isinstance(x, torch.Tensor) and x.layout == torch.strided else True
               for x, y in pairs)  # fmt: skip


def differ(got: Any, wanted: Any, varies: bool, exact: Callable[[], Any] | None = None) -> str | None:
    """`exact` computes what both should be, where eager itself may be off by more than its tolerance."""
    import torch
    from torch.utils._pytree import tree_leaves

    mine, theirs = tree_leaves(got), tree_leaves(wanted)
    if len(mine) != len(theirs):
        return f"{len(mine)} results where eager has {len(theirs)}"
    for k, (x, y) in enumerate(zip(mine, theirs, strict=True)):
        if not isinstance(y, torch.Tensor):
            if type(x) is not type(y) or x != y:
                return f"a result is {x!r} where eager has {y!r}"
            continue
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            return f"a result is {x.dtype}{list(x.shape)} where eager has {y.dtype}{list(y.shape)}"
        if varies:
            continue
        try:
            torch.testing.assert_close(x, y, equal_nan=True, rtol=2e-5 if y.dtype == torch.float32 else None,
                                       atol=2e-5 if y.dtype == torch.float32 else None)  # fmt: skip
        except AssertionError as error:
            if exact is None or not is_as_near(x, y, tree_leaves(exact())[k]):
                return f"differs from eager: {one_line(error)}"
    return None


def is_as_near(mine: Any, eager: Any, exact: Any) -> bool:
    """True if no element is farther from the exact one than PyTorch's tolerance, or than eager's own."""
    if exact is None or not exact.is_floating_point() or exact.shape != mine.shape:
        return False
    off, theirs = ((t.double() - exact).abs() for t in (mine, eager))
    near = (off <= 2e-5 + 2e-5 * exact.abs()) | (off <= theirs)
    return bool((near | ((mine == eager) | (mine.isnan() & eager.isnan()))).all())


def check_errors(name: str, target: str) -> dict[str, Any]:
    """Samples of error_inputs raise, when compiled, what they raise in eager."""
    import torch

    from tatami import backends

    passed = total = 0
    reason = ""
    for op in variants(name):
        for case in op.error_inputs("cpu") if op.error_inputs_func is not None else ():
            sample = case.sample_input
            try:
                op(sample.input, *sample.args, **sample.kwargs)
            except Exception:
                total += 1
            else:
                continue  # an error of a variant that is called otherwise: eager raises nothing here
            torch._dynamo.reset()
            options = {"fallback": False, "target": target}
            run = torch.compile(lambda *a, _op=op, **k: _op(*a, **k), backend=backends.torch_backend, fullgraph=True,
                                dynamic=False, options=options)  # fmt: skip
            try:
                run(sample.input, *sample.args, **sample.kwargs)
                why = f"raises nothing where eager raises {case.error_type.__name__}"
            except case.error_type:
                passed += 1
                continue
            except Exception as error:
                if any(isinstance(e, case.error_type) for e in causes(error)) or case.error_regex in str(error):
                    passed += 1
                    continue
                why = f"raises {one_line(error)} where eager raises {case.error_type.__name__}"
            reason = reason or why
    return {"passed": passed, "run": total, "samples": total, "reason": reason}


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def one_line(error: BaseException) -> str:
    text = str(error)
    for line in text.splitlines():
        if "TatamiError:" in line:
            return line.split("TatamiError: ")[1][:300]
    useful = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("backend=")]
    return f"{type(error).__name__}: {' '.join(useful[:4])}"[:300]


def all_names() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(dict.fromkeys(op.name for op in op_db))


def passes(result: dict[str, Any] | None) -> bool:
    return result is not None and result["run"] > 0 and result["passed"] == result["run"]


def shown(reason: str) -> str:
    """A reason as a cell of the table: without the places of PyTorch's own files, and not too long."""
    short = re.sub(
        r" from user code: .*| at \w+ \([\w.]+:\d+\)|, \w+ \([\w.]+:\d+\)|E1606 UnsupportedModel at torch.compile: ", "", reason
    )
    return short[:160].replace("|", "\\|")
