"""Unforeseen faults in a node: any Python error becomes one diagnostic at the node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

from tatami.core.diagnostic import TatamiError, fail
from tatami.onnx.importer import Importer


@contextmanager
def told_as_fault(m: Importer, op: str) -> Iterator[None]:
    """Context in which any Python error becomes a diagnostic at the node being imported: handlers rely on operands and
    attributes that are legal for the operator, and fail on others."""
    try:
        yield
    except TatamiError:
        raise
    except MemoryError:
        raise fail("OutOfMemory", m.site, f"this {op} needs more memory than there is", "check its sizes and counts") from None
    except RecursionError:
        raise fail("InputTooLarge", m.site, "expressions of sizes are nested too deeply", "give sizes as numbers") from None
    except Exception as error:
        frame = next((f for f in reversed(extract_tb(error.__traceback__)) if "tatami" in f.filename), None)
        place = f" ({Path(frame.filename).name}:{frame.lineno})" if frame is not None else ""
        what = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        raise fail(
            "InvalidDocument",
            m.site,
            f"the operands and attributes of this {op} do not fit together: {what}{place}",
            "run `tatami check` on the model; where it finds nothing, this is a fault of Tatami: report it",
        ) from error
