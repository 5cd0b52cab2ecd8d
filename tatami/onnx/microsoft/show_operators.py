"""The operators of ONNX Runtime's own domains as a page: `docs/onnx-microsoft.md` is this text, which a test compares."""

from __future__ import annotations

from tatami.onnx.microsoft.not_taken import LIMITS, NOT_TAKEN
from tatami.onnx.microsoft.table import MICROSOFT, NCHWC, NHWC

_HEAD = """# Operators of ONNX Runtime's own domains

ONNX Runtime writes operators of its own when it saves an optimised model, and its quantisation and transformer tools do so
too. Tatami takes them by their documented meaning ([Contrib Operator Schemas][docs]); where the text leaves something open,
ONNX Runtime's CPU kernels decide. Each becomes the operations of its plain form, so fusion finds the same kernels, and each
is compared with ONNX Runtime in `tests/onnx/microsoft/`, on open batches and lengths where it has them. This page is printed
from the table of the importer (`make update-golden`).

[docs]: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

_OTHERS = """
## Other domains

| domain | operators | how |
|---|---|---|
| `com.microsoft.nchwc` | {nchwc} | a blocked image is [N, C, H, W] with channels of zeros at its end; filters are put in order again. \
The block of the machine that saved the model (8 or 16 channels) follows from the filters, or is this machine's |
| `com.ms.internal.nhwc` | {nhwc} | the plain operator between two transpositions |
| ONNX's own | SimplifiedLayerNormalization | `rms_norm` |
"""


def show_operators() -> str:
    """The page as Markdown text."""
    count = f"{len(MICROSOFT)} of {len(MICROSOFT) + len(NOT_TAKEN)} operators are taken."
    rows = ["", "## com.microsoft", "", count, "", "| operator | | remark |", "|---|---|---|"]
    for name in sorted({*MICROSOFT, *NOT_TAKEN}):
        taken = name in MICROSOFT
        rows.append(f"| {name} | {'taken' if taken else 'no'} | {LIMITS.get(name, '') if taken else NOT_TAKEN[name]} |")
    others = _OTHERS.format(nchwc=", ".join(sorted(NCHWC)), nhwc=", ".join(sorted(NHWC)))
    return _HEAD + "\n".join(rows) + "\n" + others
