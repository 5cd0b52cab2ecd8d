"""Programs with chains of sizes that data decide: what uses a size comes after the step that binds it, whatever is fused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tatami as tt
from tatami.api import prepare
from tatami.core.diagnostic import TatamiError
from tatami.indexbook.analyse import analyse
from tatami.poly_view.extract import extract
from tatami.region.fusion.check import check_partition
from tatami.region.partition_ir import Group, Partition


def length_regulator() -> tt.Graph:
    """A size that a sum decides, and a second one that the first one's mask has."""
    g = tt.Graph("regulator")
    d = g.input("d", ("N",), tt.fp32)
    total = d.sum().cast(tt.i64)
    length = total.as_size()
    mask = (g.arange(length) < total.expand((length,))).cast(tt.fp32)
    places = g.arange(g.size_of(length).cast(tt.fp32).cast(tt.i64).as_size()).cast(tt.fp32)
    again = places.shape[0]
    rows = places.unsqueeze(0).expand(("N", again)) < d.unsqueeze(1).expand(("N", again))
    g.output("y", rows.cast(tt.fp32).sum(0).sum().expand((length,)) * mask)
    return g


def random_graph(seed: int) -> tt.Graph:
    """Sizes that sums of earlier values decide, and values over them that read what came before."""
    r = random.Random(seed)
    g = tt.Graph(f"chain{seed}")
    d = g.input("d", ("N",), tt.fp32)
    lines = [d]
    numbers = [d.sum()]
    for _ in range(r.randint(3, 7)):
        match r.choice(("size", "size", "mask", "mask", "join", "sum", "matrix")):
            case "size":
                number = r.choice(numbers)
                length = ((number.abs().cast(tt.i64) % 5) + 1).as_size()
                lines.append(g.arange(length).cast(tt.fp32))
            case "mask":
                line, number = r.choice(lines), r.choice(numbers)
                lines.append(g.where(line < number.expand(line.shape), line, line * 0.5))
            case "join":
                line = r.choice(lines)
                lines.append(line + r.choice([x for x in lines if x.shape == line.shape]))
            case "sum":
                numbers.append(r.choice(lines).sum())
            case "matrix":
                a, b = r.choice(lines), r.choice(lines)
                both = (a.shape[0], b.shape[0])
                matrix = (a.unsqueeze(1).expand(both) + 1.0) * b.unsqueeze(0).expand(both)
                lines.append(matrix.sum(r.choice((0, 1))))
    for k, line in enumerate(lines[-3:]):
        g.output(f"y{k}", line)
    g.output("z", numbers[-1] + lines[-1].sum())
    return g


def check_order(graph: tt.Graph) -> Any:
    """The compilation, once its groups and its instructions are ordered by sizes too."""
    made = prepare(graph, target="cpu:avx2")
    tiny = made.stages["tiny"]
    book = analyse(tiny)
    for name, given in made.stages["partition"].items():
        assert check_partition(given, tiny.programs[name], extract(tiny, book).programs[name]) == []
    assert made.stages["execution"]
    return made


@pytest.mark.parametrize("seed", range(60))
def test_instructions_of_chains_of_sizes_have_an_order(seed: int) -> None:
    check_order(random_graph(seed))


@pytest.mark.parametrize("seed", range(8))
def test_chains_of_sizes_agree_with_the_reference(seed: int) -> None:
    f, r = (tt.compile(random_graph(seed), target=t, threads=1) for t in ("cpu", "reference"))
    for values in ([3, 1, 2], [0], [2, 2, 7, 1, 4]):
        d = np.array(values, np.float32)
        got, wanted = f(d=d), r(d=d)
        assert got.keys() == wanted.keys()
        for name, expected in wanted.items():
            assert got[name].shape == expected.shape
            np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-5)


def test_a_length_regulator() -> None:
    f, r = (tt.compile(length_regulator(), target=t, threads=1) for t in ("cpu", "reference"))
    for values in ([1, 2, 3], [4], [0, 0]):
        d = np.array(values, np.float32)
        np.testing.assert_allclose(f(d=d)["y"], r(d=d)["y"])


def test_a_partition_that_holds_a_size_and_its_use_is_refused() -> None:
    made = prepare(length_regulator(), target="cpu:avx2")
    tiny = made.stages["tiny"]
    given = made.stages["partition"]["main"]
    wrong = Partition(tuple(Group(x.values) for x in reversed(given.groups)))
    found = check_partition(wrong, tiny.main, extract(tiny, analyse(tiny)).main)
    assert any("move it behind the step" in d.suggestion for d in found)
    with pytest.raises(TatamiError, match="E1501"):
        from tatami.region.fusion.partition import program_key

        _ = prepare(length_regulator(), target="cpu:avx2", decisions={"partitions": {program_key(tiny.main): wrong}}).stages[
            "partition"
        ]
