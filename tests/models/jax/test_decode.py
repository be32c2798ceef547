"""Decoding: what the training model says, token by token, and communication derived by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from flint.models.jax.decode import decode_8b
from tests.support.children import answer_of
from tests.support.shared import chosen, quick

pytestmark = pytest.mark.xdist_group("models")


@pytest.fixture(scope="module")
def runs(request):
    names = chosen(request, "mesh")
    return answer_of(Path(__file__).with_name("decode_runs.py"), *names, devices=8)


@pytest.mark.parametrize("mesh", quick(["one device", "4x2"]))
def test_scores_are_those_of_the_forward_pass(mesh, runs):
    assert runs[mesh] < 1e-4 * runs["scale"]


def test_a_token_takes_two_reductions_per_block():
    """8B, tensor parallel: after the attention's and the feed-forward's last product, and after the
    look-up in the split embedding, (32 sequences, 4096) of bfloat16 are summed over ``model``; the
    greedy choice gathers 32 maxima and 32 indices of 8 ranks, 4 bytes each.  Nothing goes over
    ``data``: the cache stays where it is."""
    workload = decode_8b.capture()
    [program] = workload.programs
    found = sorted(
        (item.kind, times, item.bytes_out, item.groups.size)
        for graph, times in program.graph.walk()
        for node in graph
        if (item := node.communication) is not None
    )
    block = 32 * 4096 * 2
    assert found == [
        ("all_gather", 1, 32 * 8 * 4, 8),
        ("all_gather", 1, 32 * 8 * 4, 8),
        ("all_reduce", 1, block, 8),
        ("all_reduce", 32, block, 8),
        ("all_reduce", 32, block, 8),
    ]


def test_the_cache_is_updated_in_place_of_the_old_one():
    """Keys and values: 32 layers, 32 sequences, 8192 tokens, 1 of 8 heads of 128, bfloat16."""
    [program] = decode_8b.capture().programs
    donated = [item for item in program.inputs if item.donated >= 0]
    assert [item.type.bytes for item in donated] == [32 * 32 * 8192 * 128 * 2] * 2
    assert [item.role for item in donated] == ["cache"] * 2
