"""Codes of 4 bits in files: two in a byte there, and read again where they are needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tatami as tt
from tests.quantization.models import model_of, numbers

X = numbers(3, 512, seed=5)


def wide_model() -> onnx.ModelProto:
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "a"], ["h"], "one"),
        onnx.helper.make_node("MatMul", ["h", "b"], ["y"], "two"),
    ]
    constants = {"a": numbers(512, 511, seed=1), "b": numbers(511, 300, seed=2)}
    return model_of(nodes, constants, {"x": ["N", 512]}, ["y"])


@pytest.mark.parametrize("is_apart", [False, True])
def test_codes_are_not_kept_beside_their_packed_form(is_apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    monkeypatch.setenv("TATAMI_CACHE_DIR", str(tmp_path / "cache"))
    if is_apart:
        monkeypatch.setattr("tatami.quantization.api.MOST_IN_ONE_FILE", 100)
    made = tt.quantize(wide_model(), "int4")
    path = made.save(tmp_path / "model.onnx")
    want = tt.compile(made.model)(x=X)["y"]
    for _ in range(2):  # imported, then from the cache
        f = tt.compile(path)
        np.testing.assert_array_equal(f(x=X)["y"], want)
        given = f.compilation.stages.given["frontend"].constants
        codes = [t for t in given.values() if t.dtype == tt.i4]
        assert codes
        assert not [t for t in codes if t.is_in_memory]
        for tensor in codes:  # read again, and equal by its hash
            assert tensor.array.shape == tensor.shape
            tensor.release()
    size = path.stat().st_size + sum(p.stat().st_size for p in tmp_path.glob("*.data"))
    assert f.memory["constants"] < 1.1 * size
