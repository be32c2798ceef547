"""Programs that read from a table what a rank does: the ranks of each item are told apart."""

from __future__ import annotations

import textwrap

import pytest

from tests.programs.comparing import captured
from tests.support.command_line import flint_with_torch as flint
from tests.support.shared import quick

WORLD = 64

#: The rows of every rank's batch are ``rows``.
PROGRAM = """
    import os, torch, torch.distributed as dist
    dist.init_process_group("nccl")
    layer = torch.nn.Linear(4, 8, bias=False).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(torch.ones(rows, 4, device="cuda")).sum().backward()
        dist.all_reduce(layer.weight.grad)
        optimizer.step()
"""
#: The place of the line that reads the table; every rank but 21 has 3 rows, that one 5.
WAYS = {
    "a list": "rows = ([3] * 21 + [5] + [3] * 42)[dist.get_rank()]",
    "a dict": "rows = {at: 5 if at == 21 else 3 for at in range(64)}[dist.get_rank()]",
    "a dict's default": "mine = dist.get_rank(); rows = {21: 5}.get(mine, 3)",
    "a function's argument": """
    def pick(table, at):
        return table[at]
    rows = pick([3] * 21 + [5] + [3] * 42, dist.get_rank())
    """,
    "of the environment": """
    table = [3] * 21 + [5] + [3] * 42
    rows = table[int(os.environ["RANK"])]
    """,
    "configurations": """
    configs = [{"rows": 3}] * 21 + [{"rows": 5}] + [{"rows": 3}] * 42
    rows = configs[dist.get_rank()]["rows"]
    """,
    "places in a list": """
    places = list(range(64, 128))
    place = places[dist.get_rank()]
    rows = 5 if place == 85 else 3
    """,
    "tensors": """
    parts = [torch.ones(3)] * 21 + [torch.ones(5)] + [torch.ones(3)] * 42
    rows = len(parts[dist.get_rank()])
    """,
    "a tensor": """
    rows = torch.tensor([3] * 21 + [5] + [3] * 42)[dist.get_rank()].item()
    """,
    "an array": """
    import numpy
    rows = int(numpy.array([3] * 21 + [5] + [3] * 42)[dist.get_rank()])
    """,
    "a part of a list": """
    rank = dist.get_rank()
    rows = sum(([1, 2] * 21 + [1, 4] + [1, 2] * 42)[rank * 2 : rank * 2 + 2])
    """,
    "a text": """
    rows = {str(at): 5 if at == 21 else 3 for at in range(64)}[str(dist.get_rank())]
    """,
    "numbers that are texts": """
    rows = 5 if str(dist.get_rank()) in "20.5,21,22.5".split(",") else 3
    """,
    "a text made of it": """
    rows = 5 if f"stage{dist.get_rank():>3}" == "stage 21" else 3
    """,
    "what a text made of it names": """
    rows = {"stage21": 5}.get("stage%d" % dist.get_rank(), 3)
    """,
    "a text made of it among others": """
    name = "stage/{}".format(dist.get_rank())
    rows = 5 if name in {"stage/21"} else 3
    """,
    "every so many of the parameters": """
    from itertools import islice
    layers = torch.nn.ParameterList(torch.ones(5 if at == 21 else 3) for at in range(64))
    rows = sum(len(item) for item in islice(layers.parameters(), dist.get_rank(), None, 64))
    """,
    "a loop over a table": """
    table, rows = [1, 2] * 21 + [1, 4] + [1, 2] * 42, 0
    for at in range(2 * dist.get_rank(), 2 * dist.get_rank() + 2):
        rows += table[at]
    """,
    "rounds of a loop": """
    rows = 0
    for _ in range(dist.get_rank(), 64 * 3 + 22, 64):
        rows += 1
    """,
    "every so many of a list": """
    batch = list(range(64 * 3 + 22))[dist.get_rank() :: 64]
    rows = len(batch)
    """,
}
#: In the last two, the first 22 ranks have one more.
FEWER = dict.fromkeys(("rounds of a loop", "every so many of a list"), [4] * 22 + [3] * 42)


@pytest.mark.parametrize("way", quick(WAYS, "a list"))
def test_ranks_whose_item_is_another_one_are_told_apart(tmp_path, way):
    start, loop = textwrap.dedent(PROGRAM).split("layer =", 1)
    text = f"{start}{textwrap.dedent(WAYS[way]).strip()}\nlayer ={loop}"
    (tmp_path / "train.py").write_text(text)
    expected = FEWER.get(way, [5 if rank == 21 else 3 for rank in range(WORLD)])
    # A layer of 4 x 8, forward and for its weights: 2 x 2 FLOPs x rows x 32.
    found = captured(tmp_path, WORLD, "python", "train.py")
    assert [item["flops"] for item in found] == [2 * 2 * rows * 32 for rows in expected]
    assert recorded(tmp_path) <= 6


ALIKE = """
    dist.init_process_group("nccl")
    groups = [dist.new_group(list(range(at, at + 4))) for at in range(0, 64, 4)]
    group = groups[dist.get_rank() // 4]
    device = [torch.device("cuda", at) for at in range(8)][dist.get_rank() % 8]
    name = [f"cuda:{at}" for at in range(8)][dist.get_rank() % 8]
    gathered = [torch.zeros(4, device=device) for _ in range(64)]
    mine = gathered[dist.get_rank()]
    indices = list(range(64 * 100))[dist.get_rank() :: 64]
    rows = 3
"""


def test_groups_devices_and_equal_tensors_do_not_tell_ranks_apart(tmp_path):
    start, loop = textwrap.dedent(PROGRAM).split('dist.init_process_group("nccl")\n', 1)
    (tmp_path / "train.py").write_text(start + textwrap.dedent(ALIKE) + loop)
    found = captured(tmp_path, WORLD, "python", "train.py")
    assert [item["flops"] for item in found] == [2 * 2 * 3 * 32] * WORLD
    assert recorded(tmp_path) <= 5


@pytest.mark.thorough
def test_many_different_items_are_a_warning_that_names_the_line(tmp_path):
    start, loop = textwrap.dedent(PROGRAM).split("layer =", 1)
    way = "rows = 3\nname = [f'part-{at}.bin' for at in range(64)][dist.get_rank()]\n"
    (tmp_path / "train.py").write_text(f"{start}{way}layer ={loop}")
    program = ("--", "python", "train.py")
    done = flint("run", "--world", WORLD, "-o", tmp_path / "out", *program, cwd=tmp_path)
    line = next(at for at, text in enumerate(f"{start}{way}".splitlines(), 1) if "name =" in text)
    assert f"picks an item that differs among ranks at train.py:{line}: what only" in done.stderr


def recorded(folder):
    (line,) = (line for line in flint("inspect", folder / "out").stdout.splitlines()
               if "recorded ranks" in line)  # fmt: skip
    return line.partition(":")[2].partition(";")[0].count(",") + 1
