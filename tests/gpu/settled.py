"""Plans by hand for any Region: fields that have one value for a Region get it."""

from __future__ import annotations

import msgspec

from tatami.plan.gpu.product_plans import edges_of, epilogue_of
from tatami.plan.ir import Sm90Mma
from tatami.plan.views.fixed_fields import obeyed_tail, obeyed_width
from tatami.region.ir import Region
from tatami.region.views.product import gemm_view


def settled(plan: Sm90Mma, region: Region) -> Sm90Mma:
    """The plan with the width, the tail and the edges that its template obeys for `region`."""
    view = gemm_view(region)
    if isinstance(view, str):
        return plan
    width = msgspec.structs.replace(plan.vectorize, width=obeyed_width(plan, region, view))
    return msgspec.structs.replace(
        plan,
        vectorize=width,
        epilogue=plan.epilogue or epilogue_of(region, view),
        predicate_tail=obeyed_tail(plan, region, view),
        local_edges=edges_of(region, view),
    )
