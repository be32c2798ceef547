"""Groups that tile no axis of the mesh: collectives in them are captured as they are."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import flint  # noqa: E402
from flint.stablehlo.read.bindings import parse  # noqa: E402
from tests.support.shared import quick  # noqa: E402


def gather(x, group):
    dist.all_gather_into_tensor(x.new_empty(x.numel() * dist.get_world_size(group)), x, group=group)


def scatter(x, group):
    part = x.new_empty(x.numel() // dist.get_world_size(group))
    dist.reduce_scatter_tensor(part, x, group=group)


def exchange(x, group):
    dist.all_to_all_single(torch.empty_like(x), x, group=group)


def broadcast(x, group):
    dist.broadcast(x, group_src=1, group=group)


def reduce(x, group):
    dist.all_reduce(x, group=group)


OPS = {
    "all_gather": (gather, lambda size: (48, 48 * size)),
    "reduce_scatter": (scatter, lambda size: (48, 48 // size)),
    "all_to_all": (exchange, lambda size: (48, 48)),
    "collective_broadcast": (broadcast, lambda size: (48, 48)),
    "all_reduce": (reduce, lambda size: (48, 48)),
}


def within(op, lists, x):
    groups = [dist.new_group(ranks) for ranks in lists]
    for ranks, group in zip(lists, groups, strict=True):
        if dist.get_rank() in ranks:
            op(x, group)
    return x + 1


def twelve(mesh):
    return (torch.ones(12, device=mesh.device_type),)


GROUPS = {
    "nested pairs": ([0, 3], [1, 2]),
    "two in the middle": ([1, 2],),
    "three of four": ([0, 1, 3],),
    "three and two": ([0, 1, 2], [3, 4]),
}


@pytest.mark.parametrize("kind", quick(OPS, "all_reduce", "reduce_scatter", "collective_broadcast"))
@pytest.mark.parametrize("name", quick(GROUPS, "three of four"))
def test_a_collective_is_among_the_members_of_its_group(kind, name):
    """Of 12 numbers of 4 bytes each, among the ranks that the program lists."""
    lists = GROUPS[name]
    op, sizes = OPS[kind]
    world = 4 if max(map(max, lists)) < 4 else 5
    step = functools.partial(within, op, lists)
    workload = flint.capture(step, mesh=(world,), axes=("x",), setup=twelve).capture()
    found = {}
    for program in workload.programs:
        among = [node.communication for node in program.graph if node.communication]
        for rank in program.ranks.array().tolist():
            for item in among:
                (row,) = [row for row in item.groups.table().tolist() if rank in row]
                amounts = (*item.operand_bytes, *item.result_bytes)
                found[rank] = item.kind, sorted(x for x in row if x >= 0), amounts
    assert found == {
        rank: (kind, sorted(ranks), sizes(len(ranks))) for ranks in lists for rank in ranks
    }
    assert workload.simulate(system="dgx-h100").step_seconds > 0


REDUCTIONS = {"SUM": "add", "MAX": "maximum", "AVG": "add"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", quick(REDUCTIONS, "MAX"))
def test_a_reduce_scatter_says_what_it_reduces_with_whatever_its_group(name, tmp_path):
    """A pair leaves a pair, which is StableHLO's op; three of four leave one: a custom call."""

    def scatter_with(x, group):
        part = x.new_empty(x.numel() // dist.get_world_size(group))
        dist.reduce_scatter_tensor(part, x, group=group, op=getattr(dist.ReduceOp, name))

    found = {}
    for form, ranks in {"reduce_scatter": [1, 2], "custom_call": [0, 1, 3]}.items():
        step = functools.partial(within, scatter_with, [ranks])
        workload = flint.capture(step, mesh=(4,), axes=("x",), setup=twelve).capture()
        workload.save(tmp_path / form)
        modules = list((tmp_path / form / "programs").glob("*.mlirbc"))
        texts = [str(parse(path.read_bytes())) for path in modules]
        assert sum(f"stablehlo.{form}" in text for text in texts) == 1
        read = [flint.convert(path, mesh=workload.mesh) for path in modules]
        found[form] = [
            reductions(workload), reductions(flint.load(tmp_path / form)), reductions(*read),
        ]  # fmt: skip
    regular = {("reduce_scatter", REDUCTIONS[name])}
    assert found == {form: [regular] * 3 for form in found}


def reductions(*workloads):
    graphs = [program.graph for workload in workloads for program in workload.programs]
    found = [node.communication for graph in graphs for node in graph]
    return {(item.kind, item.reduction) for item in found if item}
