"""Pages of the public API: one per name of `tatami.__all__` that is a function, a class or a module, from its docstrings.

api/README.md    names with the first sentence of their docstrings, and the dtypes
api/Graph.md     ::: tatami.frontend.graph.Graph
"""

from __future__ import annotations

from inspect import getdoc

import tatami as tt
from tatami.core.dtype import DType

FOLDER = "api"
HEAD = """# API

Names of the module `tatami`, which programs import as `tt`. Each has a page, made from its docstrings. Operations, which are
methods of a graph and of its tensors, are listed in [Operations](../operations.md).

| name | |
|---|---|
"""


def reference() -> dict[str, str]:
    """Pages by their path in the site, the list of names first."""
    names = [name for name in tt.__all__ if not isinstance(getattr(tt, name), DType)]
    dtypes = [name for name in tt.__all__ if name not in names]
    listed = "".join(f"| [`tt.{name}`]({name}.md) | {summary(getattr(tt, name))} |\n" for name in names)
    found = {f"{FOLDER}/README.md": f"{HEAD}{listed}\nDtypes: {', '.join(f'`tt.{name}`' for name in dtypes)}.\n"}
    for name in names:
        value = getattr(tt, name)
        path = value.__name__ if not hasattr(value, "__qualname__") else f"{value.__module__}.{value.__qualname__}"
        found[f"{FOLDER}/{name}.md"] = f"---\ntitle: {name}\n---\n\n::: {path}\n    options:\n      heading: tt.{name}\n"
    return found


def summary(value: object) -> str:
    """The first sentence of a docstring, on one line, for the cell of a table."""
    first = (getdoc(value) or "").split("\n\n")[0].split("\n")
    return " ".join(first).partition(". ")[0].rstrip(".:").replace("|", "\\|")
