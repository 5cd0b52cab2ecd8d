"""The command over PyTorch's OpInfo database: it passes what agrees, says why the rest does not, goes on where it stopped."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal.opinfo.core import SampleInput  # noqa: E402

from tests.torch import opinfo, opinfo_samples  # noqa: E402
from tests.torch.opinfo_gradients import check_gradients, with_gradients  # noqa: E402

NAMES = ["add", "masked.median", "index_add", "nn.functional.adaptive_avg_pool2d", "scatter_reduce", "where", "cdist", "mode", "frexp",
         "nextafter", "nonzero_static", "as_strided_scatter", "nn.functional.adaptive_max_pool2d", "nn.functional.pdist"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_the_database_agree_with_eager(name: str) -> None:
    found = opinfo_samples.check_name(name, "reference", 2)
    assert opinfo_samples.passes(found), found["reason"]


def test_what_cannot_be_imported_fails_with_its_operator() -> None:
    found = opinfo_samples.check_name("linalg.eig", "reference", 1)
    assert not opinfo_samples.passes(found) and "linalg_eig" in found["reason"]


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from tatami.torch import table

    monkeypatch.setitem(table.HANDLERS, "aten.mul.Tensor", lambda m, x, y: x)
    found = opinfo_samples.check_name("mul", "reference", 2)
    assert not opinfo_samples.passes(found) and "differs from eager" in found["reason"]


@pytest.mark.parametrize("name", ["atan2", "complex", "cumprod", "linalg.inv", "nn.functional.gelu", "polar"])
def test_gradients_agree_with_eager(name: str) -> None:
    found = check_gradients(name, "reference", 1)
    assert opinfo_samples.passes(found), found["reason"]
    assert found["ours"] == (0 if name in ("complex", "polar") else found["run"])


def test_a_wrong_gradient_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from tatami.torch import table

    monkeypatch.setitem(table.HANDLERS, "aten.cos.default", lambda m, x: x)
    found = check_gradients("sin", "reference", 1)
    assert not opinfo_samples.passes(found) and "differs from eager" in found["reason"]


def test_samples_without_gradients_do_not_count() -> None:
    samples = [SampleInput(torch.ones(3, requires_grad=True)), SampleInput(torch.ones(3))]
    assert with_gradients(lambda x: x * 2, samples) == (samples[:1], 1)
    assert with_gradients(lambda x: x.int(), samples) == ([], 2)


def test_a_result_is_taken_that_is_nearer_to_float64_than_eager_and_no_other() -> None:
    eager, exact = torch.tensor([1.0, 100.0]), torch.tensor([1.0, 101.0], dtype=torch.float64)
    for mine, agrees in ((100.9, True), (98.0, False)):
        why = opinfo_samples.differ([torch.tensor([1.0, mine])], [eager], False, lambda: [exact])
        assert (why is None) == agrees


def test_a_copy_of_a_view_keeps_the_memory_around_it() -> None:
    view = torch.arange(12.0)[4:].reshape(2, 4)[:, :2]
    copied = opinfo_samples.fresh(view)
    assert torch.equal(copied.as_strided((3,), (1,), 0), torch.arange(3.0)) and copied.data_ptr() != view.data_ptr()


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def check(self: Any, job: dict[str, Any], seconds: float) -> dict[str, Any]:
        if not job:
            return {"names": ["a", "b"]}
        asked.append(job["name"])
        return {"passed": 1, "run": 1, "samples": 1, "reason": "", "seconds": 0}

    monkeypatch.setattr(opinfo.Worker, "check", check)
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"cpu": {"a": {"passed": 0, "run": 3, "samples": 3, "reason": "x"}}}))
    given: dict[str, Any] = {
        "target": "cpu",
        "samples": None,
        "only": [],
        "seconds": 1.0,
        "errors": False,
        "gradients": False,
        "results": path,
    }
    opinfo.run(argparse.Namespace(**given, names=None, share="0/1", quick=False))
    assert asked == ["b"] and set(opinfo.load(path)["cpu"]) == {"a", "b"}


def test_a_table_of_gradients_alone_leaves_the_values_as_they_are(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text("# Names\n\n| `add` | 11 |\n\n## Gradients\n\nold\n")
    row = {"passed": 1, "run": 1, "samples": 1, "ours": 1, "reason": ""}
    results.write_text(json.dumps({"gradients": {"add": row}}))
    opinfo.table(results, page)
    assert page.read_text().startswith("# Names\n\n| `add` | 11 |\n\n## Gradients\n")
    assert "**1 of 1 names agree" in page.read_text() and "old" not in page.read_text()
