"""The programs of docs/gradients.md run, and the training script of the example learns."""

from __future__ import annotations

import doctest
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import tatami as tt
from tatami.frontend.run import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gradients.md").read_text()


def test_the_programs_of_the_page_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for k, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, names, f"block {k}", None, None)
        runner = doctest.DocTestRunner()
        runner.run(test, clear_globs=False)
        assert runner.summarize(verbose=False).failed == 0
        names = test.globs
    assert len(blocks) == 2


def test_the_text_of_the_page_is_a_program() -> None:
    text = re.search(r"^    graph main.*?^    }$", PAGE, re.MULTILINE | re.DOTALL)
    assert text is not None
    x, w = np.ones((8, 3)), np.ones(3)
    got = run(tt.parse(text[0]), {"x": x, "w": w}, mode="float64")
    np.testing.assert_allclose(got["dw"], 2 * x.T @ x @ w)


def test_the_training_script_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of its forty epochs, and the picture."""
    spec = importlib.util.spec_from_file_location("train", ROOT / "examples" / "digits" / "train.py")
    assert spec is not None and spec.loader is not None
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    arrays, losses = train.train(epochs=3)
    held_out = np.load(ROOT / "examples" / "digits" / "held_out.npz")
    probability = tt.compile(train.network_graph(arrays))(image=held_out["image"])["probability"]
    assert len(losses) == 66 and losses[-1] < 0.3 * losses[0]
    assert (probability.argmax(1) == held_out["label"]).mean() > 0.9
    drawn = train.picture(losses, held_out["image"], held_out["label"], probability)
    assert drawn.count("<rect") >= 64 and "held-out images mistaken" in drawn
