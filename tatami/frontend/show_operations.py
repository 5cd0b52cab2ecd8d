"""The table of operations as a page: `docs/operations.md` is this text.

python -m tatami.frontend.show_operations > docs/operations.md
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tatami.core.codec import to_builtins
from tatami.core.expr import Expr
from tatami.frontend.operation import Operation
from tatami.frontend.ops_contraction import CONTRACTION
from tatami.frontend.ops_control import CONTROL
from tatami.frontend.ops_elementwise import ELEMENTWISE
from tatami.frontend.ops_indexing import INDEXING
from tatami.frontend.ops_kernel import KERNEL
from tatami.frontend.ops_kernel_body import KERNEL_BODY
from tatami.frontend.ops_movement import MOVEMENT
from tatami.frontend.ops_recurrent import RECURRENT
from tatami.frontend.ops_reduction import REDUCTION

FAMILIES: tuple[tuple[str, Sequence[Operation]], ...] = (
    ("Elementwise", ELEMENTWISE),
    ("Movement", MOVEMENT),
    ("Contractions", CONTRACTION),
    ("Reductions, norms, pools", REDUCTION),
    ("Creation, indexing, sorting", INDEXING),
    ("Recurrent layers", RECURRENT),
    ("Custom kernels", (*KERNEL, *KERNEL_BODY)),
    ("Other graphs", CONTROL),
)

_HEAD = """# Operations of the frontend

One row per operation of `tatami/frontend/ops.py` (this page is printed from that table). In Python each is
`x.op("name", other operands, attribute=value)`; the common ones are methods. Operands in brackets may be absent.
Shapes of elementwise operands are equal, or rank 0; nothing is cast or broadcast silently.
"""


def show_operations() -> str:
    parts = [_HEAD]
    for title, operations in FAMILIES:
        parts += [f"\n## {title}\n", "| operation | operands | attributes | meaning |", "|---|---|---|---|"]
        parts += [
            f"| `{o.name}` | {_operands(o)} | {_attributes(o)} | {o.doc.replace('|', chr(92) + '|')} |" for o in operations
        ]
    return "\n".join(parts) + "\n"


def _operands(o: Operation) -> str:
    if o.most < 0:
        return f"{o.least} or more"
    return str(o.least) if o.least == o.most else f"{o.least} [+{o.most - o.least}]"


def _attributes(o: Operation) -> str:
    out = []
    for f in msgspec.structs.fields(o.attrs):
        required = f.default is msgspec.NODEFAULT and f.default_factory is msgspec.NODEFAULT
        out.append(f"`{f.name}`" if required else f"`{f.name}={_text(f.default)}`")
    return " ".join(out)


def _text(value: object) -> str:
    if value is msgspec.NODEFAULT:
        return "{}"
    if isinstance(value, Expr):
        return str(value)
    plain = to_builtins(value)
    return "[]" if plain == () else "none" if plain is None else str(plain).lower() if isinstance(plain, bool) else str(plain)


if __name__ == "__main__":
    print(show_operations(), end="")
