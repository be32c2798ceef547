"""Llama 3 in pipelines and on meshes of several axes: every rank's program, every message."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flint.cli import main  # noqa: E402
from flint.graph.work import Unit  # noqa: E402
from flint.models.torch.llama3 import TINY, train_tiny, training  # noqa: E402
from tests.models.torch.one_rank import attentions, matrix_products  # noqa: E402
from tests.support.shared import quick  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-llama3-pipeline")

MICROBATCHES = 4
SCHEDULES = {"GPipe": 1, "1F1B": 1, "Interleaved1F1B": 2}
BATCH_BYTES = TINY.sequences * TINY.sequence * TINY.width * 2  # bfloat16


def checked(capture, folder):
    """The workload, of whose saved form ``flint check`` finds nothing."""
    workload = capture.capture()
    workload.verify()
    workload.save(folder)
    with pytest.raises(SystemExit) as ended:
        main(["check", str(folder)])
    assert not ended.value.code
    return workload


def messages(program, workload):
    """(from stage, to stage) -> messages of one rank, and their bytes."""
    rank = int(program.ranks.array()[0])
    found, sizes = Counter(), set()
    for node in program.graph:
        item = node.communication
        if item is not None and item.permutation is not None:
            for source, target in enumerate(item.permutation.target.tolist()):
                if target >= 0 and rank in (source, target):
                    found[stage(source, workload), stage(target, workload)] += 1
                    sizes.add(item.operand_bytes)
    return found, sizes


def stage(rank, workload):
    return int(np.unravel_index(rank, workload.mesh.shape)[workload.mesh.axes.index("pp")])


@pytest.mark.thorough
@pytest.mark.parametrize("schedule", quick(SCHEDULES, "1F1B"))
def test_messages_of_a_pipeline_of_two_ranks(schedule, tmp_path):
    """With s stages on each of two ranks, every one of the 2 s - 1 borders lies between the ranks:
    per microbatch one message forward, one (the gradient) back.  Stages alternate, so that a border
    is crossed upwards (rank 0 to 1) at even stages, s times, and downwards at odd ones, s - 1."""
    stages = SCHEDULES[schedule]
    config = replace(TINY, schedule=schedule, stages=stages, microbatches=MICROBATCHES)
    workload = checked(training(config, mesh=(2,), axes=("pp",)), tmp_path)
    assert [program.ranks.array().tolist() for program in workload.programs] == [[0], [1]]
    up = MICROBATCHES * (stages + stages - 1)
    for program in workload.programs:
        found, sizes = messages(program, workload)
        assert found == {(0, 1): up, (1, 0): up}
        assert sizes == {(BATCH_BYTES,)}
    graphs = [program.graph for program in workload.programs]
    # Together the stages do the whole model's products, for each microbatch.
    products = 3 * (7 * TINY.layers + 1)
    assert sum(matrix_products(graph) for graph in graphs) == MICROBATCHES * products
    kernels = [attentions(graph) for graph in graphs]
    assert [sum(item) for item in zip(*kernels, strict=True)] == [MICROBATCHES * TINY.layers] * 2


@pytest.mark.thorough
def test_a_capture_of_more_microbatches_takes_as_long_as_a_simulation_says():
    """16 microbatches taken as 24 are a capture of 24: to the picosecond, kernel by kernel."""
    few, many = (
        training(replace(TINY, layers=2, microbatches=count), mesh=(2,), axes=("pp",)).capture()
        for count in (16, 24)
    )
    asked, real = few.simulate(microbatches="16:24"), many.simulate()
    assert asked.step_seconds == real.step_seconds
    assert asked.flops == real.flops
    for one, other in zip(asked.programs, real.programs, strict=True):
        counts = [{row.name: row.count for row in item.classes} for item in (one, other)]
        assert counts[0] == counts[1]


@pytest.mark.thorough
def test_four_stages_send_to_both_neighbours(tmp_path):
    config = replace(TINY, microbatches=6)
    workload = checked(training(config, mesh=(4,), axes=("pp",)), tmp_path)
    assert len(workload.programs) == 4
    for number, program in enumerate(workload.programs):
        found, _ = messages(program, workload)
        neighbours = [item for item in (number - 1, number + 1) if 0 <= item < 4]
        expected = {pair: 6 for item in neighbours for pair in ((number, item), (item, number))}
        assert found == expected


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mesh", "axes", "kinds"),
    [
        # Which axes tell ranks apart: stages do different things, and in a ring of attention each
        # place skips other blocks of the causal mask; shards and heads are alike.
        ((4, 2), ("dp", "tp"), ()),
        ((2, 4), ("dp_replicate", "dp"), ()),
        ((2, 2, 2), ("dp_replicate", "dp", "tp"), ()),
        ((2, 2), ("pp", "dp"), ("pp",)),
        ((2, 2), ("pp", "tp"), ("pp",)),
        ((2, 2), ("dp", "cp"), ("cp",)),
        ((2, 2, 2), ("pp", "dp_replicate", "dp"), ("pp",)),
        ((2, 2, 2, 2), ("pp", "dp", "cp", "tp"), ("pp", "cp")),
    ],
)
def test_every_rank_has_the_program_of_its_place(mesh, axes, kinds, tmp_path):
    workload = checked(training(TINY, mesh=mesh, axes=axes), tmp_path)
    owner = np.full(workload.mesh.size, -1)
    for number, program in enumerate(workload.programs):
        owner[program.ranks.array()] = number
    places = np.stack(np.unravel_index(np.arange(workload.mesh.size), mesh))
    place = [tuple(places[axes.index(kind), rank] for kind in kinds) for rank in range(owner.size)]
    assert len(set(zip(owner, place, strict=True))) == len(set(owner)) == len(set(place))
    for program in workload.programs:
        assert matrix_products(program.graph) == products_of(program, workload)


def products_of(program, workload):
    """Of all layers once; in a pipeline of a stage's layers, and at its end the head, for each
    microbatch."""
    if "pp" not in workload.mesh.axes:
        return 3 * (7 * TINY.layers + 1)
    stages = workload.mesh.shape[workload.mesh.axes.index("pp")]
    last = stage(int(program.ranks.array()[0]), workload) == stages - 1
    return TINY.microbatches * 3 * (7 * TINY.layers // stages + last)


@pytest.mark.thorough
@pytest.mark.parametrize("rotate", ["allgather", "alltoall"])
def test_the_ring_attends_to_every_part_of_the_sequence(rotate, tmp_path):
    """The sequence is cut into four parts, of which rank 0 has the first and the last, rank 1 the
    two in the middle, so that both compute as much.  In every layer a rank attends to its own keys,
    and to the other rank's: one kernel each, forward and backward.  Together they compute what
    causal attention sees, S (S + 1) / 2 pairs: products with keys and values in the forward pass,
    and five in the backward pass, of 2 FLOPs for each pair and element.

    Keys and values of a rank, S / 2 positions, come from the other one in the forward pass and
    again in the backward pass: gathered, or sent.  Their gradients, in float32, are sent twice:
    with the keys, and home."""
    config = replace(TINY, rotate=rotate)
    workload = checked(training(config, mesh=(2,), axes=("cp",)), tmp_path)
    heads, length = config.heads, config.sequence
    pairs = length * (length + 1) // 2 // 2
    block = 2 * length // 2 * heads.keys * heads.size * 2  # keys and values, bfloat16
    for program in workload.programs:
        assert attentions(program.graph) == (2 * TINY.layers, 2 * TINY.layers)
        found = sum(
            item.flops
            for node in program.graph
            for item in node.work.items
            if "attention" in node.op and item.unit is Unit.MATMUL
        )
        assert found == config.layers * (2 + 5) * 2 * pairs * heads.queries * heads.size
        moved = Counter()
        for node in program.graph:
            if node.communication is not None and node.source.layer.endswith(".attention"):
                moved[node.communication.kind] += sum(node.communication.operand_bytes)
        sent = {"ragged_all_to_all": config.layers * 2 * 2 * block}
        came = "all_gather" if rotate == "allgather" else "ragged_all_to_all"
        assert moved == sent | {came: sent.get(came, 0) + config.layers * 2 * block}


@pytest.mark.thorough
def test_the_step_of_the_command_line(tmp_path):
    workload = checked(train_tiny, tmp_path)
    assert workload.mesh.axes == ("dp", "tp") and len(workload.programs) == 1


@pytest.mark.thorough
def test_the_last_ranks_smaller_shard_is_a_separate_program(tmp_path):
    """262 tokens over 2 x 4 ranks: 131 rows for either rank of ``tp``, of which the first three
    ranks of ``dp`` hold ceil(131 / 4) = 33 and the last 32.  FSDP pads its storage to the others'
    size, but the optimizer's moments are of 32."""
    config = replace(TINY, vocabulary=262)
    workload = checked(training(config, mesh=(4, 2), axes=("dp", "tp")), tmp_path)
    assert [item.ranks.array().tolist() for item in workload.programs] == [[*range(6)], [6, 7]]
    held = []
    for program in workload.programs:
        sizes = {item.name: math.prod(item.type.shape) for item in program.inputs}
        weight = "model.embedding.weight"
        moment = "optimizer.embedding.weight.exp_avg"
        held.append((sizes[weight], sizes[moment]))
    assert held == [(33 * TINY.width, 33 * TINY.width), (33 * TINY.width, 32 * TINY.width)]
