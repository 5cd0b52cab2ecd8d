"""Values that several Regions recompute are stored by none of them."""

from tatami.core.dtype import DType
from tatami.core.target import PRESETS
from tatami.frontend.graph import Graph
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.region.lower import lower as lower_regions
from tatami.region.partition import partition
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
