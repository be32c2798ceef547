"""Every rank does the same as the program of its class, against a separate recording of each."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.frontends.torch.capturing import prepare  # noqa: E402
from flint.host.tasks import run_all  # noqa: E402
from flint.host.temporary import temporary_folder  # noqa: E402
from flint.mesh.mesh import Mesh  # noqa: E402
from flint.stablehlo.options import WalkOptions  # noqa: E402
from flint.stablehlo.read.reader import read_mlir  # noqa: E402
from flint.stablehlo.walker import walk  # noqa: E402
from tests.frontends.torch import rank_programs  # noqa: E402
from tests.frontends.torch.in_child import LIMITS  # noqa: E402
from tests.support.shared import quick  # noqa: E402

PROGRAMS = rank_programs.PROGRAMS
QUICK = ("log_on_rank_0",)


def done_by(graph, rank):
    """The behaviour of a rank: every node with its sizes and its communication partners."""
    return [(node.op, *sizes(node), among(node.communication, rank)) for node in graph]


def sizes(node):
    work = node.work
    types = tuple(map(str, (*node.operand_types, *node.result_types)))
    return types, work.flops, work.read, work.written


def among(item, rank):
    if item is None:
        return None
    if item.groups is None:
        ends = item.permutation.target[rank], item.permutation.source[rank]
        return item.kind, *map(int, ends), item.operand_bytes, item.result_bytes
    rows = [row for row in item.groups.table().tolist() if rank in row]
    return item.kind, item.reduction, rows, item.operand_bytes, item.result_bytes


def each_by_itself(step, setup, shape, axes):
    """Rank -> what it does, every rank recorded."""
    from flint.frontends.torch.emission import emitted
    from flint.frontends.torch.session import record

    def work(rank, folder):
        (folder / "module").write_bytes(emitted(record(step, setup, shape, axes, rank)).data)

    mesh, options = Mesh(shape, axes), WalkOptions()
    prepare()
    with temporary_folder() as place:
        folders = run_all(work, range(mesh.size), place, LIMITS)
        data = {rank: (folder / "module").read_bytes() for rank, folder in folders.items()}

    @functools.cache
    def graph_of(module):
        return walk(read_mlir(module, "a rank"), mesh, options).graph

    return {rank: done_by(graph_of(module), rank) for rank, module in data.items()}


@pytest.mark.parametrize("name", quick(PROGRAMS, *QUICK))
def test_every_rank_does_what_its_class_says(name):
    step, setup, shape, axes = PROGRAMS[name]
    workload = flint.capture(step, mesh=shape, axes=axes, setup=setup).capture()
    wanted = each_by_itself(step, setup, shape, axes)
    wrong = []
    for program in workload.programs:
        for rank in program.ranks.array().tolist():
            if done_by(program.graph, rank) != wanted[rank]:
                wrong.append(rank)
    assert wrong == []
