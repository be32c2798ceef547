"""Random trace sets for a real ASTRA-sim: collectives and permutes of all kinds on any network."""

from __future__ import annotations

import numpy as np

from flint.graph.communication import Communication
from flint.mesh.groups import Groups, along_axes, from_table
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import Permutation, permutation
from flint.workload.workload import Workload
from tests.simulation.test_both_engines import exchanged

SHAPES = ((4, 2), (2, 2, 2), (16,), (8,), (2, 8), (4, 8), (2, 3))
SYSTEMS = ("dgx-h100", "tpu-v5e-pod", "mi300x-8", "gb200-nvl72", "tpu-v4-pod")
KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute",
    "collective_broadcast",
)  # fmt: skip
SIZES = (24 << 12, 24 << 20, 24 << 27)


def random_set(seed: int) -> tuple[Workload, str]:
    """Three communications between two products, and the system that they run on."""
    draw = np.random.default_rng(seed)
    shape = SHAPES[draw.integers(len(SHAPES))]
    mesh = Mesh(shape, tuple("abc"[: len(shape)]))
    items = [_communication(draw, mesh) for _ in range(3)]
    return exchanged(*items, mesh=mesh), str(draw.choice(SYSTEMS))


def _communication(draw: np.random.Generator, mesh: Mesh) -> Communication:
    kind, size = str(draw.choice(KINDS)), int(draw.choice(SIZES))
    if kind == "collective_permute":
        peers = _permutation(draw, mesh.size)
        return Communication(kind, None, None, peers, (size,), (size,), ("bf16",))
    groups = _groups(draw, mesh)
    part = size // groups.size
    operand, result = size, size
    if kind == "all_gather":
        operand, result = part, part * groups.size
    elif kind == "reduce_scatter":
        operand, result = part * groups.size, part
    return Communication(kind, "add", groups, None, (operand,), (result,), ("bf16",))


def _groups(draw: np.random.Generator, mesh: Mesh) -> Groups:
    ranks = np.arange(mesh.size)
    how = draw.integers(10)
    if how < 7:
        count = int(draw.integers(1, len(mesh.axes) + 1))
        return along_axes(mesh, tuple(draw.permutation(mesh.axes)[:count].tolist()))
    if how < 9:
        return from_table(mesh.size, ranks.reshape((2, -1) if how == 7 else (-1, 2)))
    some = draw.permutation(ranks)
    table = np.full((2, mesh.size - 2), -1)
    table[0], table[1, :2] = some[:-2], some[-2:]
    return from_table(mesh.size, table)


def _permutation(draw: np.random.Generator, ranks: int) -> Permutation:
    here = np.arange(ranks)
    step = int(draw.choice([1, 2, ranks // 2, ranks - 1]))
    there = [(here + step) % ranks, here ^ 1, draw.permutation(ranks)][draw.integers(3)]
    return permutation(ranks, np.stack([here, there], axis=1)[here != there])
