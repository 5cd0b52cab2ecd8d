"""The document of a page (decision 0094).

    Explored = about the compilation, stages, things, kernels, graph, memory, measured times, searches
    a stage  = its text by lines, each with the number of the thing that it tells of
    a thing  = a node, a value, a Region, a let, a kernel, a register: its stage, its label, the things it comes from

The walk over `Things.origins`, up and down, leads from a line to all that it comes from and all that became of it. Nothing here is read back by the
compiler: documents of stages are.
"""

from __future__ import annotations

import msgspec

NOTHING = -1
"""The thing of a line that tells of nothing alone."""


class StageText(msgspec.Struct, frozen=True):
    """The text of a stage. `things`: per line, the number of its thing, or NOTHING."""

    name: str
    lines: tuple[str, ...]
    things: tuple[int, ...]


class Things(msgspec.Struct, frozen=True):
    """All things, column by column; the number of a thing is its place. `stage`: number of its stage; `origins`: things of
    earlier stages, or the enclosing thing of its own, that it comes from."""

    stage: tuple[int, ...]
    label: tuple[str, ...]
    origins: tuple[tuple[int, ...], ...]


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan that was not chosen, on one line, with the rule or the comparison that it loses. `seconds`: its estimate; `terms`: all
    of the estimate as text."""

    plan: str
    why: str
    seconds: float | None = None
    terms: str = ""


class Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan of a kernel. `when`: conditions on sizes, empty for always; `lines`: its fields as text; `fields`: as JSON values;
    `terms`: its estimate as text."""

    when: str
    plan: str
    lines: tuple[str, ...]
    fields: dict[str, object]
    terms: str = ""
    seconds: float | None = None
    """Estimate of the plan, at the sizes of the rejected plans' estimates."""
    budget: str = ""
    """Shares of registers and shared memory on a GPU, as text."""


class Neighbour(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge to another kernel: the rule by which the two are separate, and the reason in this case."""

    producer: str
    consumer: str
    other: str
    rule: str
    why: str = ""


class Lane(msgspec.Struct, frozen=True):
    """A role or a unit of an SM in a time line. `spans`: begin and end in cycles, and the number of the token in `Pipeline.tokens` that
    it waits for, -1 while it works."""

    name: str
    is_role: bool
    spans: tuple[tuple[int, int, int], ...]


class Pipeline(msgspec.Struct, frozen=True):
    """The simulated pipeline of a GPU kernel: the first `tiles` of one SM, `blocks` of their `of_blocks` blocks each."""

    lanes: tuple[Lane, ...]
    tokens: tuple[str, ...]
    cycles: float
    clock: float
    tiles: int
    blocks: int
    of_blocks: int


class Kernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Region or a step as a row. `thing`: the thing in `region` (or `execution`) to go to; `nodes`: things of the model.

    flops, bytes: at the page's sizes, None where data decide a size. estimate, seconds, bound: in seconds; `seconds` is measured,
    `bound` what the machine's peaks allow. key: names the Region in decisions."""

    program: str
    name: str
    kind: str
    thing: int
    sources: tuple[str, ...]
    nodes: tuple[int, ...] = ()
    symbols: tuple[str, ...] = ()
    flops: float | None = None
    bytes: float | None = None
    work: str = ""
    """Formulas of flops and bytes over size symbols."""
    estimate: float | None = None
    seconds: float | None = None
    bound: float | None = None
    wave: int = -1
    key: str = ""
    by: str = ""
    """The one who chose the plan: `planner`, `tuned` (a table that ships with Tatami) or `user` (a decisions document)."""
    choices: tuple[Choice, ...] = ()
    rejected: tuple[Candidate, ...] = ()
    separate: tuple[Neighbour, ...] = ()
    moves: str = ""
    """For a kernel that only copies, the reason."""


class GraphNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of the model. `inputs`: numbers of nodes of the same graph; `kernel`: number of its row, -1 for none; `path`: its
    modules, outermost first; `thing`: its line in `frontend`."""

    op: str
    name: str
    type: str
    inputs: tuple[int, ...]
    thing: int
    kernel: int = -1
    path: tuple[str, ...] = ()
    kind: str = "operation"
    edges: tuple[str, ...] = ()
    """Per input, the dtype and shape of the tensor that comes from it."""


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """A buffer of the arena: bytes [offset, offset + bytes) from instruction `first` through `last`."""

    id: str
    type: str
    offset: int
    bytes: int
    first: int
    last: int
    thing: int = NOTHING


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arena of a program. `steps`: names of its instructions; `peak`: its bytes; `without_reuse`: the sum of all buffers;
    `missing`: the reason why there is no picture."""

    program: str
    steps: tuple[str, ...] = ()
    waves: tuple[int, ...] = ()
    blocks: tuple[Block, ...] = ()
    peak: int = 0
    without_reuse: int = 0
    missing: str = ""


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stage run on the inputs of playback. `error`: the largest relative error; `output`, `differs`: the first output that
    differs from the reference, and where; `skipped`: the reason why the stage was not run."""

    stage: str
    error: float = 0.0
    output: str = ""
    differs: str = ""
    skipped: str = ""


class Peaks(msgspec.Struct, frozen=True):
    """Rates of the machine: floating-point operations and bytes per second. `measured`: False if they are those of its
    description."""

    flops: float
    memory: float
    cache: float
    measured: bool


class Tried(msgspec.Struct, frozen=True, omit_defaults=True):
    """A candidate of a search. `verdict`: the last word about it; `estimate`, `seconds`: by the cost model and measured; `ratios`:
    in each round that it was timed in, its time over that of the compiler's own decision;
    `is_tested`: True if the last of them is the test, by turns of its own."""

    plan: str
    verdict: str
    why: str = ""
    estimate: float | None = None
    seconds: float | None = None
    ratios: tuple[float, ...] = ()
    is_winner: bool = False
    is_tested: bool = False


class Searched(msgspec.Struct, frozen=True, omit_defaults=True):
    """Kernels for which other decisions were measured. `stage`: structure (kernels cut or joined) or plans; `kernels`: their names
    in the program of the search; `key`: of their plan; `share`: of the program's time; `own`: the compiler's own decision, with its
    seconds estimated and measured; `note`: the reason why the fastest candidate did not win."""

    stage: str
    line: str
    kernels: tuple[str, ...]
    key: str
    share: float
    own: str
    sizes: str
    caches: str
    own_estimate: float | None = None
    own_seconds: float | None = None
    tried: tuple[Tried, ...] = ()
    note: str = ""


class Moment(msgspec.Struct, frozen=True):
    """The best that a search knew. `at`: seconds since its begin, without pauses between runs; `seconds`: of the program; `what`:
    what was found then."""

    at: float
    seconds: float
    what: str


class Changed(msgspec.Struct, frozen=True):
    """Kernels for which something else was decided, with their seconds before and after."""

    kernels: tuple[str, ...]
    key: str
    before: float
    after: float
    old: str
    new: str


class Tuning(msgspec.Struct, frozen=True, omit_defaults=True):
    """A search, from the ledger. `sizes`: values of size symbols; `before`, `after`: seconds of the whole program, `ratio` the median
    of the turns' ratios; `correlation`: rank correlation of estimates and times among the candidates of a subject, in the mean;
    `left`: number of subjects whose search has not ended, -1 for a search that was interrupted."""

    sizes: dict[str, int]
    threads: int
    searches: tuple[Searched, ...]
    moments: tuple[Moment, ...]
    changes: tuple[Changed, ...] = ()
    dropped: tuple[str, ...] = ()
    before: float | None = None
    after: float | None = None
    ratio: float | None = None
    turns: int = 0
    correlation: float | None = None
    left: int = -1


class Explored(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a page shows. `sizes`: the values of size symbols at which figures are taken; `whole`: measured seconds
    of the program; `decisions`: the document for --decisions that repeats this compilation."""

    tatami: str
    model: str
    target: str
    sizes: dict[str, int]
    stages: tuple[StageText, ...]
    things: Things
    kernels: tuple[Kernel, ...]
    graphs: dict[str, tuple[GraphNode, ...]]
    memory: tuple[Memory, ...]
    decisions: dict[str, object]
    peaks: Peaks | None = None
    checks: tuple[Check, ...] = ()
    """Playback of the stages that compute, in order; empty if it was not requested."""
    whole: float | None = None
    warnings: tuple[str, ...] = ()
    report: str = ""
    """The text of `tatami explain`."""
    pipelines: dict[str, Pipeline] = {}
    """Key of a plan -> the time line of the kernels that have it."""
    tunings: tuple[Tuning, ...] = ()
    """Searches for this program, one for each tuple of sizes."""
    schema: int = 1
