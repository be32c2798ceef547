"""Hoisting weight gathers in real captures: what Flint finds, and the shape of the known result.

Known (published for steps of an 8B model whose gathers stand in line with compute): hoisting
shortens the step on 8 and on 64 ranks, costs memory, and gains nothing on a slow network.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from flint.graph.graph import NodeKind
from flint.models.torch import llama3
from flint.passes import apply
from flint.passes.what_if import transform
from flint.passes.what_if.gathers import weight_gathers
from tests.passes.totals import work
from tests.passes.what_if.layers import payload
from tests.support.children import HUNG

pytestmark = pytest.mark.xdist_group("prefetch")

ROOT = Path(__file__).parents[3]


def gathers(graph):
    table = graph.tables.communications
    return [
        int(node)
        for node in (graph.kind == NodeKind.COMMUNICATION).nonzero()[0]
        if table[int(graph.detail[node])].kind == "all_gather"
    ]


@pytest.fixture(scope="module")
def fsdp2():
    """Only weights are gathered: the mesh has no other axis."""
    [program] = llama3.training(llama3.TINY, mesh=(4,), axes=("dp",)).capture().programs
    return apply(program.graph, "kernel")


@pytest.mark.thorough
def test_every_gather_of_fsdp2_is_one_of_weights(fsdp2):
    found = gathers(fsdp2)
    # The embedding once, 4 blocks twice, what is outside them (norm and head) at most twice.
    assert 10 <= len(found) <= 11
    assert list(weight_gathers(fsdp2, 0)) == found


@pytest.mark.thorough
def test_gathers_of_fsdp2_move_with_what_prepares_them(fsdp2):
    """With the k-th issued in the place of the (k - 2)-th, fewer products stand before each."""

    def products_before(graph):
        multiplies = [bool(node.flops) and node.op == "aten.mm.default" for node in graph]
        return [sum(multiplies[:node]) for node in gathers(graph)]

    before, after = products_before(fsdp2), products_before(transform(fsdp2, ["hoist:by=2"]))
    assert after == [0, 0, *before[:-2]]


@pytest.mark.thorough
def test_reductions_of_fsdp2_go_into_buckets_and_may_come_later(fsdp2):
    """FSDP2 issues them on a stream of their own, which waits for nothing but the gradients."""

    def reductions(graph):
        table = graph.tables.communications
        return [
            table[int(graph.detail[node])].bytes_in
            for node in (graph.kind == NodeKind.COMMUNICATION).nonzero()[0]
            if table[int(graph.detail[node])].kind == "reduce_scatter"
        ]

    sizes = reductions(fsdp2)
    assert len(sizes) == 6
    assert reductions(transform(fsdp2, ["bucket:bytes=1GiB"])) == [sum(sizes)]
    later = transform(fsdp2, ["defer:by=100"])
    table = later.tables.communications
    kinds = [
        table[int(later.detail[node])].kind if later.kind[node] == NodeKind.COMMUNICATION else ""
        for node in range(len(later))
    ]
    multiplies = [node for node in range(len(later)) if later[node].op == "aten.mm.default"]
    assert kinds.index("reduce_scatter") > max(multiplies)


@pytest.fixture(scope="module")
def stages():
    """Two stages of a pipeline, each split by FSDP and tensor and sequence parallel."""
    config = replace(llama3.TINY, layers=2, microbatches=2)
    return llama3.training(config, mesh=(2, 2, 2), axes=("pp", "dp", "tp")).capture()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "passes",
    [
        ["hoist:by=3"],
        ["defer:by=3"],
        ["bucket:kind=all_gather,bytes=1GB"],
        ["bucket:kind=reduce_scatter,bytes=1GB"],
        ["bucket:kind=all_reduce,bytes=1GB"],
        ["split:kind=reduce_scatter,chunks=3"],
        ["hoist:by=9", "defer:by=9", "bucket:bytes=1GB"],
    ],
    ids=" ".join,
)
def test_pipelines_still_meet_and_move_the_same(stages, passes):
    """Messages after reductions of activations are not delayed: no rank waits forever."""
    for program in stages.programs:
        graph = apply(program.graph, "kernel")
        after = transform(graph, passes)
        assert payload(after) == payload(graph)
        assert work(after) == work(graph)
    result = stages.simulate("dgx-h100", passes=passes)
    assert result.step_seconds > 0
    assert not any("changed nothing" in note for note in result.notes)


@pytest.mark.thorough
def test_the_shape_of_the_known_result():
    """The example, with two of the blocks and a small vocabulary."""
    shown = subprocess.run(
        [sys.executable, ROOT / "examples/what_if_prefetch.py", "--layers", "2",
         "--vocabulary", "4096"],
        capture_output=True, text=True, check=True, timeout=HUNG,
    )  # fmt: skip
    lines = [line.split() for line in shown.stdout.splitlines()[1:]]
    rows = [
        (line[0], int(line[1]), *(float(line[-n].rstrip("%")) for n in (7, 5, 3, 1)))
        for line in lines
    ]
    assert len(rows) == 15
    for first in (0, 5):  # 8 ranks of one node, 64 of one rack
        (*_, step, exposed, memory, gain), *hoisted, both = rows[first : first + 5]
        assert gain == 0
        assert all(row[2] < 0.95 * step and row[3] < exposed for row in hoisted)
        assert hoisted[0][4] <= hoisted[1][4] <= hoisted[2][4]
        assert hoisted[2][4] > memory + 0.4  # GB: a block's gathered weights are 0.44
        # With the reductions later as well, most of the communication is behind compute.
        assert both[2] < hoisted[1][2] and both[3] < 0.5 * exposed
    slow = rows[10:14]
    assert all(row[5] < 2 for row in slow)  # percent
    assert slow[-1][4] > slow[0][4]
