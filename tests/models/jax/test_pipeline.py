"""Pipeline parallelism: plain Llama's loss, gradients and steps, and what stages send."""

from __future__ import annotations

import collections
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.chakra.schema import NodeType
from flint.errors import FlintError
from flint.graph.graph import Phase
from flint.models.jax import pipeline
from flint.models.jax.layers import cudnn_attention
from flint.models.jax.parameters import count
from flint.models.jax.pipeline import (
    PIPELINE_70B,
    PIPELINE_TINY,
    parameters,
    train_70b,
    train_tiny,
    training,
)
from tests.converters.chakra.consumer import execute
from tests.models.jax.names_pipeline import EIGHT_LAYERS, stage_data, stage_only
from tests.support.children import answer_of
from tests.support.nodes import communications, product_flops
from tests.support.shared import chosen, quick

pytestmark = pytest.mark.xdist_group("models")


@pytest.fixture(scope="module")
def distances(request):
    names = chosen(request, "run")
    return answer_of(Path(__file__).with_name("pipeline_runs.py"), *names, devices=8)


RUNS = [
    "2x2x2", "one per stage", "sequence parallel", "4 stages", "4 stages, 8 microbatches",
    "8 stages", "replicas", "unrolled, no remat", "1 stage", "mixture of experts",
]  # fmt: skip


def _of_steps(path):
    return "state" in path or "step" in path


@pytest.mark.parametrize("run", quick(RUNS))
def test_loss_and_gradients_are_those_of_the_plain_model_on_one_device(run, distances):
    found = {path: far for path, far in distances[run].items() if not _of_steps(path)}
    # Embedding, head, norm and nine arrays of the blocks (with experts ten); the loss.
    assert len(found) == 12 + 1 + (run == "mixture of experts")
    assert max(found.values()) < 1e-4, found


@pytest.mark.parametrize("run", quick(["2x2x2", "sequence parallel", "4 stages"]))
def test_parameters_and_moments_after_two_steps_are_those_of_plain_llama(run, distances):
    found = {path: far for path, far in distances[run].items() if _of_steps(path)}
    assert len(found) == 3 * 12 + 2  # parameters, two moments, the step's number; the loss
    assert max(found.values()) < 5e-4, found  # second moments are squares: twice as far


def test_the_model_is_llamas():
    # As in test_llama3.py: the released checkpoint's tensors.
    assert count(parameters(PIPELINE_70B, 8)) == 70_553_706_496


#: Step, config, microbatches.
STEPS = {
    "tiny 2x2x2": (train_tiny, PIPELINE_TINY, 4),
    "tiny 4x2": (stage_data, EIGHT_LAYERS, 4),
    "tiny 4": (stage_only, EIGHT_LAYERS, 8),
    "70B 8x8x8": (train_70b, PIPELINE_70B, 32),
}


@pytest.fixture(scope="module", params=quick(STEPS, "tiny 4x2"))
def case(request):
    """Workload, config, microbatches, stages, parts of the tensor axis."""
    step, config, microbatches = STEPS[request.param]
    workload = step.capture()
    sizes = dict(zip(workload.mesh.axes, workload.mesh.shape, strict=True))
    return workload, config, microbatches, sizes["stage"], sizes.get("model", 1)


def neighbours(workload, by):
    """Rank -> the rank ``by`` stages on, -1 where there is none."""
    ranks = np.arange(workload.mesh.size).reshape(workload.mesh.shape)
    axis = workload.mesh.axes.index("stage")
    found = np.roll(ranks, -by, axis)
    ends = [slice(None)] * ranks.ndim
    ends[axis] = slice(-by, None) if by > 0 else slice(0, -by)
    found[tuple(ends)] = -1
    return found.ravel()


def test_hops_of_every_tick_and_their_bytes(case):
    """m microbatches on n stages take m + n - 1 ticks.  In each, results go to the next stage and a
    microbatch of the stream to the stage before; in the backward pass, as many times, the gradient
    of either comes back the same way.  What goes is a rank's part of a microbatch in bfloat16: one
    sequence of activations, split over the tensor axis where the residual stream is."""
    workload, config, microbatches, stages, parts = case
    size = config.sequence * config.width * 2 // (parts if config.sequence_parallel else 1)
    found = collections.Counter()
    for node, times in communications(workload, "collective_permute"):
        assert [kind.bytes for kind in node.result_types] == [size]
        [by] = [
            by
            for by in (1, -1)
            if np.array_equal(node.communication.permutation.target, neighbours(workload, by))
        ]
        found[node.source.phase, node.source.layer, by] += times
    ticks = microbatches + stages - 1
    assert found == {
        (Phase.FORWARD, "pipeline/next", 1): ticks,
        (Phase.FORWARD, "pipeline/stream", -1): ticks,
        (Phase.BACKWARD, "pipeline/next", -1): ticks,
        (Phase.BACKWARD, "pipeline/stream", 1): ticks,
    }


@pytest.mark.thorough
def test_traces_of_stages_send_to_the_neighbours_that_they_have(tmp_path):
    """To the next stage, results in the forward pass and the stream's gradients in the backward
    pass: twice per tick; to the stage before, the stream and the results' gradients.  Executed with
    random durations, all ranks finish."""
    stage_only.capture().save(tmp_path / "out")
    traces = load_trace_set(tmp_path / "out")
    stages, ticks = 4, 8 + 4 - 1
    for rank in range(stages):
        trace = traces.traces[traces.class_of_rank()[rank]]
        expected = {other: 2 * ticks for other in (rank - 1, rank + 1) if 0 <= other < stages}
        sent = trace.comm_dst[trace.type == NodeType.SEND]
        received = trace.comm_src[trace.type == NodeType.RECV]
        assert collections.Counter(sent.tolist()) == expected
        assert collections.Counter(received.tolist()) == expected
    assert execute(traces, seed=7).complete


def among_stages(node, workload):
    """Whether a collective's groups have ranks of several stages; "stage" is the first axis."""
    groups = node.communication.groups
    if groups is None:
        return False
    stages = groups.table() // (workload.mesh.size // workload.mesh.shape[0])
    return bool((stages != stages[:, :1]).any())


def test_in_the_ticks_only_hops_go_over_stages(case):
    workload = case[0]
    found = [node for node, times in communications(workload) if times > 1]
    assert found
    assert not any(among_stages(node, workload) for node in found)


def test_gradients_of_embedding_head_and_norm_are_summed_over_stages_once(case):
    """They are the only parameters that all stages have."""
    workload = case[0]
    found = collections.Counter(
        node.source.layer
        for node, times in communications(workload, "all_reduce")
        for _ in range(times)
        if node.source.phase is Phase.BACKWARD and among_stages(node, workload)
    )
    assert found == {"embedding": 1, "head": 1, "head/norm": 1}


def ancestors(graph, index):
    known, front = set(), [index]
    while front:
        new = graph.predecessors(front.pop()) - known
        known |= new
        front += new
    return known


@pytest.mark.thorough
def test_the_streams_hops_do_not_wait_for_the_layers_of_their_tick():
    """So that they are on their way while a stage works; the hop to the next stage does wait.  In
    the backward pass a stage's gradient has come with the hop, so that the layers wait."""
    workload = train_70b.capture()
    [program] = workload.programs
    waits = {}
    for graph, _ in program.graph.walk():
        layers = {index for index, node in enumerate(graph) if node.loop is not None}
        for index, node in enumerate(graph):
            if node.communication and node.communication.kind == "collective_permute":
                before = bool(layers & ancestors(graph, index))
                after = any(index in ancestors(graph, loop) for loop in layers)
                waits[node.source.phase, node.source.layer] = before, after
    assert waits == {
        (Phase.FORWARD, "pipeline/next"): (True, False),
        (Phase.FORWARD, "pipeline/stream"): (False, False),
        (Phase.BACKWARD, "pipeline/next"): (False, True),
        (Phase.BACKWARD, "pipeline/stream"): (False, False),
    }


def test_matmul_flops_are_those_of_the_formula(case):
    """A product of (T, K) with (K, N) takes 2 T K N; a block's products as in ``test_llama3.py``
    (four times each, ``down`` three times, in full rematerialisation).  A rank's blocks are its
    stage's, over one sequence per tick, in the bubble too; of the head it has its stage's share of
    the microbatches.  Both are split over the tensor axis."""
    workload, config, microbatches, stages, parts = case
    found = product_flops(*workload.programs)
    length, width, heads = config.sequence, config.width, config.heads
    inner, outer = heads.queries * heads.size, heads.keys * heads.size
    projections = 2 * length * width * (2 * inner + 2 * outer)
    if config.mixer is cudnn_attention:  # scores that the mask leaves; 2, again 2, and 5 products
        attention = (2 + 2 + 5) * length * (length + 1) * inner
    else:
        attention = 4 * 2 * 2 * length**2 * inner
    gate_or_up = 2 * length * width * config.hidden
    block = 4 * (projections + 2 * gate_or_up) + 3 * gate_or_up + attention
    head = 3 * 2 * length * width * config.vocabulary
    ticks, layers = microbatches + stages - 1, config.layers // stages
    assert found * parts == ticks * layers * block + microbatches // stages * head


def test_no_warning(case):
    """But for what cuDNN's kernel needs: it has no form for CPUs in a shard_map."""
    workload, config, *_ = case
    cudnn = "lowered for cuda: an op of the step has no CPU form"
    assert workload.warnings == ({cudnn: 1} if config.mixer is cudnn_attention else {})


@pytest.mark.parametrize(
    ("layers", "microbatches", "words"),
    [(4, 6, "6 microbatches.*4 stages"), (6, 8, "6 layers.*4 equal stages")],
)
def test_what_stages_do_not_divide_is_refused(layers, microbatches, words):
    step = training(replace(PIPELINE_TINY, layers=layers), microbatches, (4,), ("stage",))
    with pytest.raises(FlintError, match=words):
        step.capture()


@pytest.mark.thorough
def test_a_stage_of_a_mixture_exchanges_in_every_tick():
    """4 microbatches on 2 stages take 5 ticks; a stage has 2 layers, which send there and back,
    forward, again and backward; what moves on and the stream are sent forward and backward."""
    found = collections.Counter()
    for block, times in pipeline.train_tiny_mixture.capture().graph.walk():
        for node in block:
            found[node.op] += times
    assert found["all_to_all"] == 5 * 2 * 2 * 3
    assert found["collective_permute"] == 5 * 2 * 2


@pytest.mark.parametrize("other", [{"balance": 0.1}, {"dense": 2}, {"dispatch": "ragged"}])
def test_a_mixture_that_stages_cannot_have_is_refused(other):
    config = replace(pipeline.PIPELINE_MIXTURE, **other)
    with pytest.raises(ValueError, match="a mixture in a pipeline: give dense=0"):
        parameters(config, 2)
