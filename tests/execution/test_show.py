"""The dump of a plan."""

from __future__ import annotations

from tatami.execution.lower import lower
from tatami.execution.show import show
from tests.execution.regions import chain

EXPECTED = """\
program main (in-n0: fp32[N]) -> (y: fp32[N])
  input   n0  fp32[N]
  arena   n1  fp32[N]  use 0..1
  output  n2  fp32[N]
  wave 0
    n1 = r0(n0, n1)  # r0
  wave 1
    n2 = r1(n1, n2)  # r1
  execution_order r0 @0, r1 @1
"""


def test_a_plan_reads_as_buffers_then_waves() -> None:
    assert show(lower(chain(2), None, None)) == EXPECTED
