"""A fault inside a formula is shown in the formula's own words, with a suggestion that works."""

from __future__ import annotations

import pytest

import tatami as tt
from tatami.core.diagnostic import TatamiError

PROGRAM = 'graph main(x: f32[4]) -> f32[4] {{ return kernel(x, expression="input0 / {cast}") }}'


def test_a_cast_in_a_formula_is_suggested_as_the_formula_spells_it() -> None:
    with pytest.raises(TatamiError) as error:
        tt.parse(PROGRAM.format(cast="cast(shape0, fp32)"))
    (found,) = error.value.diagnostics
    assert "fp32(" in found.suggestion
    tt.parse(PROGRAM.format(cast="fp32(shape0)"))
