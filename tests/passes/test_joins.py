"""Optimization barriers through the passes: when from all operands, what and where from one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.graph.building import TableBuilder
from flint.graph.graph import Loop, Phase, Source, WorkloadGraph, with_tables
from flint.graph.joins import behind, joins, narrowed
from flint.graph.nodes import Node
from flint.graph.verification import verify
from flint.passes import GRANULARITIES, apply
from flint.passes.optimizer_phase import mark_optimizer
from flint.passes.order import issue_order
from flint.passes.update_aliasing import resolve_updates
from flint.passes.what_if import transform
from flint.simulation.memory import peak_memory
from flint.workload.programs import ProgramInput
from tests.passes.building import ACTIVATION, INDEX, SHARD, WEIGHT, Graph, names
from tests.passes.dependence import execute


def only(graph: WorkloadGraph, name: str) -> Node:
    (found,) = [node for node in graph if node.op == name]
    return found


def recomputing(layers: int) -> WorkloadGraph:
    """A step whose layers are computed again behind a barrier with the gradient, in text order.

    Of a layer only what it takes in is kept; its weight is gathered twice, too.
    """
    g = Graph()
    x = g.input()
    shards = [g.input(SHARD) for _ in range(layers)]
    kept = []
    for layer, shard in enumerate(shards):
        kept.append(x)
        inner = g.elementwise(g.dot(x, g.all_gather(shard)), name=f"forward{layer}")
        x = g.elementwise(inner, x, name=f"residual{layer}")
    gradient = g.elementwise(x, name="loss")
    for layer in reversed(range(layers)):
        types = (ACTIVATION, SHARD, ACTIVATION)
        held, shard, gradient = g.barrier(kept[layer], shards[layer], gradient, of=types)
        weight = g.all_gather(shard)
        again = g.elementwise(g.dot(held, weight), name=f"again{layer}")
        gradient = g.elementwise(g.dot(gradient, weight), again, name=f"backward{layer}")
    return g.finish(gradient)


def test_layers_are_computed_again_one_after_another_in_the_backward_pass() -> None:
    graph = issue_order(recomputing(4))
    found = [name for name in names(graph) if name[:5] in ("forwa", "again", "backw")]
    forward = [f"forward{layer}" for layer in range(4)]
    backward = [f"{part}{layer}" for layer in (3, 2, 1, 0) for part in ("again", "backward")]
    assert found == forward + backward


def test_a_weight_behind_a_barrier_is_gathered_just_before_its_use() -> None:
    """It is made from an input, which stays in memory: waiting costs nothing there either."""
    graph = issue_order(recomputing(4))
    for node in graph:
        if node.op == "all_gather":
            between = names(graph)[node.index + 1 : min(user.index for user in node.users)]
            assert len([name for name in between if name != "optimization_barrier"]) <= 1


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_everything_behind_a_barrier_waits_for_it_at_any_granularity(granularity: str) -> None:
    graph = issue_order(recomputing(3))
    assert execute(apply(graph, granularity)).needs == execute(graph).needs


def test_what_is_handed_on_takes_no_memory() -> None:
    """Two activations are alive beside the input: the loss or its like, and one that is made."""
    g = Graph()
    x = g.input()
    kept = g.elementwise(g.reduce(x), name="kept")
    first, second = g.barrier(kept, x)
    graph = apply(g.finish(g.dot(first, g.reduce(second), ACTIVATION)), "kernel")
    inputs = (ProgramInput(ACTIVATION),)
    small = 2 * 4  # two reduced numbers
    assert peak_memory(graph, inputs).peak <= 2 * ACTIVATION.bytes + small


def test_an_update_behind_a_barrier_waits_for_readers_of_the_buffer_before_it() -> None:
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    read = g.reduce(buffer)
    behind_it, held = g.barrier(buffer, new, of=(ACTIVATION, SHARD))
    graph = resolve_updates(g.finish(g.update(behind_it, held, index), read))
    assert only(graph, "reduce").index in graph.predecessors(len(graph) - 1)


def test_an_update_behind_a_barrier_is_a_copy_where_the_buffer_is_read_later() -> None:
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    behind_it, held = g.barrier(buffer, new, of=(ACTIVATION, SHARD))
    updated = g.update(behind_it, held, index)
    graph = resolve_updates(g.finish(updated, g.reduce(buffer)))
    assert only(graph, "dynamic_update_slice").work.aliased == 0


def test_what_a_barrier_holds_back_until_there_are_gradients_is_not_the_optimizers() -> None:
    tables = TableBuilder()
    sources = {
        phase: tables.source(Source("", "step.py", 1, phase))
        for phase in (Phase.BACKWARD, Phase.UNKNOWN)
    }
    g = Graph(tables)
    x = g.input()
    gradient = g.elementwise(x, name="gradient")
    held, after = g.barrier(x, gradient)
    other, update = g.elementwise(held, name="other"), g.elementwise(after, name="update")
    graph = g.finish(other, update)
    phases = [Phase.BACKWARD, *[Phase.UNKNOWN] * 3]
    graph = replace(graph, source=graph.source + [sources[phase] for phase in phases])
    marked = mark_optimizer(with_tables(graph, tables.finish()))
    assert only(marked, "update").source.phase is Phase.OPTIMIZER
    assert only(marked, "other").source.phase is Phase.UNKNOWN


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_hoisting_takes_a_gather_past_the_barrier_that_held_it_back(in_a_loop: bool) -> None:
    tables = TableBuilder()
    g = Graph(tables)
    x, shard = g.input(), g.input(SHARD)
    first = g.dot(x, g.all_gather(g.input(SHARD)))
    held, gradient = g.barrier(shard, first, of=(SHARD, ACTIVATION))
    graph = g.finish(g.dot(gradient, g.all_gather(held)))
    if in_a_loop:
        outer = Graph(tables)
        operands = [outer.input(), outer.input(SHARD), outer.input(SHARD)]
        graph = outer.finish(*outer.builder.loop(Loop(graph, 1, 4), operands))
    needs = execute(transform(graph, ["hoist:by=1"])).among_communications()
    assert any(execute(graph).among_communications().values())
    assert not any(item for item in needs.values())


def test_collectives_on_two_sides_of_a_barrier_are_not_one_bucket() -> None:
    """The second one waits for the first, though it takes nothing from it."""
    g = Graph()
    first, other = g.reduce_scatter(g.input(WEIGHT)), g.input(WEIGHT)
    held, made = g.barrier(other, first, of=(WEIGHT, SHARD))
    apart = transform(g.finish(g.reduce_scatter(held), made), ["bucket:bytes=1MiB"])
    assert names(apart).count("reduce_scatter") == 2


def test_a_join_can_hand_on_less() -> None:
    g = Graph()
    x, y, z = g.input(), g.input(SHARD), g.input(WEIGHT)
    first, _, third = g.barrier(x, y, z, of=(ACTIVATION, SHARD, WEIGHT))
    graph = g.finish(g.dot(first, third))
    assert joins(graph).tolist() == [True, False]
    unread = behind(graph, joins(graph)) == 1
    unread[1] = False
    less = narrowed(graph, unread)
    verify(less)
    assert less[0].operands == (0, 2)
    assert [str(kind) for kind in less[0].result_types] == [str(ACTIVATION), str(WEIGHT)]
    assert less[1].operands == less[0].results
