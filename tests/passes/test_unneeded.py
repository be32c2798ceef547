"""Invariants that no iteration reads: what goes, what stays, against running the program."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from flint.graph.building import TableBuilder
from flint.graph.graph import EdgeKind, Loop, with_tables
from flint.graph.verification import verify
from flint.graph.work import Role
from flint.models.jax.llama3 import train_tiny
from flint.passes.attention.fuse import fuse_attention
from flint.passes.dead_invariants import without_unneeded
from flint.simulation.memory import peak_memory
from flint.simulation.preparing import program_graphs
from tests.converters.chakra.write.cases import any_communication
from tests.graph.unrolling.random_graphs import programs
from tests.passes.building import Graph, names
from tests.passes.dependence import execute
from tests.support.shared import examples


def test_a_mask_that_no_iteration_reads_is_not_made():
    """iota -> compare -> loop goes; what also makes an output, and what waits, stays."""
    tables = TableBuilder()
    body = Graph(tables)
    x, _, weight = body.input(), body.input(), body.input()
    once = body.builder.finish((body.elementwise(x, weight),))
    g = Graph(tables)
    start, weight = g.input(), g.input()
    iota = g.op("iota", Role.GENERATE, ())
    shared = g.elementwise(start, name="shared")
    mask = g.elementwise(iota, shared, name="compare")
    g.op("other", Role.ELEMENTWISE, (start,), order=((g.last, EdgeKind.ORDER),))
    (out,) = g.builder.loop(Loop(once, 1, 3), (start, mask, weight))
    graph = with_tables(g.builder.finish((out, shared)), tables.finish())
    after = without_unneeded(graph)
    verify(after)
    assert names(after) == ["shared", "other", "while"]
    assert after.loops[0].body.inputs == 2
    assert after.operand.tolist()[-2:] == [0, 1]
    assert execute(after).outputs == execute(graph).outputs
    # "other" waited for the mask by its stream, and the mask for nothing by its own.
    assert list(after.predecessors(1)) == []


def test_an_unused_gather_stays():
    """Communications are what is traced: none is ever left out."""
    tables = TableBuilder()
    body = Graph(tables)
    x, _ = body.input(), body.input()
    once = body.builder.finish((body.elementwise(x),))
    g = Graph(tables)
    start = g.input()
    reduced = g.all_reduce(g.elementwise(start, name="made"))
    (out,) = g.builder.loop(Loop(once, 1, 3), (start, reduced))
    after = without_unneeded(with_tables(g.builder.finish((out,)), tables.finish()))
    assert names(after) == ["made", "all_reduce", "while"]


def test_masks_of_fused_attention_take_no_memory_in_a_scanned_model():
    """The captured loop takes a mask and what masked scores become, [32, 32] for every head, as
    invariants; with the fused kernel nothing reads them."""
    workload = train_tiny.at((2, 2)).capture()
    written = workload.graph
    (fused,) = program_graphs(workload, "kernel", fused_attention=True)
    masks = [
        str(kind)
        for kind in map(written.type_of, range(written.inputs, written.values))
        if kind.shape[-2:] == (32, 32) and kind.dtype in ("i1", "f32")
    ]
    assert masks and len(fused) < len(fuse_attention(written))
    inputs = workload.programs[0].inputs
    before = peak_memory(fuse_attention(written), inputs).bytes
    assert peak_memory(fused, inputs).bytes <= before
    read = [
        set(loop.body.operand.tolist()) | set(loop.body.outputs.tolist()) for loop in fused.loops
    ]
    for loop, some in zip(fused.loops, read, strict=True):
        assert set(range(loop.carried, loop.body.inputs)) <= some


@given(programs(any_communication))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_makes_its_outputs_and_communications_from_the_same(graph):
    after = without_unneeded(graph)
    verify(after)
    before, now = execute(graph), execute(after)
    assert now.communications_of_outputs() == before.communications_of_outputs()
    assert now.among_communications().keys() == before.among_communications().keys()
    for key, made in now.among_communications().items():
        assert made <= before.among_communications()[key]
