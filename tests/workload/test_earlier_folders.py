"""A workload folder that an earlier version wrote is read as what it was (tests/data/folders)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import flint
from flint.converters.chakra.check.checker import check
from tests.converters.chakra.check.traces import read_nodes

DATA = Path(__file__).parents[1] / "data"
FOLDER = DATA / "folders" / "ring_attention"


def test_its_graph_is_that_of_its_module() -> None:
    module = DATA / "stablehlo" / "ring_attention_8x8.mlirbc"
    now = flint.convert(module, mesh=(8, 8), axes=("data", "context")).graph
    then = flint.load(FOLDER).graph
    assert [node.op for node in then] == [node.op for node in now]
    np.testing.assert_array_equal(then.flops_by_node(), now.flops_by_node())
    assert [str(node.users) for node in then] == [str(node.users) for node in now]


def test_its_traces_pass_the_check() -> None:
    assert check(FOLDER).ok


def communications(trace: Path) -> list[tuple[str, int]]:
    """Each communication of a trace, in its order, with its bytes.

    Which ops are one kernel follows from rules that later versions may improve.
    """
    return [
        (node.name, getattr(item, item.WhichOneof("value")))
        for node in read_nodes(trace)
        for item in node.attr
        if item.name == "comm_size"
    ]


def test_saved_again_its_traces_communicate_the_same(tmp_path: Path) -> None:
    workload = flint.load(FOLDER)
    workload.save(tmp_path / "again", ranks="0-1", system="dgx-h100", unordered_starts=True)
    for name in ("trace.0.et", "trace.1.et"):
        found = communications(tmp_path / "again/et" / name)
        assert found == communications(FOLDER / "et" / name)
        assert found


def test_it_is_simulated() -> None:
    assert flint.load(FOLDER).simulate("dgx-h100").step_seconds > 0
