"""The result of `tt.compile`: a Function with the stages it came from, their explanation, pictures and file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tatami.compilation import Compilation
from tatami.core.diagnostic import fail
from tatami.core.document import document_text
from tatami.core.faults.arguments import path_argument, text_argument
from tatami.core.module import Module
from tatami.core.target import Target
from tatami.runtime.function import Function, LoadedProgram
from tatami.stages import BY_NAME, STAGES, show
from tatami.storage.dump import to_document

if TYPE_CHECKING:
    from tatami.core.numbers.numerics import Array
    from tatami.execution.ir import ExecutionPlan
    from tatami.explorer.html import Page


class StageView:
    """One stage of a compiled function: `value`, `text` for people, `json` for programs."""

    def __init__(self, name: str, value: Module[Any], target: Target) -> None:
        self.name = name
        self.value = value
        self._target = target

    @property
    def text(self) -> str:
        """The text of the stage for people, as in a dump."""
        return show(self.name, self.value)

    @property
    def json(self) -> str:
        """The document of the stage, from which the compiler can be restarted."""
        return document_text(to_document(self.name, self.value, self._target))


class CompiledFunction(Function):
    """A Function with the compilation that made it."""

    def __init__(
        self,
        compilation: Compilation,
        execution: Module[ExecutionPlan],
        program: LoadedProgram[Any],
        sizes: Mapping[str, int] | None,
    ) -> None:
        super().__init__(execution, program, sizes=sizes)
        self.compilation = compilation

    @property
    def stages(self) -> Mapping[str, StageView]:
        """Name -> stage, each made when it is looked up."""
        return StageViews(self.compilation)

    def explain(self) -> str:
        """The report as text: what fused and what did not, with reasons; plans chosen and rejected."""
        from tatami.report.explain import explain

        return explain(self.compilation)

    def explore(self, name: str = "model", source: str = "") -> Page:
        """The compilation as one page for a browser: every stage, linked from the model's node to the line of C or CUDA. A
        notebook shows it; `.save(path)` writes the file. `name`: the title; `source`: the model's text, if it is one."""
        from tatami.explorer.document import explored
        from tatami.explorer.html import Page, html

        name, source = text_argument(name, "name"), text_argument(source, "source")
        return Page(html(explored(self.compilation, name, source, self.sizes)))

    def to_dot(self) -> str:
        """The model as DOT text, the operations of each kernel in a cluster."""
        from tatami.core.drawing.dot import dot
        from tatami.report.compiled_picture import compiled_picture

        return dot(compiled_picture(self.compilation))

    def to_svg(self) -> str:
        """The model as an SVG document, which notebooks show for the function."""
        from tatami.core.drawing.svg import svg
        from tatami.report.compiled_picture import compiled_picture

        return svg(compiled_picture(self.compilation))

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def save(self, path: str | Path) -> Path:
        """Write the program to a `.tatami` file: documents, constants and machine code. `tt.load` reads it, and every command
        takes it as a MODEL. Raises FileUnwritable."""
        from tatami.storage.tatami_file import save

        return save(path_argument(path, "path"), self.compilation, self.sizes)

    def fetch(self, name: str, /, **inputs: Array) -> Array:
        """The value of a node (any stage's id or name), computed by the first stage that has it. Raises UnknownName."""
        from tatami.report.playback import fetch

        return fetch(self.compilation, (text_argument(name, "name"),), inputs, self.sizes)[name]


class StageViews(Mapping[str, StageView]):
    """`f.stages`: a mapping by stage name, in which a stage is made when it is looked up."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation

    def __getitem__(self, name: str) -> StageView:
        if not isinstance(name, str) or name not in BY_NAME or name not in self._compilation.stages:
            raise fail("UnknownName", str(name)[:80], "this program has no such stage", f"it has {', '.join(self)}")
        return StageView(name, self._compilation.stages[name], self._compilation.target)

    def __iter__(self) -> Iterator[str]:
        return (s.name for s in STAGES if s.name in self._compilation.stages)

    def __len__(self) -> int:
        return sum(1 for _ in self)
