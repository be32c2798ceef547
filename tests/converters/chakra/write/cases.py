"""Communications and small programs for the writer's tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.write.manifest import Manifest
from flint.converters.chakra.write.writer import write
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import WorkloadGraph
from flint.mesh.groups import Groups, along_axes, everybody, from_table
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import Permutation, permutation
from tests.converters.chakra.check.traces import read_nodes
from tests.graph.unrolling.random_graphs import TYPE, WORK

MESH = Mesh((3, 2), ("data", "model"))
GROUPS: list[Groups] = [
    everybody(6),
    along_axes(MESH, ("data",)),
    along_axes(MESH, ("model",)),
    from_table(6, np.array([[4, 1, 0], [5, 3, -1]])),
    from_table(6, np.array([[2, 5, 0, 4, 1], [3, -1, -1, -1, -1]])),
    from_table(6, np.arange(6).reshape(6, 1)),
]
PERMUTATIONS = [
    permutation(6, np.array([[i, (i + 2) % 6] for i in range(6)])),
    permutation(6, np.array([[i, i + 1] for i in range(5)])),
    permutation(6, np.array([[0, 0], [1, 2], [2, 1], [3, 5]])),
    permutation(6, np.array([[5, 0]])),
]
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ragged_all_to_all")


def communication(
    kind: str,
    *,
    groups: Groups | None = None,
    peers: Permutation | None = None,
    operands: Sequence[int] = (16,),
    results: Sequence[int] | None = None,
    channel: int = 0,
) -> Communication:
    results = operands if results is None else results
    dtypes = ("f32",) * len(operands)
    return Communication(
        kind, None, groups, peers, tuple(operands), tuple(results), dtypes, channel=channel
    )


def any_communication(draw: st.DrawFn) -> Communication:
    size = draw(st.sampled_from([16, 64, 0]))
    kind = draw(st.sampled_from([*COLLECTIVES, "collective_permute", "collective_broadcast"]))
    if kind == "collective_permute":
        return communication(kind, peers=draw(st.sampled_from(PERMUTATIONS)), operands=(size,))
    return communication(kind, groups=draw(st.sampled_from(GROUPS)), operands=(size, 8))


def chain(*items: Communication) -> WorkloadGraph:
    """A compute node, then the communications one after another, then a compute node."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(TYPE))
    (value,) = builder.compute("dot", 5, (value,), (TYPE,), WORK)  # type: ignore[arg-type]
    for item in items:
        (value,) = builder.communication(item, (value,), (TYPE,))
    (value,) = builder.compute("add", 2, (value,), (TYPE,), WORK)  # type: ignore[arg-type]
    return builder.finish((value,))


def write_all(folder: Path, graph: WorkloadGraph, mesh: Mesh = MESH, **options: object) -> Manifest:
    return write(
        [(graph, np.arange(mesh.size))],
        mesh,
        folder,
        system=load_system("dgx-h100"),
        **options,  # type: ignore[arg-type]
    )


def nodes(folder: Path, rank: int) -> list[pb.Node]:
    return list(read_nodes(folder / f"et/trace.{rank}.et"))


def attributes(node: pb.Node) -> dict[str, object]:
    found: dict[str, object] = {}
    for attribute in node.attr:
        value = getattr(attribute, attribute.WhichOneof("value"))
        found[attribute.name] = list(value.values) if hasattr(value, "values") else value
    return found
