"""Rows in groups are found by what their Region computes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tatami.core.dtype import DType
from tatami.region.ir import Binary, Reduce, Region, Yield
from tatami.region.show import show_region
from tatami.region.views.product import GemmView, gemm_view
from tatami.region.views.row_groups import GROUP, within_a_group
from tests.gpu.gemm_examples import rows_in_groups


def test_one_group_sees_a_plain_product() -> None:
    found = within_a_group(rows_in_groups(tf32=True))
    assert found is not None
    region, groups = found
    assert [x.name for x in region.lets] == ["acc", "c"] and [i.name for i in region.reduce_axes] == ["k"]
    assert (groups.rows, groups.counter, str(groups.count), str(groups.matrices)) == ("m", "g", "G", "G")
    assert f"tf32(B[{GROUP}, k, n])" in show_region(region)


def test_its_view_has_the_matrix_of_one_group() -> None:
    view = gemm_view(rows_in_groups())
    assert isinstance(view, GemmView) and view.groups is not None
    assert str(view.rhs.offset) == f"K*N*{GROUP}" and [x.name for x in view.epilogue] == ["c"]


def changed(name: str, **fields: Any) -> Region:
    region = rows_in_groups()
    lets = tuple(msgspec.structs.replace(x, **fields) if x.name == name else x for x in region.lets)
    return msgspec.structs.replace(region, lets=lets)


def product_with(**fields: Any) -> Region:
    e = rows_in_groups().lets[1].expr
    assert isinstance(e, Reduce) and isinstance(e.body, Binary)
    chosen = msgspec.structs.replace(e.body.y, **fields)
    return changed("acc", expr=msgspec.structs.replace(e, body=Binary("mul", e.body.x, chosen)))


def counted_by(fn: str) -> Region:
    e = rows_in_groups().lets[0].expr
    assert isinstance(e, Reduce)
    x = e.body.x  # type: ignore[union-attr]
    return changed("group", expr=msgspec.structs.replace(e, body=msgspec.structs.replace(e.body, x=Binary(fn, x.x, x.y))))  # type: ignore[union-attr]


def summed_in(dtype: DType) -> Region:
    return changed("group", expr=msgspec.structs.replace(rows_in_groups().lets[0].expr, dtype=dtype))


def and_written() -> Region:
    region = rows_in_groups()
    written = msgspec.structs.replace(region.outputs[0], name="numbers")
    return msgspec.structs.replace(
        region, outputs=(*region.outputs, written), yields=(*region.yields, Yield("group", "numbers", cast=DType.fp16))
    )


@pytest.mark.parametrize(
    "region",
    [product_with(bounds="clamp"), counted_by("lt"), counted_by("ge"), summed_in(DType.u8), and_written()],
    ids=[
        "rows behind the last have the last matrix",
        "counts ends below the row",
        "falls from row to row",
        "wraps after 255 groups",
        "is written too",
    ],
)
def test_other_counts_and_other_users_are_none(region: Region) -> None:
    assert within_a_group(region) is None
    assert isinstance(gemm_view(region), str)
