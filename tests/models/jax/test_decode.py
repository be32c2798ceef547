"""Decoding: the training model's results, token by token, and communication derived by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from flint.graph.work import Role
from flint.models.jax.decode import decode_8b
from flint.passes import apply
from tests.support.children import answer_of
from tests.support.shared import chosen, quick

pytestmark = pytest.mark.xdist_group("models")


@pytest.fixture(scope="module")
def runs(request):
    names = chosen(request, "mesh")
    return answer_of(Path(__file__).with_name("decode_runs.py"), *names, devices=8)


#: Of one rank: 32 layers, 32 sequences, 8192 tokens, 1 of 8 heads of 128, bfloat16.
CACHE = 32 * 32 * 8192 * 128 * 2
#: One token of each sequence in one layer.
TOKEN = 32 * 128 * 2


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
    """Keys and values."""
    [program] = decode_8b.capture().programs
    donated = [item for item in program.inputs if item.donated >= 0]
    assert [item.type.bytes for item in donated] == [CACHE] * 2
    assert [item.role for item in donated] == ["cache"] * 2


def test_a_layer_writes_a_token_of_each_sequence_into_the_cache():
    """Not a byte of the cache is copied, so that a step needs little but its inputs."""
    workload = decode_8b.capture()
    [program] = workload.programs
    found = [
        (node.op, node.work.written, node.work.aliased, times)
        for graph, times in apply(program.graph, "kernel").walk()
        for node in graph
        if node.role in (Role.UPDATE, Role.MOVEMENT)
        and sum(t.bytes for t in node.result_types) >= CACHE // 32
    ]
    assert found == [("scatter", TOKEN, CACHE - TOKEN, 32)] * 2
    inputs = sum(item.type.bytes for item in program.inputs)
    assert workload.simulate().figures.peak_memory_bytes < 1.01 * inputs


@pytest.mark.thorough
def test_xla_copies_no_cache_either(runs):
    """The program for the CPU, compiled: instructions that copy something of the cache's shape."""
    assert runs["copies"] == 0
