"""Memory of a program of a GGUF file: the blocks of the file once, in the form that kernels read."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

import tatami as tt
from tatami.api import build, prepare
from tatami.core.diagnostic import TatamiError
from tatami.runtime.building.cache import default_cache
from tatami.storage.program_cache import constants_of, program_key
from tests.gguf.steps import logits_after_each
from tests.gguf.written import QUANTS, written

TOKENS = np.random.default_rng(5).integers(0, 320, 12)


@pytest.mark.parametrize(("form", "most"), [("F16", 1.02), ("Q8_0", 1.08), ("Q4_0", 1.14)])
def test_an_embedding_that_is_the_output_too_is_held_once(form: str, most: float, tmp_path: Path) -> None:
    """Scales take 4 bytes, in the file 2."""
    made = written(tmp_path, "qwen3", getattr(QUANTS, form))
    f = tt.compile(made.path)
    found = logits_after_each(f, TOKENS, (5, 1))
    weights = sum(t.n_bytes for t in gguf.GGUFReader(made.path).tensors)
    small = 64 * 1024  # vectors, and their places
    assert f.memory["constants"] < most * weights + small
    assert np.abs(found[0] - made.logits(TOKENS)[4]).max() < 2e-5
    assert np.abs(found[1] - made.logits(TOKENS)[5]).max() < 2e-5


@pytest.mark.parametrize("form", ["Q4_1", "Q5_0", "BF16"])
def test_rows_of_every_form_come_from_the_product_s(form: str, tmp_path: Path) -> None:
    made = written(tmp_path, "gemma", getattr(QUANTS, form))
    f = tt.compile(made.path)
    held = [a.shape for a in f.program.constants.values() if a.nbytes > 1 << 14 and a.ndim == 2]
    assert (320, 256) not in held
    found = logits_after_each(f, TOKENS, (3, 2, 1))
    for row, count in zip(found, (3, 5, 6), strict=True):
        assert np.abs(row - made.logits(TOKENS)[count - 1]).max() < 2e-5


def test_constants_of_a_file_are_not_kept_beside_their_packed_form(tmp_path: Path) -> None:
    f = tt.compile(written(tmp_path, "llama", QUANTS.Q8_0).path)
    given = f.compilation.stages.given["frontend"].constants
    assert not [n for n, t in given.items() if t.is_in_memory and t.nbytes > 1 << 14]
    assert not [n for n, t in f.program.execution.constants.items() if t.is_in_memory and t.nbytes > 1 << 14]


def test_the_cache_has_no_copy_of_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TATAMI_PROGRAM_CACHE", "1")
    path = written(tmp_path, "llama", QUANTS.Q4_0).path
    f = tt.compile(path)
    text = default_cache().get(program_key(f.compilation))
    assert text is not None
    held = sum(t.nbytes for t in constants_of(f.compilation).values())
    assert len(text) < held / 4
    want = logits_after_each(f, TOKENS, (4,))
    again = tt.compile(path)
    assert again.compilation.stages.get_made("plan") is None  # from the cache
    np.testing.assert_array_equal(logits_after_each(again, TOKENS, (4,)), want)


def test_a_file_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "llama", QUANTS.Q8_0).path
    compilation = prepare(path)
    data = bytearray(path.read_bytes())
    data[-100:] = bytes(100)
    path.write_bytes(data)
    with pytest.raises(TatamiError, match="has changed since it was compiled"):
        build(compilation)


def test_a_saved_program_needs_no_file(tmp_path: Path) -> None:
    path = written(tmp_path, "qwen2", QUANTS.Q4_0).path
    f = tt.compile(path)
    want = logits_after_each(f, TOKENS, (4,))
    saved = f.save(tmp_path / "model.tatami")
    path.unlink()
    for trust in (True, False):
        np.testing.assert_array_equal(logits_after_each(tt.load(saved, trust=trust), TOKENS, (4,)), want)
