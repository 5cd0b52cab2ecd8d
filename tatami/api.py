"""Compiling a model into a callable (design §4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tatami.build import build
from tatami.compilation import Compilation
from tatami.compiled_function import CompiledFunction, StageView
from tatami.core.diagnostic import fail
from tatami.core.faults.arguments import (
    bool_argument,
    cluster_argument,
    count_argument,
    path_argument,
    seconds_argument,
    sizes_argument,
)
from tatami.decisions import Decisions
from tatami.prepare import SizeRequest, TargetRequest, prepare, prepare_saved
from tatami.runtime.function import Function

if TYPE_CHECKING:
    from tatami.progress import ProgressRequest

Decided = Decisions | dict[str, object] | str | Path | None
"""A decisions document, as a caller passes it."""

__all__ = ["Compilation", "CompiledFunction", "Function", "StageView", "build", "compile", "load", "prepare"]


def compile(
    model: object,
    example_inputs: object = None,
    *,
    dynamic_shapes: object = None,
    target: TargetRequest = None,
    sizes: Mapping[str, SizeRequest | Sequence[SizeRequest | tuple[int, int]]] | None = None,
    threads: int | None = None,
    precision: str | None = None,
    decisions: Decided = None,
    trust: bool = False,
    progress: ProgressRequest = None,
    max_specialisations: int | None = None,
    tune: float | None = None,
    ray: str | None = None,
) -> CompiledFunction:
    """Compile `model` for `target` into a Function.

    target: a name, a Target, its document or a .json file of it; None for the machine that a document was made for, else this CPU.
    model: a path (.onnx, .json, the folder of a dump), the bytes of an .onnx file, a Graph, a document, an onnx.ModelProto, a torch.nn.Module or an ExportedProgram.
    example_inputs: values for inputs of an ONNX model that are to be constant; for a torch module, the arguments to export it with; `dynamic_shapes` marks their open sizes as in torch.export.
    sizes: values of size symbols to specialise on, or (least, usual, greatest) to choose plans for the usual one; a list of numbers and ranges requests a program for each, in addition to the one that serves all: {"B": [1, 8, (16, 512)]}.
    precision: type that contractions of fp32 multiply in, "bf16" for example; "int8" rounds the rows that weights of 4 and 8 bits in blocks meet; None: that of the model.
    threads: default TATAMI_NUM_THREADS, else OMP_NUM_THREADS, else the cores that affinity and quotas leave.
    progress: True for a bar on stderr (where that is a terminal), or a function told (what, done, total).
    max_specialisations: programs kept for sizes that the program for all sizes does not serve (64); 0 refuses such calls.
    tune: seconds to search for faster plans by measuring, at the sizes given or usual ones (docs/tune.md); None: no search.
    ray: address of a Ray cluster that measures, on its nodes that are machines like this one; None: this machine.
    Raises TatamiError with at least one Diagnostic.
    """
    from tatami.progress import shown
    from tatami.runtime.cores import thread_count
    from tatami.specialised.shape_sets import compile_shape_set

    asked = sizes_argument(sizes)
    bool_argument(trust, "trust")
    thread_count(threads)
    max_specialisations = count_argument(max_specialisations, "max_specialisations")
    seconds = seconds_argument(tune)
    cluster = cluster_argument(ray, bool(seconds))
    with shown(progress) as report:

        def prepared(given: object, fixed: Mapping[str, SizeRequest], decided: Decided) -> Compilation:
            return prepare(
                given,
                example_inputs=example_inputs if given is model else None,
                dynamic_shapes=dynamic_shapes if given is model else None,
                target=target,
                sizes=fixed,
                precision=precision,
                decisions=decided,
                trust=trust,
                progress=report,
            )

        def compiled(given: object, fixed: Mapping[str, SizeRequest]) -> CompiledFunction:
            compilation = prepared(given, fixed, decisions)
            if seconds:
                from tatami.search.tune import tuned

                compilation = prepared(given, fixed, tuned(compilation, seconds, {}, threads, cluster))
            return build(compilation, threads)

        most = max_specialisations if example_inputs is None else 0  # the examples stand for every call
        return compile_shape_set(model, asked, compiled, most)


def load(path: str | Path, *, trust: bool = False, threads: int | None = None) -> CompiledFunction:
    """A program that `f.save` wrote, for the target it was compiled for, or this CPU if that target does not run here.

    trust: its machine code may run as it is; else the program is compiled again from the documents in the file, through
    the cache. Raises TatamiError.
    """
    from tatami.runtime.cores import thread_count
    from tatami.runtime.machine.host import runs_here
    from tatami.storage.tatami_file import SUFFIX, open_saved

    path = path_argument(path, "path")
    bool_argument(trust, "trust")
    thread_count(threads)
    if Path(path).suffix.lower() != SUFFIX:
        raise fail("UnknownFormat", str(path)[:200], f"a saved program has the suffix {SUFFIX}", "compile other models")
    saved = open_saved(Path(path), trust=trust)
    target = saved.manifest.target if runs_here(saved.manifest.target) else "cpu"
    return build(prepare_saved(saved, target, trust=trust), threads, saved.manifest.sizes)
