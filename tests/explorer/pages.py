"""Pages that tests look at, and the walk from a thing to all that it comes from."""

from __future__ import annotations

from pathlib import Path

from tatami.core.dtype import DType
from tatami.explorer.document import explored, source_text
from tatami.explorer.ir import Explored
from tatami.frontend.graph import Graph
from tatami.prepare import prepare

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
ATTENTION = ROOT / "examples" / "harp" / "attention.harp"
HOSTILE = '"><img src=x onerror="document.title=1"><script>document.title=1</script>\u202e</script>'


def page_of(path: Path, target: str = "cpu:avx2") -> Explored:
    """The document of a model's page."""
    return explored(prepare(path, target=target), path.name, source_text(str(path)))


def hostile(name: str = HOSTILE) -> Graph:
    """A graph each of whose names is markup."""
    g = Graph(name)
    x, w = g.input(name, (16, 16), DType.fp32), g.input(f"{name} w", (16, 16), DType.fp32)
    g.output(f"{name} y", g.op("relu", g.op("matmul", x, w, node=f"{name}/a"), node=f"{name}/b"))
    return g


def origins(page: Explored, thing: int) -> dict[str, set[str]]:
    """Stage -> labels of all things that a thing comes from, itself among them."""
    seen, work = {thing}, [thing]
    while work:
        found = set(page.things.origins[work.pop()]) - seen
        seen |= found
        work += found
    out: dict[str, set[str]] = {}
    for t in seen:
        out.setdefault(page.stages[page.things.stage[t]].name, set()).add(page.things.label[t])
    return out


def thing_of(page: Explored, stage: str, text: str) -> int:
    """The thing of the first line of a stage that holds the text."""
    found = next(s for s in page.stages if s.name == stage)
    return next(t for line, t in zip(found.lines, found.things, strict=True) if text in line and t >= 0)
