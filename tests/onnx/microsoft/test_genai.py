"""Decoders of GenAI's form against ONNX Runtime: a prompt, single tokens and a chunk, each with the caches of the step before."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import tatami as tt
from tests.onnx.microsoft.genai import HEAD, KEY_HEADS, LAYERS, VOCABULARY, Form, decoder

FORMS = {
    "packed": Form(),
    "three products": Form(is_packed=False),
    "rotated before": Form(is_packed=False, rotates_inside=False),
    "8 bits": Form(bits=8),
    "accuracy level 4": Form(level=4),
}


@pytest.mark.parametrize("name", FORMS)
def test_steps_are_those_of_onnx_runtime(name: str) -> None:
    form = FORMS[name]
    model = decoder(form)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    program = tt.compile(model)
    rng = np.random.default_rng(3)
    for batch, counts in ((1, (7, 1, 1, 3)), (2, (5, 1))):
        empty = np.zeros((batch, KEY_HEADS, 0, HEAD), np.float32)
        theirs = {f"past_key_values.{i}.{n}": empty for i in range(LAYERS) for n in ("key", "value")}
        ours = dict(theirs)
        length = 0
        for count in counts:
            length += count
            given = {
                "input_ids": rng.integers(0, VOCABULARY, (batch, count)),
                "attention_mask": np.ones((batch, length), np.int64),
            }
            if not form.rotates_inside:
                given["position_ids"] = np.arange(length - count, length)[None].repeat(batch, 0)
            want = dict(zip(names, session.run(None, {**given, **theirs}), strict=True))
            got = program(**given, **ours)
            for output, values in want.items():
                assert np.abs(got[output] - values).max() < 2e-6 * np.abs(values).max()
            theirs, ours = (
                {k.replace("present", "past_key_values"): v for k, v in r.items() if k != "logits"} for r in (want, got)
            )
    assert not program.memory.get("specialisations", 0)
