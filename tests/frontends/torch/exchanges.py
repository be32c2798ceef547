"""Every communication op of torch.distributed: emitted, run on 4 devices, against its definition.

The group is one of two on a 2 x 2 mesh; what each rank must end with is computed from all ranks'
values by a row of the table here, written from the documentation of torch.distributed.
"""

from __future__ import annotations

import torch

from flint.frontends.torch.emission import emitted
from flint.frontends.torch.recording.recording import Group, Input, Op, Recording, View
from tests.frontends.torch.executing import execute_on

WORLD, MESH = 4, (("dp", 2), ("tp", 2))
SIZE = 2


def case(**fields):
    """An op, the shapes of its inputs (g0, g1, ...) and of other tensors (f0, f1, ...), the truth.

    ``expected(given, me)`` gives a member's outputs: ``given[r][i]`` is input i of the group's
    member r, ``me`` this member's position.
    """
    return fields


#: Groups by the mesh axis that they lie along.
ALONG = {"tp": [(0, 1), (2, 3)], "dp": [(0, 2), (1, 3)]}


def reduced(values, reduction):
    stacked = torch.stack(values)
    return {
        "sum": stacked.sum(0), "avg": stacked.mean(0), "max": stacked.amax(0),
        "min": stacked.amin(0), "product": stacked.prod(0),
    }[reduction]  # fmt: skip


def chunk(value, position, dim=0):
    return value.chunk(SIZE, dim)[position]


CASES = {
    **{
        f"allreduce_ {kind}": case(
            name="c10d.allreduce_.default", given=[(3, 4)], args=("g0",), writes=["g0"],
            reduction=kind,
            expected=lambda given, me, kind=kind: [reduced([m[0] for m in given], kind)],
        )
        for kind in ("sum", "avg", "max", "min", "product")
    },
    "_allgather_base_": case(
        name="c10d._allgather_base_.default", given=[(3, 4)], fresh=[(6, 4)], args=("f0", "g0"),
        writes=["f0"], expected=lambda given, me: [torch.cat([m[0] for m in given])],
    ),
    "_allgather_base_ flat": case(
        name="c10d._allgather_base_.default", given=[(3, 4)], fresh=[(24,)], args=("f0", "g0"),
        writes=["f0"],
        expected=lambda given, me: [torch.cat([m[0].reshape(-1) for m in given])],
    ),
    "allgather_": case(
        name="c10d.allgather_.default", given=[(3, 4)], fresh=[(3, 4), (3, 4)],
        args=([["f0", "f1"]], ["g0"]), writes=["f0", "f1"],
        expected=lambda given, me: [m[0] for m in given],
    ),
    "allgather_coalesced_": case(
        name="c10d.allgather_coalesced_.default", given=[(3, 4), (5,)],
        fresh=[(3, 4), (5,), (3, 4), (5,)], args=([["f0", "f1"], ["f2", "f3"]], ["g0", "g1"]),
        writes=["f0", "f1", "f2", "f3"],
        expected=lambda given, me: [value for m in given for value in m[:2]],
    ),
    "allgather_into_tensor_coalesced_": case(
        name="c10d.allgather_into_tensor_coalesced_.default", given=[(3, 4), (5,)],
        fresh=[(6, 4), (10,)], args=(["f0", "f1"], ["g0", "g1"]), writes=["f0", "f1"],
        expected=lambda given, me: [torch.cat([m[at] for m in given]) for at in (0, 1)],
    ),
    "_reduce_scatter_base_": case(
        name="c10d._reduce_scatter_base_.default", given=[(6, 4)], fresh=[(3, 4)],
        args=("f0", "g0"), writes=["f0"], reduction="avg",
        expected=lambda given, me: [chunk(reduced([m[0] for m in given], "avg"), me)],
    ),
    "reduce_scatter_": case(
        name="c10d.reduce_scatter_.default", given=[(3, 4), (3, 4)], fresh=[(3, 4)],
        args=(["f0"], [["g0", "g1"]]), writes=["f0"], reduction="sum",
        expected=lambda given, me: [sum(m[me] for m in given)],
    ),
    "reduce_scatter_tensor_coalesced_": case(
        name="c10d.reduce_scatter_tensor_coalesced_.default", given=[(6, 4), (10,)],
        fresh=[(3, 4), (5,)], args=(["f0", "f1"], ["g0", "g1"]), writes=["f0", "f1"],
        reduction="sum",
        expected=lambda given, me: [chunk(sum(m[at] for m in given), me) for at in (0, 1)],
    ),
    # Every member runs the root's program: what the others keep is their own and nothing.
    "gather_": case(
        name="c10d.gather_.default", given=[(3, 4)], fresh=[(3, 4), (3, 4)],
        args=([["f0", "f1"]], ["g0"], "group", 0), writes=["f0", "f1"],
        expected=lambda given, me: [
            given[me][0], given[1][0] if me == 0 else torch.zeros_like(given[1][0])
        ],
    ),
    # Every member runs the program of the one that receives.
    "scatter_": case(
        name="c10d.scatter_.default", given=[(3, 4), (3, 4)], fresh=[(3, 4)],
        args=(["f0"], [["g0", "g1"]], "group", 1), writes=["f0"],
        expected=lambda given, me: [
            given[1][0] if me == 0 else torch.zeros_like(given[1][0])
        ],
    ),
    "alltoall_base_": case(
        name="c10d.alltoall_base_.default", given=[(6, 4)], fresh=[(6, 4)],
        args=("f0", "g0", "group", (), ()), writes=["f0"],
        expected=lambda given, me: [torch.cat([chunk(m[0], me) for m in given])],
    ),
    "alltoall_": case(
        name="c10d.alltoall_.default", given=[(3, 4), (3, 4)], fresh=[(3, 4), (3, 4)],
        args=(["f0", "f1"], ["g0", "g1"]), writes=["f0", "f1"],
        expected=lambda given, me: [m[me] for m in given],
    ),
    "all_reduce": case(
        name="_c10d_functional.all_reduce.default", given=[(3, 4)], fresh=[(3, 4)],
        args=("g0", "sum", "0"), results=["f0"], reduction="sum",
        expected=lambda given, me: [sum(m[0] for m in given)],
    ),
    "all_gather_into_tensor": case(
        name="_c10d_functional.all_gather_into_tensor.default", given=[(3, 4)],
        fresh=[(6, 4)], args=("g0", 2, "0"), results=["f0"],
        expected=lambda given, me: [torch.cat([m[0] for m in given])],
    ),
    "reduce_scatter_tensor": case(
        name="_c10d_functional.reduce_scatter_tensor.default", given=[(6, 4)],
        fresh=[(3, 4)], args=("g0", "avg", 2, "0"), results=["f0"], reduction="avg",
        expected=lambda given, me: [chunk(reduced([m[0] for m in given], "avg"), me)],
    ),
    "all_to_all_single": case(
        name="_c10d_functional.all_to_all_single.default", given=[(6, 4)], fresh=[(6, 4)],
        args=("g0", (3, 3), (3, 3), "0"), results=["f0"],
        expected=lambda given, me: [torch.cat([chunk(m[0], me) for m in given])],
    ),
    "shard_dim_alltoall": case(
        name="_dtensor.shard_dim_alltoall.default", given=[(6, 4)], fresh=[(12, 2)],
        args=("g0", 0, 1, "0"), results=["f0"],
        expected=lambda given, me: [torch.cat([chunk(m[0], me, 1) for m in given])],
    ),
}  # fmt: skip


def view(storage, shape):
    return View(storage, 0, shape, torch.empty(shape).stride(), "float32")


def recorded(case, along):
    shapes = {f"g{at}": shape for at, shape in enumerate(case["given"])}
    shapes |= {f"f{at}": shape for at, shape in enumerate(case.get("fresh", ()))}
    views = {name: view(number, shape) for number, (name, shape) in enumerate(shapes.items())}

    def opened(item):
        if isinstance(item, list):
            return tuple(opened(part) for part in item)
        return views.get(item, item) if isinstance(item, str) else item

    writes = tuple(views[name] for name in case.get("writes", ()))
    results = tuple(views[name] for name in case.get("results", ()))
    op = Op(
        name=case["name"], args=tuple(opened(item) for item in case["args"]), kwargs={},
        results=results, writes=writes, group=0, reduction=case.get("reduction", ""),
    )  # fmt: skip
    return Recording(
        rank=0, world_size=WORLD, mesh=MESH, ops=(op,),
        storage_bytes=tuple(4 * torch.empty(shape).numel() for shape in shapes.values()),
        inputs=tuple(
            Input(views[name], "batch", name) for name in shapes if name.startswith("g")
        ),
        results=writes or results, groups=(Group("0", along, ALONG[along][0]),),
    )  # fmt: skip


def worst_difference(case, along):
    generator = torch.Generator().manual_seed(0)
    inputs = [
        [torch.randn(shape, generator=generator) for shape in case["given"]] for _ in range(WORLD)
    ]
    outputs, aliases = execute_on(inputs, emitted(recorded(case, along), strict=True).data)
    worst = 0.0
    for group in ALONG[along]:
        given = [inputs[rank] for rank in group]
        for me, rank in enumerate(group):
            expected = case["expected"](given, me)
            ours = outputs[rank][len(aliases) :]
            assert len(ours) == len(expected)
            for a, b in zip(ours, expected, strict=True):
                assert a.shape == b.shape
                worst = max(worst, float((a - b).abs().max()))
    return worst


def differences():
    """Case and axis -> the largest difference on any rank, or what went wrong."""
    found = {}
    for name, case in CASES.items():
        for along in ALONG:
            try:
                found[f"{name} along {along}"] = worst_difference(case, along)
            except Exception as error:
                found[f"{name} along {along}"] = f"{type(error).__name__}: {error}"[:300]
    return found
