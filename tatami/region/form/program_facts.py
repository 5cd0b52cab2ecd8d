"""Look-up tables of a program, from which all its Regions are formed."""

from __future__ import annotations

import msgspec

from tatami.core.algebra.assumed import Assumed
from tatami.core.layout import Layout
from tatami.indexbook.ir import IndexBook
from tatami.poly_view.ir import ContractionPattern, Edge, Statement
from tatami.region.form.stored_values import Stored
from tatami.tiny import ir as tiny


class ProgramFacts(msgspec.Struct, frozen=True):
    """Look-up tables that forming any Region of a program needs."""

    program: tiny.Program
    nodes: dict[str, tiny.Node]
    book: IndexBook
    statements: dict[str, Statement]
    edges: dict[tuple[str, str], Edge]
    patterns: dict[str, ContractionPattern]
    readers: dict[str, set[str]]
    writer: dict[str, str]
    """Value → the Region that writes it to memory, for every value that some reader needs there."""
    layouts: dict[str, Layout]
    symbols: frozenset[str]
    stored: dict[str, Stored]
    """Values that are stored between Regions as one of their movements."""
    assumed: Assumed
    """Sizes that the program's signature declares equal."""
