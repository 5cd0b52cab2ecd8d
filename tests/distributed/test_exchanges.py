"""Collectives of torch.distributed in compiled programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from torch.distributed._functional_collectives import all_reduce  # noqa: E402

from tatami.backends.torch_groups import TorchGroups  # noqa: E402
from tatami.core.numbers.collectives import (  # noqa: E402
    Collective,
    CommunicationError,
    Pending,
    communicator_in_use,
    use_communicator,
)
from tests.distributed.processes import outputs, started  # noqa: E402

SCRIPT = Path(__file__).parent / "exchanges.py"


def test_every_collective_agrees_with_eager_in_one_program(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with started(SCRIPT, 2, "float32", "bfloat16", cache=tmp_path) as processes:
        for code, told, errors in outputs(processes, 300):
            assert code == 0 and "right" in told, errors


class Own:
    """A communicator of the user's."""

    def begin(self, what: Collective, x: np.ndarray) -> Pending:
        raise CommunicationError("not asked")


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_communicator_of_the_user_stays(target: str) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for own in (Own(), None):
            torch._dynamo.reset()
            use_communicator(own)
            f = torch.compile(
                lambda x: all_reduce(x + 1, "sum", dist.group.WORLD), backend="tatami", options={"target": target}
            )
            assert f(torch.ones(3)).tolist() == [2, 2, 2]
            found = communicator_in_use()
            assert found is own if own else isinstance(found, TorchGroups), found
    finally:
        use_communicator(None)
        dist.destroy_process_group()
