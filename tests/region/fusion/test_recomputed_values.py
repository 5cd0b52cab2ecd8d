"""Values that several Regions recompute are stored by none of them."""

import numpy as np

import tatami as tt
from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.frontend.graph import Graph
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.region.fusion.partition import partition
from tatami.region.lower import lower as lower_regions
from tatami.region.verify import verify
from tatami.tiny.lower import lower
from tatami.tiny.normalize import normalize


def test_a_coordinate_used_by_two_regions_is_made_in_each():
    g = Graph()
    x, y = g.input("x", (4, 5), DType.fp32), g.input("y", (4, 5), DType.fp32)
    g.output("up", x.op("trilu", upper=True, k=1))
    g.output("down", y.op("trilu", upper=False, k=-1))
    tiny = normalize(lower(g.module()))
    book = analyse(tiny)
    view = extract(tiny, book)
    regions = lower_regions(tiny, book, view, partition(tiny, book, view, PRESETS["cpu:avx2"], None))
    assert verify(regions) == []
    assert [t.name for item in regions.main.body for t in item.outputs] == list(regions.main.outputs)


def test_a_value_of_one_row_may_be_recomputed_where_it_is_read_by_an_index():
    """The let has no axis for the one row, the tensor of the same name has."""
    g = Graph()
    x, windows = g.input("x", (1, 7, 8), DType.fp32), g.input("windows", (3, 3), DType.i64)
    seen = x.take(windows, axis=1).take(windows, axis=3).permute(0, 1, 3, 2, 4).reshape(1, 3, 3, 9)
    g.output("y", seen.gather(3, seen.one("argmax", axis=3, keepdims=True)))
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((1, 7, 8)).astype(np.float32), "windows": np.array([[0, 1, 2], [2, 3, 4], [4, 5, 6]])}
    (got,) = tt.compile(g, target="cpu")(given).values()
    (wanted,) = tt.compile(g, target="reference")(given).values()
    assert np.array_equal(np.asarray(got), np.asarray(wanted))
