"""The ledger: estimate and measurement of each kernel, a line per measured kernel, only ever appended (spec 3 §6.11, §13)."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path

from tatami.bench.measure import Measurement
from tatami.core.diagnostic import fail
from tatami.core.files.plain_file import open_to_append

COLUMNS = ("model", "target", "sizes", "kernel", "kind", "flops", "bytes", "occupancy", "estimate_s", "actual_s", "plan")
"""Names of the ledger's columns, in the order in which a line has them."""


def append_measurement(path: Path, model: str, target: str, sizes: Mapping[str, int], found: Measurement) -> None:
    """Append one line per kernel, in one write; a header first if the file is empty. Raises TatamiError FileUnwritable."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    at = " ".join(f"{n}={v}" for n, v in sizes.items())
    for t in found.timings:
        numbers = (t.flops, t.bytes, t.occupancy, t.estimate, t.seconds)
        cells = ("" if v is None else f"{v:.6g}" for v in numbers)
        out.writerow((plain(model), target, at, t.kernel, t.kind, *cells, t.plan))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open_to_append(path)
        try:
            head = ",".join(COLUMNS) + "\n" if os.fstat(handle).st_size == 0 else ""
            os.write(handle, (head + text.getvalue()).encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise fail("FileUnwritable", str(path), error.strerror or "cannot be written", "give another --ledger") from None


def plain(name: str) -> str:
    """A user's name as a cell: printable, and without the characters that begin a formula in a spreadsheet."""
    text = "".join(c if c.isprintable() else "?" for c in name)
    return text.lstrip("=+-@")
