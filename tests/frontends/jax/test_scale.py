"""A million devices: the graph, what is said about it, and the traces of chosen ranks.

The step is data parallel over replicas, fully sharded over data and tensor parallel over model.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from typer.testing import CliRunner

import flint
from flint.cli import application
from flint.converters.chakra.check.checker import check
from flint.graph.partners import partners
from tests.converters.chakra.check.traces import read_nodes

pytestmark = pytest.mark.thorough

AXES = ("replica", "data", "model")
SMALL, LARGE = (32, 8, 8), (16384, 8, 8)
WIDTH, HIDDEN = 64, 128
CHOSEN = (0, 77, 2**20 - 1)


def setup(mesh):
    def placed(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    params = {
        "up": placed((WIDTH, HIDDEN), "data", "model"),
        "down": placed((HIDDEN, WIDTH), "model", "data"),
    }
    rows = mesh.shape["replica"] * mesh.shape["data"]
    return params, placed((rows, WIDTH), ("replica", "data"))


@flint.capture(mesh=SMALL, axes=AXES, setup=setup, donate_argnums=0)
def step(params, batch):
    def loss(params):
        return jnp.mean((jax.nn.relu(batch @ params["up"]) @ params["down"]) ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


@pytest.fixture(scope="module")
def small():
    return step.capture()


@pytest.fixture(scope="module")
def large():
    return step.at(mesh=LARGE).capture()


@pytest.fixture(scope="module")
def folder(large, tmp_path_factory):
    path = tmp_path_factory.mktemp("million") / "out"
    large.save(path, ranks=list(CHOSEN))
    return path


def nodes(workload):
    """(op, result types, among whom) in issue order, without tables of what a partition id has."""
    return [
        (
            node.op,
            node.result_types,
            partners(node.communication, workload.mesh) if node.communication else "",
        )
        for node in workload.graph
        if node.op != "constant"
    ]


def test_the_graph_is_that_of_a_small_mesh_with_larger_groups(small, large):
    """Small: as many rows as make XLA choose the same among its ways."""
    assert nodes(small) == nodes(large)


def test_groups_of_a_million_ranks_are_along_the_axes(large):
    """Replicas reduce a weight's gradient: 16,384 ranks, 64 apart, whatever else is split."""
    groups = {
        partners(node.communication, large.mesh): node.communication.groups
        for node in large.graph
        if node.communication
    }
    assert {"data", "model"} <= set(groups)
    (wide,) = (group for group in groups.values() if group.size == 16384)
    members = wide.members(77)
    np.testing.assert_array_equal(members, 77 % 64 + 64 * np.arange(16384))


def test_traces_of_chosen_ranks_pass_the_check(folder, large):
    assert sorted(path.name for path in (folder / "et").glob("*.et")) == sorted(
        f"trace.{rank}.et" for rank in CHOSEN
    )
    report = check(folder)
    assert report.ok, report.findings[:3]
    communications = sum(1 for node in large.graph if node.communication)
    for rank in CHOSEN:
        kinds = [node.type for node in read_nodes(folder / f"et/trace.{rank}.et")]
        assert 0 < sum(kind == 7 for kind in kinds) <= communications  # COMM_COLL_NODE


def test_inspect_speaks_of_a_million_ranks(folder):
    result = CliRunner().invoke(application(), ["inspect", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert document["mesh"]["shape"] == list(LARGE)
    text = CliRunner().invoke(application(), ["inspect", str(folder)]).output
    assert "1,048,576 ranks" in text
    assert "16,384" in text
