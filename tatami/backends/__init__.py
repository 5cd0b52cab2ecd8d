"""Tatami inside other frameworks: the backend of torch.compile, the Backend API of ONNX.

    torch.compile(module, backend="tatami")                          found by its entry point
    torch.compile(module, backend="tatami", options={"fallback": False, "target": "cpu", "threads": 4})
    tatami.backends.explain()                                        the programs of every graph, and what stayed in PyTorch

    onnx_api          `onnx.backend.base.Backend`, offered as `tatami.onnx.backend`
    onnx_session      a session like ONNX Runtime's, offered as `tatami.onnx.InferenceSession`; with its options, values,
                      errors (onnx_session_*.py) and bound inputs and outputs (onnx_binding.py)
    torch_compile     the backend: AOTAutograd, options, one compiled graph per fx graph
    torch_partition   operators that stay in PyTorch: the graph cut around them
    torch_parameters  parameters packed once, and again when they change
    torch_program     a compiled program called with tensors: sizes, memory, results as PyTorch promises them
    torch_report      the report of what was compiled, what was not, and why

The framework is imported when its backend is used, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tatami.backends.torch_report import GraphReport


def torch_backend(gm: Any, example_inputs: Any, *, options: Any = None, mode: Any = None) -> Any:
    """The backend "tatami" of torch.compile: the compiled form of a graph of Dynamo."""
    from tatami.backends.torch_compile import compile_graph

    return compile_graph(gm, example_inputs, options, mode)


def torch_reports() -> list[GraphReport]:
    """A report for each graph that the backend of torch.compile has compiled since the process began or `reset`, oldest
    first."""
    from tatami.backends.torch_report import REPORTS

    return list(REPORTS)


def explain() -> str:
    """The reports as text: programs, kernels, operators that stayed in PyTorch and why, copies."""
    return "\n\n".join(r.text() for r in torch_reports()) or "torch.compile has given no graph to tatami yet"


def reset() -> None:
    """Forget the reports that `explain` lists."""
    from tatami.backends.torch_report import REPORTS

    REPORTS.clear()
