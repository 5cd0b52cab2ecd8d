"""Every functional collective through torch.compile, in each process of a group, against eager: a script of test_exchanges."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from tatami.backends.torch_report import REPORTS


def exchanges(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Each collective once, with work around it."""
    g, ranks = dist.group.WORLD, dist.get_world_size()
    a = functional.all_reduce(torch.relu(x @ w), "sum", g)
    b = functional.all_gather_tensor(x * 2, 0, g)
    c = functional.reduce_scatter_tensor(b + 1, "avg", 0, g)
    d = functional.all_to_all_single(x.exp(), None, None, g)
    rows = [1] * (ranks - 1) + [x.shape[0] - ranks + 1]
    mine = [rows[dist.get_rank()]] * ranks
    e = functional.all_to_all_single(x, mine, rows, g)
    f = functional.broadcast(x + 1, 1, g)
    first, own = dist.get_rank() == 0, x[: 0 if dist.get_rank() == 0 else ranks]  # process 0 has nothing to send
    h = functional.all_to_all_single(own * 2, [0] + [1] * (ranks - 1), [0 if first else 1] * ranks, g)
    return a + 1, b * 3, c, d.sum(0), e - 1, f, h + 1, functional.all_reduce(x.amax(), "max", g)


def main() -> None:
    """Compare the dtypes named by the arguments."""
    dist.init_process_group("gloo")
    for name in sys.argv[1:]:
        dtype = getattr(torch, name)
        torch.manual_seed(dist.get_rank())
        x, w = torch.randn(8, 16).to(dtype), torch.randn(16, 16).to(dtype)
        want = exchanges(x, w)
        torch._dynamo.reset()
        got = torch.compile(exchanges, backend="tatami", fullgraph=True)(x, w)
        for mine, eager in zip(got, want, strict=True):
            torch.testing.assert_close(mine, eager)
        report = REPORTS[-1]
        assert (report.programs, report.unsupported, report.refused) == (1, [], []), report.text()
    print("right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
