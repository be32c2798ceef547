"""What travels: the partitioned step and the one that the GPU backend made of it.

XLA's rewrites keep the payload of every kind and group size: collectives are combined (one node,
summed bytes) and all-reduces whose results are sliced become reduce-scatters (at the partitioned
level Flint recognises these).  One rewrite makes it less, ``AllReduceReassociate``: the sum of two
all-reduces over the same groups becomes one all-reduce of the sum.  Single numbers are left aside:
XLA reduces a loss over two axes in one step or in two, and lays such numbers behind one another or
behind a tensor to combine them, so that the totals may be greater by as many bytes as these have.
"""

from __future__ import annotations

import collections
import importlib

import pytest

import flint
from flint.graph.work import Role
from tests.hlo.optimized.single import FOLDER
from tests.support.shared import quick

MODELS = {
    "llama": "flint.models.jax.llama3",
    "moe": "flint.models.jax.moe",
    "resnet": "flint.models.jax.resnet",
    "pipeline": "flint.models.jax.pipeline",
}
STEPS = dict.fromkeys(MODELS, "train_tiny")
MODELS["8b"], STEPS["8b"] = "flint.models.jax.llama3", "train_8b_plain"

#: Bytes of the largest single number.
SCALAR = 8


@pytest.fixture(scope="module")
def partitioned():
    known = {}

    def capture(name):
        if name not in known:
            known[name] = getattr(importlib.import_module(MODELS[name]), STEPS[name]).capture()
        return known[name]

    return capture


def payload(workload, counted=lambda size: size > SCALAR):
    """(kind, group size) -> bytes of rank 0, on the larger side of a collective."""
    totals = collections.Counter()
    [program, *_] = workload.programs
    for graph, times in program.graph.walk():
        for node in graph:
            item = node.communication
            if item is None:
                continue
            members = 0 if item.groups is None else item.groups.table().shape[1]
            sizes = item.result_bytes if item.kind == "all_gather" else item.operand_bytes
            totals[item.kind, members] += times * sum(filter(counted, sizes))
    return {key: size for key, size in totals.items() if size}


def reassociated(workload):
    """Group size -> bytes of all-reduces that are only added to another one of the same groups."""
    saved = collections.Counter()
    [program, *_] = workload.programs
    for graph, times in program.graph.walk():
        users = collections.Counter(graph.operand.tolist()) + collections.Counter(
            graph.outputs.tolist()
        )
        #: Value -> groups of the all-reduces whose sum it is.
        sums = {}
        for node in graph:
            item = node.communication
            if item is not None and item.kind == "all_reduce" and len(item.operand_bytes) == 1:
                sums[node.results[0]] = item.groups
            elif node.role == Role.ALIAS and len(node.operands) == 1 == len(node.results):
                if node.operands[0] in sums and users[node.operands[0]] == 1:
                    sums[node.results[0]] = sums[node.operands[0]]
            elif node.op == "add":
                groups = [sums.get(v) for v in node.operands if users[v] == 1]
                if len(groups) == 2 and groups[0] is not None and groups[0] == groups[1]:
                    sums[node.results[0]] = groups[0]
                    size = node.result_types[0].bytes
                    if size > SCALAR:
                        saved[groups[0].table().shape[1]] += times * size
    return saved


@pytest.mark.parametrize(
    "name",
    quick(["8b", "llama", "llama_pipelined", "llama_double_buffered", "moe", "resnet"], "llama"),
)
def test_the_gpu_backend_moves_the_same_bytes_per_kind(name, partitioned):
    before = partitioned(name.partition("_")[0])
    expected = payload(before)
    for members, size in reassociated(before).items():
        expected["all_reduce", members] -= size
    found = payload(flint.convert(FOLDER / f"gpu_{name}.hlo.pb.gz"))
    scalars = sum(payload(before, lambda size: size <= SCALAR).values())
    more = {key: found.get(key, 0) - expected.get(key, 0) for key in found.keys() | expected.keys()}
    assert all(0 <= size <= scalars for size in more.values()), more
    assert scalars < 0.005 * sum(expected.values())


def test_a_pipelines_messages_gathers_and_scatters_are_the_same(partitioned):
    before = payload(partitioned("pipeline"))
    after = payload(flint.convert(FOLDER / "gpu_pipeline.hlo.pb.gz"))
    kinds = {key for key in before if key[0] != "all_reduce"}
    assert {key: after[key] for key in kinds} == {key: before[key] for key in kinds}
    # Reductions over two axes in a row become one over both: never more bytes.
    assert sum(size for (kind, _), size in after.items() if kind == "all_reduce") < sum(
        size for (kind, _), size in before.items() if kind == "all_reduce"
    )


@pytest.mark.thorough
def test_permutes_decomposed_into_messages_send_the_same_bytes(partitioned):
    before = payload(partitioned("pipeline"))
    after = payload(flint.convert(FOLDER / "gpu_pipeline_send_recv.hlo.pb.gz"))
    assert ("collective_permute", 0) not in after
    assert after["send", 0] == before["collective_permute", 0]


@pytest.mark.parametrize("name", quick(["llama", "moe"], "llama"))
def test_the_tpu_backend_scatters_and_exchanges_the_same_bytes(name, partitioned):
    before = payload(partitioned(name))
    after = payload(flint.convert(FOLDER / f"tpu_{name}.hlo.pb.gz"))
    for kind in ("reduce_scatter", "all_to_all"):
        wanted = {key: size for key, size in before.items() if key[0] == kind}
        assert {key: size for key, size in after.items() if key[0] == kind} == wanted


@pytest.mark.parametrize("name", quick(["llama", "moe", "pipeline"], "llama"))
def test_the_backend_combines(name, partitioned):
    def count(workload):
        [program, *_] = workload.programs
        return sum(
            times
            for graph, times in program.graph.walk()
            for node in graph
            if node.communication is not None
        )

    after = flint.convert(FOLDER / f"gpu_{name}.hlo.pb.gz")
    assert count(after) < count(partitioned(name))
