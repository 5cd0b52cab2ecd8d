"""On generated graphs: the forms of tiny mean the same, verify, round-trip, and the book describes what they read."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings

from tatami.frontend.run import run as run_frontend
from tatami.tiny.json_form import decode, encode
from tatami.tiny.lower import lower
from tatami.tiny.normalize import normalize
from tatami.tiny.run import run
from tatami.tiny.verify import verify
from tests.indexbook.test_analyse import check
from tests.random_models.generated import Generated, graphs


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_generated_graphs(case: Generated) -> None:
    imported = lower(case.module)
    assert verify(imported, "tiny@imported") == []
    normal = normalize(imported)
    assert verify(normal) == []
    wanted = run_frontend(case.module, case.inputs, case.sizes, mode="float64")
    for form in (imported, normal):
        got = run(form, case.inputs, case.sizes, mode="float64")
        for name, value in wanted.items():
            assert np.allclose(got[name], value, rtol=1e-9, atol=1e-9), name
    assert decode(json.loads(json.dumps(encode(normal.main)))) == normal.main
    if all(p.storage == "argument" for p in normal.main.signature.inputs):
        check(normal, case.inputs, case.sizes)
