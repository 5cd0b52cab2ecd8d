"""How: a schedule per Region, a layout per value (spec 3 §8, §11).

A schedule has outer axes (common to all lets: the parallel tile), a list of passes over them (each let in exactly one
pass, or recomputed), and storage per let. Every rejected candidate says why, in numbers.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from tatami.core.kernel import Condition
from tatami.core.layout import Layout
from tatami.core.renaming import Mark

AXIS, LET, READ, WRITTEN = Mark("axis"), Mark("let"), Mark("tensor read"), Mark("tensor written")
AxisName: TypeAlias = Annotated[str, AXIS]
"""Name of an axis of the Region; in GPU plans possibly with a suffix for a part of its tile (``m.o``)."""
LetName: TypeAlias = Annotated[str, LET]
"""Name of a let of the Region."""
ReadName: TypeAlias = Annotated[str, READ]
"""Name of a tensor that the Region reads."""
WrittenName: TypeAlias = Annotated[str, WRITTEN]
"""Name of an output of the Region."""
Storage: TypeAlias = Literal["register", "row", "tile", "workspace", "recompute"]
TileOrder: TypeAlias = Literal["row", "grouped", "hilbert"]
Dot: TypeAlias = Literal["", "pairs", "quads", "pairs_vnni", "quads_vnni", "quads_amx", "pairs_bf16", "blocks_vnni"]
DOT_COUNT: dict[Dot, int] = {
    "": 1,
    "pairs": 2,
    "quads": 4,
    "pairs_vnni": 2,
    "quads_vnni": 4,
    "quads_amx": 4,
    "pairs_bf16": 2,
    "blocks_vnni": 1,
}
"""Steps of k per multiply-add of the micro-kernel (region/views/narrow.py)."""
DOT_FEATURE: dict[Dot, str] = {
    "pairs_vnni": "vnni", "quads_vnni": "vnni", "quads_amx": "amx_int8", "pairs_bf16": "bf16", "blocks_vnni": "vnni",
}  # fmt: skip
"""Feature that a target needs for the multiply-add."""
DOTS_OF_ANY_SIGNS: frozenset[Dot] = frozenset({"quads", "quads_amx"})
"""Quads whose two operands may both be signed or both be unsigned."""
DOTS_OF_FLOATS: frozenset[Dot] = frozenset({"pairs_bf16"})
"""Pairs of bf16, whose sums are fp32; all others are of integers."""
IN_PLACE_PITCH = 1024
"""Minimum bytes between rows of columns for which they are read in place, row by row, if there is one panel."""
AMX_TILE = (32, 32)
"""(mr, nr) of products by AMX tiles: four tiles of 16x16 sums."""
INST_K = {"m16n8k16": 16, "m16n8k8": 8}
"""Depth of the tensor cores' instructions on SM80: two chunks of 16 bytes of a row."""
TILE_GROUP = 8
"""Rows of tiles that the tile orders "grouped" and "hilbert" visit together, so that their operands stay in L2."""
AUTO_STAGES = -1
"""The `stages` of a decided plan that says "auto", before the plan is obeyed."""
TWO_PASS = "streaming_softmax_2pass"
"""The algorithm of attention that passes twice over the keys."""
TURNED_LANES = (4, 8, 16)
"""Vector lengths, in elements, for which a square of vectors can be transposed in registers."""


class Pass(msgspec.Struct, frozen=True, omit_defaults=True):
    """Loops over `axes` (outermost first), inside the schedule's outer axes, that compute `lets` in order. The full rule is
    `plan/loops/schedule.py`."""

    axes: tuple[AxisName, ...]
    lets: tuple[LetName, ...]


class LoopPass(msgspec.Struct, frozen=True, omit_defaults=True):
    """Loops over `axes`, outermost first, inside the outer axes of a phase, that compute `lets` in order at every point. A
    reduce has its own loops inside; neighbouring reduces over the same axes share them, and one over exactly `axes`, without
    axes of its own other than the phase's, is folded over the loops of the pass."""

    axes: tuple[AxisName, ...]
    lets: tuple[LetName, ...]
    vector: AxisName = ""
    """The axis whose loop steps by a vector; "": one element at a time."""
    tile: AxisName = ""
    """The axis along which reads are contiguous while they jump along the lanes (a transpose): lanes go in blocks outside it."""
    along: dict[LetName, AxisName] = {}
    """The axis that a reduce goes along by vectors where its point has no lanes; of reduces that share loops the first is named."""


class LoopPhase(msgspec.Struct, frozen=True, omit_defaults=True):
    """Passes, one after the other, inside loops over `outer`. Without outer axes a phase has one pass, or two with a row in
    tiles between them."""

    outer: tuple[AxisName, ...]
    threads: tuple[AxisName, ...]
    """The axes whose points threads share: leading outer axes, or axes of the only pass; with the axis of its vectors, which
    are then shared in blocks, where no other is left. (): one thread. How many take part is decided by the sizes of a call."""
    passes: tuple[LoopPass, ...]
    group: int = 1
    """Neighbouring points of the last outer axis that are computed together, so that one load of a shared operand serves all."""


class Scalar(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="scalar"):
    """Plain loops, one element at a time: correct for every Region. An opaque one has no phases."""

    phases: tuple[LoopPhase, ...]
    storage: dict[LetName, Storage]
    joined: tuple[tuple[AxisName, ...], ...] = ()
    """Groups of neighbouring axes that are one loop, which has the name of the first."""


class Blocks(msgspec.Struct, frozen=True, omit_defaults=True):
    """Long lines cut into blocks of `size` elements of `axis`, along which reduces or scans run.

    A block has a partial result of its own: the reduction of its elements, or the prefixes of a scan within it. Partials
    are joined in the order of the blocks, so that the result depends on sizes alone, never on threads.

    A reduce along the axis becomes two: along `axis.i` within a block and along `axis.b` over the blocks (and a rest along
    `axis.e`); phases say who computes them. A scan with `round` 0 carries the total from block to block. Else all threads make
    the partials of `round` blocks of a line, which are carried on, and all make the results of these blocks while what they
    read is in cache.
    """

    axis: AxisName
    size: int
    round: int = 0


class CpuRows(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="cpu_rows"):
    """Fused loops with vectors of `width` elements of fp32 and a tail. `plan/views/nest_form.py` has the lets and axes that phases
    speak of, `plan/loops/phase_rules.py` what holds.

    `storage`: register, in its pass only; row, for the passes of its phase, one per outer point in flight; workspace, whole,
    for later phases; tile, the rows that a tile of the next pass reads; recompute, in no pass: evaluated inside its users.
    """

    phases: tuple[LoopPhase, ...]
    storage: dict[LetName, Storage]
    width: int
    joined: tuple[tuple[AxisName, ...], ...] = ()
    """Groups of neighbouring axes that are one loop, which has the name of the first."""
    turned: tuple[LetName, ...] = ()
    """Sums that read a copy of an operand in which their lanes are neighbours."""
    blocks: Blocks | None = None
    nontemporal: tuple[WrittenName, ...] = ()
    """Outputs that are stored past the caches, which could not hold them until they are read."""


class CpuContraction(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_contraction"):
    """Packed panels and a register-tiled micro-kernel of mr x nr elements over kc (notes: cpu §1).

    `swap` exchanges the roles of lhs and rhs, so that the wide operand is the n side. `split` names the group that threads
    divide: batch, m, n, or k in `parts`, whose sums are then added. `nc` columns are copied, or read, together, and blocks have
    `mc` rows; what bounds nothing is one tile: `mc` if threads divide columns, `nc` if columns are not read together. `packed` names
    operands whose panels `setup` writes once. `in_place` names the sides whose operand is used in place, without a copy
    (conditions: region/views/matrix.py). `dot`: narrow integers are packed and multiplied in pairs or quads of k, which kc
    then counts (region/views/narrow.py); by VNNI or AMX tiles if its name says so. Quads without either are widened by the
    micro-kernel: half the bytes of pairs, for a third more instructions. `images`: axes of one side that are taken one index
    at a time, like batch axes; the other axes of that side then form a matrix, as the places of one image do in a 1x1
    convolution."""

    acc: LetName
    mr: int
    nr: int
    kc: int
    mc: int
    nc: int
    width: int
    swap: bool
    split: Literal["batch", "m", "n", "k"]
    packed: tuple[ReadName, ...]
    epilogue: tuple[LetName, ...]
    in_place: tuple[Literal["m", "n"], ...] = ()
    dot: Dot = ""
    parts: int = 1
    images: tuple[AxisName, ...] = ()

    @property
    def by_tiles(self) -> bool:
        """True if the micro-kernel uses AMX tiles of a fixed size on rows of k in place, instead of panels in registers."""
        return self.dot == "quads_amx"


class CpuStreaming(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_streaming"):
    """Two contractions in one pass over blocks of `keys` columns of the first, so that the values between them stay in cache
    (conditions: region/views/pairs/online.py). `mr` x `nr` is the tile of the micro-kernel, nr rows wide; `width` is in
    elements of fp32."""

    first: LetName
    second: LetName
    mr: int
    nr: int
    keys: int
    width: int


class CpuWindow(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_window"):
    """A window that slides over a plane: blocks of `rows` rows of results, whose operand rows are copied without guards to
    scratch (conditions: region/views/images/window.py). The operand rows of `ahead` blocks are copied before the first of them
    is computed, so that no load waits for stores. `let` is the reduce; `width` is in elements of fp32. `whole`: a block is a
    plane, copied row by row, with at most two vectors per row, which know their columns outside. `joined`: a vector of columns
    that is not a whole cache line is combined from the two lines that it touches, for cores that read two lines in the time of
    two multiply-adds. `lying`: rows all of whose windows are inside are read in place; only rows at the border are copied.
    `dot`: numbers of 8 bits are copied as they are, and four neighbours along the columns are one multiply-add
    (region/views/images/quads.py); "": one by one."""

    let: LetName
    rows: int
    ahead: int
    width: int
    whole: bool = False
    joined: bool = False
    lying: bool = False
    dot: Dot = ""


class CpuWinograd(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_winograd"):
    """A 3x3 convolution of stride 1 or 2, or dilated, by tiles of 2x2 results, with 16, 20 or 25 products instead of 36 per tile
    (conditions: region/views/images/convolution.py; transforms: region/views/images/winograd.py). Blocks of `rows` x `columns`
    tiles are transformed into panels of mr, multiplied with the weights that `setup` has transformed (named by `packed`) in
    slivers of nr filters, and transformed back. `split`: threads divide the blocks of tiles, or channels and then filters."""

    acc: LetName
    rows: int
    columns: int
    mr: int
    nr: int
    kc: int
    width: int
    split: Literal["tiles", "channels"]
    packed: tuple[ReadName, ...]


class CpuPlanes(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_planes"):
    """A convolution whose image is copied once, without guards and strides, to planes (region/views/images/planes.py). At each
    place of the window the products find their operand by a table, and nothing is packed. Blocks of `rows` x `columns`
    results; the tile is mr filters, whose weights `setup` has packed (named by `packed`), by nr consecutive neighbours along
    the rows of the block."""

    acc: LetName
    rows: int
    columns: int
    mr: int
    nr: int
    kc: int
    width: int
    packed: tuple[ReadName, ...]


class CpuCorrelation(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_correlation"):
    """A sum of products whose operands both lie contiguously along the sum, such as the weight gradient of a convolution
    (conditions: region/views/images/correlation.py). Both are copied without guards, `planes` planes of the image at a time, in
    blocks of `rows` lines of `images` images; vectors run along the lines. The tile is mr filters by nr results of a filter.
    `apart`: the image is copied once for each place of the window across, so that a line has no margin and the lines of an
    image are one; else reads move along lines that have one."""

    acc: LetName
    mr: int
    nr: int
    planes: int
    images: int
    rows: int
    width: int
    apart: bool


class CpuPlaces(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_places"):
    """A convolution of 8-bit integers (windows, or a product with the channels of each place) whose image is copied once to
    planes, where an element holds a group of channels (`dot`). The tile is mr places of an image's rows, read where they lie in a
    plane, by nr filters, whose weights `setup` has packed (named by `packed`). Blocks of `rows` x `columns` results; threads
    divide blocks, and `bands` parts of the filters of each."""

    acc: LetName
    rows: int
    columns: int
    mr: int
    nr: int
    kc: int
    width: int
    bands: int
    dot: Dot
    packed: tuple[ReadName, ...]


class CpuTurn(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_turn"):
    """A map that reads contiguously along `across` and writes contiguously along `along`, by square tiles of `tile` elements
    per side (conditions: region/views/transpose.py); `width` is in elements of fp32."""

    along: AxisName
    across: AxisName
    tile: int
    width: int


class CpuSplit(msgspec.Struct, frozen=True, tag_field="kind", tag="cpu_split"):
    """The Region runs as several Regions, one after the other: the lets of each part. `realise` splits it
    (plan/cpu/split.py)."""

    parts: tuple[tuple[LetName, ...], ...]


class Cache(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operand that a GPU kernel keeps in shared memory, a block of `at` at a time (spec 3 §8.1)."""

    tensor: ReadName
    where: str = "smem"
    at: AxisName = "k.i"
    pingpong: bool = True


class Vectorize(msgspec.Struct, frozen=True):
    """Elements per access (`width`) along an axis."""

    axis: AxisName
    width: int


class LocalEdge(msgspec.Struct, frozen=True, omit_defaults=True, rename={"source": "from", "target": "to"}):
    """The path of a value from let `source` to let `target`: registers, or a ring in shared memory with `depth` slots."""

    source: LetName
    target: LetName
    buffer: str = "reg"
    depth: int = 1


class Async(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asynchronous copies: `prefetch_depth` in blocks of k; `epilogue_overlap`: the next tile's copies start before the
    epilogue."""

    enable: bool = True
    prefetch_depth: int = 2
    epilogue_overlap: bool = False


class Sm80Mma(msgspec.Struct, frozen=True, tag_field="kind", tag="sm80_mma"):
    """A product on tensor cores of SM80 (spec 3 §8.1). tile = [BM, BN, BK]; warp_tile "64x64"; inst_shape m16n8k16, m16n8k8
    for operands rounded to tf32, or fma: ordinary multiply-adds.

    `split_k` CTAs share a tile's k; a second kernel adds their sums in order and runs the epilogue. `algo_choice`:
    implicit_gemm, or direct, the streaming template, for `matmul`, `conv` or `grouped_matmul`, whose rows are in groups."""

    tile: tuple[int, int, int]
    stages: int
    bind: dict[AxisName, str]
    warp_tile: str
    cache: tuple[Cache, ...]
    vectorize: Vectorize
    predicate_tail: tuple[AxisName, ...]
    epilogue: tuple[LetName, ...]
    layout_hints: dict[str, bool | str]
    algo_choice: dict[str, str]
    local_edges: tuple[LocalEdge, ...]
    async_: Async = msgspec.field(name="async")
    barrier_model: Literal["cp_async_group"] = "cp_async_group"
    arch: Literal["sm80"] = "sm80"
    inst_shape: str = "m16n8k16"
    k_steps: int = 4
    split_k: int = 1
    tile_order: Literal["row", "grouped"] = "row"
    acc: LetName = ""


class StreamK(msgspec.Struct, frozen=True):
    """The blocks of k of the last `rows` rows of tiles form one line, cut evenly over `units` CTAs; with clusters, rows, tiles
    and units are those of clusters. A second kernel adds the pieces of each tile in the order of k and runs the epilogue
    (`plan/views/stream_k_cut.py`). The whole tiles before them have a kernel of their own. All sizes are known."""

    rows: int
    units: int


Loader: TypeAlias = Literal["tma", "cp_async"]
"""How an operand of the SM90 template is loaded: a box by TMA, or copies of a few neighbours by the threads of the producer
warpgroup, each with its own address and guards."""


class Sm90Mma(msgspec.Struct, frozen=True, tag_field="kind", tag="sm90_mma"):
    """A product on SM90: Sm80Mma with TMA, mbarriers and warp roles (D2.12)."""

    tile: tuple[int, int, int]
    stages: int
    bind: dict[AxisName, str]
    cache: tuple[Cache, ...]
    vectorize: Vectorize
    predicate_tail: tuple[AxisName, ...]
    epilogue: tuple[LetName, ...]
    layout_hints: dict[str, bool | str]
    algo_choice: dict[str, str]
    local_edges: tuple[LocalEdge, ...]
    async_: Async = msgspec.field(name="async")
    barrier_model: Literal["mbarrier"] = "mbarrier"
    arch: Literal["sm90"] = "sm90"
    inst_shape: str = "m64n128k16"
    k_steps: int = 4
    consumers: int = 2
    schedule: Literal["cooperative", "pingpong"] = "cooperative"
    registers: tuple[int, int] = (40, 232)
    """setmaxnreg of the producer and of each consumer warpgroup."""
    cluster: tuple[int, int] = (1, 1)
    multicast: Literal["none", "a", "b", "both"] = "none"
    tile_order: TileOrder = "grouped"
    persistent: bool = False
    loads: tuple[Loader, Loader] = ("tma", "tma")
    """Loaders of A and B, in the order of the tile (after `swap_ab`)."""
    epilogue_store: Literal["direct", "stmatrix_tma"] = "direct"
    epilogue_load: Literal["direct", "tma"] = "direct"
    """`tma`: the epilogue's operand with one element per result (a residual) is copied during the products to the place of the
    results in shared memory, which then holds a whole tile of them."""
    wait_depth: int = 1
    split_k: int = 1
    """Number of CTAs that share a tile's k; with `persistent`, CTAs visit the parts of all tiles, which have the same number
    of blocks."""
    stream_k: StreamK | None = None
    swap_ab: bool = False
    """True for C^T = B^T * A^T: the tile's first side is along n, its second along m, for products with few rows."""
    dependent_launch: bool = False
    """True if the kernel is launched while the one before it ends, and itself waits before it touches memory (programmatic
    dependent launch)."""
    acc: LetName = ""


class Sm80Pair(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="sm80_pair"):
    """Two contractions as one kernel that passes once along `second`'s k (region/views/pairs/online.py): scores, weights
    and the result stay in registers. tile = [rows, columns of the result, keys per block]; `depth` elements of the first
    product's k, all at once; a warp has `warp_rows` rows. With `stages` 1, the copies of one operand overlap the math of the
    other."""

    first: LetName
    second: LetName
    tile: tuple[int, int, int]
    depth: int
    warp_rows: int
    stages: int
    predicate_tail: tuple[AxisName, ...]
    width: int = 8
    """Maximum elements per copy."""
    split: int = 1
    """Number of CTAs that share a tile's keys, each with a part of whole blocks; a second kernel joins their results."""
    algo_choice: dict[str, str] = {}
    """`attention`: one_pass; streaming_softmax_2pass, which has a kernel for the largest score and the sum of each row and
    computes the scores again in a second one; or direct, the streaming template."""
    inst_shape: str = "m16n8k16"
    """Instruction of both products: m16n8k16 for 16-bit operands, fma for fp32, m16n8k8 for fp32 rounded to tf32."""
    others: tuple[LetName, ...] = ()
    """First products in addition to `first`, with the same rows, keys and depth."""
    shared: bool = False
    """True if `first` multiplies by the second product's values, which are copied once for both."""
    arch: Literal["sm80"] = "sm80"


class Sm90Pair(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="sm90_pair"):
    """Sm80Pair by TMA, wgmma and warp roles: each consumer warpgroup has 64 of the tile's rows, and all share the blocks of
    keys, of which `stages` are in shared memory."""

    first: LetName
    second: LetName
    tile: tuple[int, int, int]
    depth: int
    consumers: int
    stages: int
    predicate_tail: tuple[AxisName, ...]
    registers: tuple[int, int] = (24, 240)
    """setmaxnreg of the producer and of each consumer warpgroup."""
    overlap: bool = True
    """True if the next block's scores are multiplied while this block's become weights."""
    in_turns: bool = False
    """True if warpgroups start their products one after the other, so that one multiplies while another exponentiates."""
    section: int = 0
    """Number of batches whose tiles are interleaved, tiles of the last rows first, since these see the most keys; 0: one batch
    after the other."""
    split: int = 1
    """Number of CTAs that share a tile's keys, like `Sm80Pair.split`."""
    others: tuple[LetName, ...] = ()
    shared: bool = False
    """True if `first` multiplies by the second product's values, like `Sm80Pair.shared`."""
    dependent_launch: bool = False
    """Programmatic dependent launch, like `Sm90Mma.dependent_launch`."""
    algo_choice: dict[str, str] = {}
    arch: Literal["sm90"] = "sm90"


class GpuSync(msgspec.Struct, frozen=True, tag_field="kind", tag="gpu_sync"):
    """The plain synchronous template of spec 5 §6: shared tiles, a register micro-tile per thread. With one of `stages` a
    barrier follows each product; with more, blocks lie in a ring with a slot per stage and are loaded `stages` - 2 ahead."""

    tile: tuple[int, int, int]
    block: tuple[int, int]
    bind: dict[AxisName, str]
    predicate_tail: tuple[AxisName, ...]
    epilogue: tuple[LetName, ...]
    stages: int = 1
    arch: str = "sm80"
    acc: LetName = ""


class GpuStream(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="gpu_stream"):
    """One pass over memory with wide accesses, for Regions that no MMA template takes.

    `fused`: one kernel, whose groups of threads each take an outer point through all passes; a row that a later pass reads is
    computed again. Otherwise a kernel per pass, with results between them in memory."""

    outer: tuple[AxisName, ...]
    passes: tuple[Pass, ...]
    storage: dict[LetName, Storage]
    threads: int
    vector_bytes: int
    groups: tuple[int, ...] = ()
    """Threads per point of a pass that reduces or scans: 1, 2, 4, … or a whole block. One entry per pass; empty: 1."""
    fused: bool = False
    parts: tuple[int, ...] = ()
    """Elements of a line that one group takes, if lines are too few and too long for a group each; 0: whole lines. One entry
    per pass; empty: 0. Constant, so that every run adds in the same order."""
    owners: int = 1
    """Threads among which the elements of an output with data-dependent places are shared out by their positions: each passes
    over all writes in order and executes its own. 1: one thread."""


CpuPlan: TypeAlias = (
    Scalar
    | CpuRows
    | CpuContraction
    | CpuWinograd
    | CpuPlanes
    | CpuCorrelation
    | CpuPlaces
    | CpuTurn
    | CpuWindow
    | CpuStreaming
    | CpuSplit
)
"""Plans of a CPU, in the order in which they are proposed, each with an entry in `plan/cpu/`; plain loops run on every target."""
PackedPlan: TypeAlias = CpuContraction | CpuPlaces | CpuPlanes | CpuWinograd
"""Plans whose kernels may read operands that `setup` packed."""
VectorPlan: TypeAlias = (
    CpuContraction | CpuCorrelation | CpuPlaces | CpuPlanes | CpuStreaming | CpuTurn | CpuWindow | CpuWinograd
)
"""Plans of one template each, whose kernels have vectors of `width` elements of fp32."""
GpuPlan: TypeAlias = Sm80Mma | Sm90Mma | Sm80Pair | Sm90Pair | GpuSync | GpuStream
SchedulePlan: TypeAlias = CpuPlan | GpuPlan


class Guarded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan and when it applies; the last of a Region's list applies always (`conditions` empty)."""

    conditions: tuple[Condition, ...]
    plan: SchedulePlan
    estimate: dict[str, float] = {}
    """Terms of the time estimate in seconds, and the sizes at which they were taken under `at.<symbol>`."""


class Rejected(msgspec.Struct, frozen=True):
    """A candidate that was not chosen."""

    plan: str
    """One line that identifies the candidate."""
    why: str
    """The rule that it breaks, or the comparison that it loses, with both numbers."""
    estimate: dict[str, float] = {}


class Candidate(msgspec.Struct, frozen=True):
    """A plan that may be chosen: a line that identifies it, and the terms of its estimate in seconds."""

    plan: SchedulePlan
    line: str
    estimate: dict[str, float]


class RegionPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The plans of one Region, and the rejected candidates."""

    region: str
    key: str
    """Hash of the canonical Region, and the class of the target: decisions name Regions by it."""
    choices: tuple[Guarded, ...]
    rejected: tuple[Rejected, ...]
    tuned: tuple[str, ...] = ()
    """A text for each choice that a table of measured plans gave: the date, both times and the model."""


class ProgramPlan(msgspec.Struct, frozen=True):
    """The plans of a program's Regions, in order."""

    regions: tuple[RegionPlan, ...]
    layouts: dict[str, Layout]
    """Layout per value id; absent means row-major."""
