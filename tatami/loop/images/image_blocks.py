"""Code shared by the templates of convolutions: blocks of an image's results as work items.

Results form a grid of cells of `step` x `step` (tiles of Winograd's sums; 1: the results themselves). A block has `own_rows` x
`own_columns` cells, from (`top`, `left`) on. If the image's width is not known and it is narrower than the plan's block, the
block has more rows instead, with the same number of cells.

Results along a dilated dimension fall into phases, their places modulo the dilation, and a result depends on entries of its own
phase alone: each phase is an image of its own, without dilation. Blocks, `height` and `width` are those of the longest phase."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tatami.core.algebra.simplify import linearize
from tatami.core.expr import ONE, ZERO, Expr, ceildiv, expr, floordiv, maximum, minimum, product
from tatami.core.layout import packed_layout
from tatami.core.target import lanes_of
from tatami.loop.emit.template import Stmts, misfit
from tatami.loop.images.result_lines import ResultLines
from tatami.loop.products.contraction_operands import ELEMENT
from tatami.loop.products.packing import Packing
from tatami.plan.ir import CpuPlaces, CpuPlanes, CpuWinograd
from tatami.region.ir import Reduce, Region
from tatami.region.views.images.convolution import Convolution
from tatami.region.views.images.planes import BAND_ROWS
from tatami.region.walk import lets_by_name, reads


class ImageBlocks(ResultLines, Packing):
    """A convolution of a renamed Region whose weights `setup` has packed."""

    def __init__(
        self,
        region: Region,
        plan: CpuWinograd | CpuPlaces | CpuPlanes,
        conv: Convolution,
        step: int,
        bands: int = 1,
        phases: Mapping[str, int] | None = None,
    ) -> None:
        """`bands`: minimum number of blocks, for threads to divide, into which rows of unknown number are cut. `phases`: number
        of phases of the result axes that have more than one."""
        acc = lets_by_name(region)[plan.acc].expr
        assert isinstance(acc, Reduce)
        self.element, lanes = ELEMENT[acc.dtype], lanes_of(plan.width, acc.dtype.itemsize)
        super().__init__(region, plan.acc, acc.dtype, conv.channels, lanes, f"tatami_pack_{self.element}_{lanes}")
        self.region, self.conv = region, conv
        self.mr, self.nr = plan.mr, max(plan.nr // lanes, 1) * lanes
        self.columns = conv.slides[-1]
        self.phases = phases or {}
        self.height, self.width = (ONE, *(self.results_along(s.axis, ZERO) for s in conv.slides))[-2:]
        self.channels, self.filters = (product(self.extents[a] for a in g) for g in (conv.channels, conv.filters))
        self.grid_rows, self.grid_columns = (ceildiv(x, expr(step)) for x in (self.height, self.width))
        self.block_columns = minimum(expr(plan.columns), maximum(ONE, self.grid_columns))
        most = expr(plan.rows)
        if self.grid_columns.as_int() is None:
            most = floordiv(most * plan.columns, self.block_columns)
        if self.grid_rows.as_int() is None and bands > 1:
            most = minimum(most, maximum(expr(BAND_ROWS // step), ceildiv(self.grid_rows, expr(bands))))
        self.block_rows = minimum(most, maximum(ONE, self.grid_rows))
        self.down = ceildiv(self.grid_rows, self.block_rows)
        self.across = ceildiv(self.grid_columns, self.block_columns)
        self.outer = (*conv.shape.batch, *conv.images)
        self.items = product(self.extents[a] for a in self.outer) * prod(self.phases.values()) * self.down * self.across
        self.phase: dict[str, Expr] = {}
        """Result axis -> phase of the block."""

    def results_along(self, axis: str, phase: Expr) -> Expr:
        """Number of results of a phase along an axis."""
        extent = self.extents[axis]
        return extent if axis not in self.phases else ceildiv(extent - phase, expr(self.phases[axis]))

    def place(self, axis: str, index: Expr) -> Expr:
        """Place along an axis of the result of this index in the block's phase."""
        return index if axis not in self.phases else self.phase[axis] + index * self.phases[axis]

    def packed_weights(self, plan: CpuWinograd | CpuPlaces | CpuPlanes, matrix: tuple[Expr, ...], block: int, how: str) -> str:
        """Name of the tensor of packed weights. Raises InvalidPlan unless its shape is the batch and `matrix`, and its layout
        slivers of `block`."""
        (name,) = {r.tensor for r in reads(self.conv.weights)} & set(plan.packed) or {""}
        memref = self.memrefs.get(name)
        shape = (*(self.extents[a] for a in self.conv.shape.batch), *matrix)
        if memref is None or memref.shape != shape or memref.layout != packed_layout(len(shape), block):
            raise misfit(plan, plan.acc, f"its weights are not {how} in setup")
        return name

    def enter(self, item: Expr) -> Stmts:
        """Registers of a block: the outer axes, its first row and column in the grid, and its numbers of rows and columns."""
        sizes = [(a, self.extents[a]) for a in self.outer]
        sizes += [(f"{a} phase", expr(count)) for a, count in self.phases.items()]
        declare, values = self.digits((*sizes, ("", self.down * self.across)), item)
        block = values.pop("")
        self.phase = {a: values.pop(f"{a} phase") for a in self.phases}
        self.at = values
        row = floordiv(block, self.across)
        down, self.top, self.own_rows = self.balanced(self.grid_rows, row, self.down)
        across, self.left, self.own_columns = self.balanced(self.grid_columns, block - row * self.across, self.across)
        return (*declare, *down, *across)

    def group(self) -> Expr:
        """Number of the matrix of weights for the block."""
        batch = self.conv.shape.batch
        return linearize(tuple(self.at[a] for a in batch), tuple(self.extents[a] for a in batch))

    def spread(self, axes: tuple[str, ...], index: Expr) -> tuple[Stmts, dict[str, Expr]]:
        """The index of each of `axes`, from their linear index."""
        if len(axes) == 1:
            return (), {axes[0]: index}
        declare, values, _ = self.batch_values(axes, index, ONE)
        return declare, values
