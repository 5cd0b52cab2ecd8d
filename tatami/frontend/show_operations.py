"""The table of operations as a page: `docs/operations.md` is this text, with the test that exercises each operation
(tests/frontend/test_show_operations.py finds it by looking at the graphs that the tests build)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tatami.core.codec import to_builtins
from tatami.core.expr import Expr
from tatami.frontend.graph_api.spellings import spelling
from tatami.frontend.operation import Operation
from tatami.frontend.operations.collectives import COLLECTIVE
from tatami.frontend.operations.contraction import CONTRACTION
from tatami.frontend.operations.control import CONTROL
from tatami.frontend.operations.creation import CREATION
from tatami.frontend.operations.elementwise import ELEMENTWISE
from tatami.frontend.operations.indexing import INDEXING
from tatami.frontend.operations.kernel import KERNEL
from tatami.frontend.operations.kernel_body import KERNEL_BODY
from tatami.frontend.operations.movement import MOVEMENT
from tatami.frontend.operations.recurrent import RECURRENT
from tatami.frontend.operations.reduction import REDUCTION
from tatami.frontend.operations.trees import TREES

FAMILIES: tuple[tuple[str, Sequence[Operation]], ...] = (
    ("Elementwise", ELEMENTWISE),
    ("Movement", MOVEMENT),
    ("Contractions", CONTRACTION),
    ("Reductions, norms, pools", REDUCTION),
    ("Creation, indexing, sorting", (*CREATION, *INDEXING)),
    ("Recurrent layers", RECURRENT),
    ("Trees", TREES),
    ("Custom kernels", (*KERNEL, *KERNEL_BODY)),
    ("Exchanges with other processes", COLLECTIVE),
    ("Other graphs", CONTROL),
)
"""(heading, rows of the table), in the order of the page."""

_HEAD = """# Operations of the frontend

One row per operation of `tatami/frontend/ops.py`; this page is printed from that table (`make update-golden`).

Every operation of a row
- is `x.op("name", other operands, attribute=value)` in Python, and what the second column says;
- has the same name in [the .harp language](language.md), as a function or a method: `name(x, attribute=value)`
  (`tests/harp/test_every_operation.py`);
- has a numpy meaning, the reference (`tatami/frontend/meaning/*.py`), and a lowering (`tatami/tiny/lowering/*.py`) that is compiled for the CPU;
- is compared in the test of the last column: reference and compiled kernels against numpy or PyTorch, and drawn by the
  random graphs (`python -m tests.random_models.generated_graphs`).

Operands in brackets may be absent. Shapes of elementwise operands are equal, or rank 0; nothing is cast or broadcast
silently.
"""

_FEATURES = """
## Forms made of several operations

| feature | in Python | in .harp | test |
|---|---|---|---|
| numbers on either side of an operator | `1 / x`, `2.0 ** x` | the same | `tests/frontend/oracles/operators.py::arithmetic_as_written` |
| numpy's slices: steps, ends beyond the axis, None, `...` | `x[1:, ::-2, None]` | the same | `tests/frontend/oracles/operators.py::indexing_as_in_numpy` |
| an index tensor or list | `x[:, i]`, `x[[2, 0]]` | `take` | `tests/frontend/oracles/operators.py::indexing_by_tensors` |
| equal shapes or rank 0; else the `expand` to write | `x + row` is E1001 | the same | `tests/frontend/test_graph.py::test_mismatch_names_the_expand_to_write` |
| dtypes are inferred; a number adopts its neighbour's | `g.number(2)` | literals | `tests/frontend/test_graph.py::test_a_number_that_meets_nothing_is_an_error` |
| sizes that stay symbols | `g.input("x", ("B", "2*N"), tt.fp32)` | `x: f32[B, 2*N]` | `tests/rows/test_graph.py::test_related_sizes_run_without_recompiling` |
| graphs called like functions, several results | `g.call(f, x)` | `f(x)` | `tests/rows/test_graph.py::test_a_call_with_two_results_is_one_node` |
| a wrong argument of any method is one diagnostic | | | `tests/api/test_wrong_arguments.py::test_a_method_of_a_tensor` |
| compositions are one kernel | `explain` | | `tests/frontend/test_one_kernel.py::test_a_composition_is_one_kernel` |
| views compose pointwise | | | `tests/core/test_view_compose.py::test_composition_of_every_pair_is_pointwise` |
| DOT of any graph | `g.to_dot()` | | `tests/rows/test_graph.py::test_dot_shows_every_node_and_edge` |
| random graphs of the whole vocabulary | | | `tests/random_models/test_generated_models.py::test_graphs_of_the_whole_vocabulary_agree_with_their_meaning` |
"""


def show_operations(cited: Mapping[str, str]) -> str:
    """The text of the page. `cited`: operation -> the test that exercises it."""
    parts = [_HEAD]
    for title, operations in FAMILIES:
        parts += [
            f"\n## {title}\n",
            "| operation | Python | operands | attributes | meaning | test |",
            "|---|---|---|---|---|---|",
        ]
        parts += [
            f"| `{o.name}` | `{_cell(spelling(o.name))}` | {_operands(o)} | {_attributes(o)} | {_cell(o.doc)} | {cited.get(o.name, '')} |"
            for o in operations
        ]
    return "\n".join(parts) + "\n" + _FEATURES


def _cell(text: str) -> str:
    return text.replace("|", chr(92) + "|")


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
