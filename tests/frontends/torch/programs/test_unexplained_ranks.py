"""Ranks that do other things for a reason that no query shows, and communicate nothing."""

from __future__ import annotations

import textwrap

import pytest

from flint import load
from tests.support.command_line import flint

#: Ranks from 36 on, in the middle of a row, do one product less.
PROGRAM = """
    import io, torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    dist.init_process_group("nccl")
    init_device_mesh("cuda", (8, 8), mesh_dim_names=("dp", "tp"))
    layer = torch.nn.Linear(8, 8, bias=False).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        y = layer(torch.ones(2, 8, device="cuda"))
        if int(io.StringIO(str(dist.get_rank())).read()) < 36:
            y = layer(y)
        y.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.thorough
def test_one_of_a_row_stands_for_it_though_another_row_does_the_same_as_some(tmp_path):
    """Ranks 32 to 35 stand for 36 to 39, which do what the next row does: it is still found."""
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    done = flint(
        "run", "--world", "64", "-o", "out", "--", "python", "train.py", cwd=tmp_path,
        imported="torch",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "recorded ranks compute otherwise than those that stand for all 64" in done.stderr
    ranks = [program.ranks.array().tolist() for program in load(tmp_path / "out").programs]
    assert sorted(ranks) == [list(range(40)), list(range(40, 64))]
