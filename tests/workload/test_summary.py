"""Summaries: independent counts of the saved modules, small programs worked out by hand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import Loop, NodeKind, WorkloadGraph, with_tables
from flint.graph.nesting import blocks
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.workload.inspection import at_granularity, summarise
from flint.workload.programs import Program, ProgramInput
from flint.workload.summary import ProgramSummary
from flint.workload.work_tables import gemm_rows
from flint.workload.workload import Workload
from tests.strategies import workload_graphs

Saved = Callable[..., Workload]


def by_kind(program: ProgramSummary) -> dict[str, list[int]]:
    rows = program.collectives_by_kind
    return {row.kind: [row.count, row.operand_bytes, row.result_bytes] for row in rows}


def workload_of(graph: WorkloadGraph, mesh: Mesh | None = None) -> Workload:
    mesh = mesh or Mesh((1,))
    inputs = tuple(ProgramInput(graph.tables.types[t]) for t in graph.input_type.tolist())
    return Workload(mesh, (Program("main", graph, all_ranks(mesh.size), inputs),))


def test_the_llama_step_has_what_an_independent_count_of_its_text_finds(saved: Saved) -> None:
    # [number, operand bytes, result bytes] per rank, loops unrolled, counted outside Flint.
    [program] = summarise(saved("llama3_8b_scan_fsdp64_tp8")).programs
    assert by_kind(program) == {
        "all_gather": [451, 56872960, 3623354368],
        "all_reduce": [553, 19207299076, 19207299076],
        "all_to_all": [2, 134217728, 134217728],
        "collective_permute": [1, 32768, 32768],
    }
    assert program.matmul_flops == 74146167914496
    assert program.rank_count == 512


def test_pipeline_and_ring_permutes_have_their_independent_counts(saved: Saved) -> None:
    [pipeline] = summarise(saved("pipeline_ppermute_8x8")).programs
    assert by_kind(pipeline) == {"collective_permute": [16, 262144, 262144]}
    [ring] = summarise(saved("ring_attention_8x8")).programs
    assert by_kind(ring) == {"collective_permute": [32, 4194304, 4194304]}


def test_recognised_reduce_scatters_are_the_all_reduces_that_are_gone(saved: Saved) -> None:
    name = "llama3_8b_scan_fsdp64_tp8"
    written, recognised = (by_kind(summarise(saved(name, on)).programs[0]) for on in (False, True))
    together = [
        sum(pair)
        for pair in zip(recognised["all_reduce"], recognised["reduce_scatter"], strict=True)
    ]
    assert together[:2] == written["all_reduce"][:2]
    [program] = summarise(saved(name, True)).programs
    origins = {row.origin for row in program.collectives if row.kind == "reduce_scatter"}
    assert origins == {"all_reduce"}


def test_a_loop_multiplies_what_is_inside(loop: Workload) -> None:
    # Five times a dot [4,8]x[8,8] (2*4*8*8 = 512 FLOPs), a tanh of 32 elements, and the counter.
    [program] = summarise(loop).programs
    ops = {row.op: row for row in program.ops}
    assert (ops["dot_general"].count, ops["dot_general"].flops) == (5, 5 * 512)
    assert (ops["tanh"].count, ops["tanh"].transcendentals, ops["tanh"].flops) == (5, 5 * 32, 0)
    assert ops["add"].flops == 5
    assert program.flops == 5 * 512 + 5
    assert program.transcendentals == 5 * 32
    # f32: the dot reads 4*8 + 8*8 elements and writes 4*8; tanh reads and writes 4*8; add 2 and 1.
    assert (ops["dot_general"].bytes_read, ops["dot_general"].bytes_written) == (5 * 384, 5 * 128)
    assert (program.bytes_read, program.bytes_written) == (5 * (384 + 128 + 8), 5 * (128 + 128 + 4))


def test_arithmetic_intensity_is_flops_over_bytes_read_and_written(loop: Workload) -> None:
    [program] = summarise(loop).programs
    assert program.arithmetic_intensity == (5 * 512 + 5) / (5 * 780)


def test_a_collective_is_named_by_its_mesh_axis(loop: Workload) -> None:
    [row] = summarise(loop).programs[0].collectives
    assert (row.kind, row.reduction, row.group, row.group_size) == ("all_reduce", "add", "model", 4)
    assert (row.count, row.once, row.in_loops, row.dtype) == (5, 0, 5, "f32")
    assert (row.operand_bytes, row.smallest, row.largest) == (5 * 128, 128, 128)


def test_a_loop_is_listed_with_its_trip_count_and_body(loop: Workload) -> None:
    [row] = summarise(loop).programs[0].loops
    assert (row.trip_count, row.known_by, row.level, row.entered) == (5, "proved", 0, 1)
    assert (row.communications, row.flops) == (1, 513)


def test_gemm_sizes_are_counted(loop: Workload) -> None:
    [row] = summarise(loop).programs[0].gemms
    assert (row.batch, row.m, row.n, row.k, row.dtype, row.count) == (1, 4, 8, 8, "f32", 5)
    assert row.flops == 5 * 512


def test_a_kernels_products_of_one_size_are_counted_one_by_one() -> None:
    """A product of 4 x 8 by 8 x 16 has 2 x 4 x 8 x 16 = 1,024 FLOPs.  One kernel has one, one has
    three, and one has a part of one, as under a mask.
    """
    builder = GraphBuilder(TableBuilder())
    for flops in (1024, 3 * 1024, 520):
        work = Work((WorkItem(Unit.MATMUL, "f32", flops, (1, 4, 16, 8)),), 0, 0)
        builder.compute("product", Role.OPAQUE, [], (), work)
    [row] = gemm_rows(list(blocks(builder.finish(()))))
    assert (row.count, row.flops) == (1 + 3 + 1, 4 * 1024 + 520)


def test_inputs_and_outputs_are_counted_in_bytes(loop: Workload) -> None:
    [program] = summarise(loop).programs
    [row] = program.inputs
    assert (row.count, row.bytes, row.donated) == (2, 128 + 256, 0)
    assert (program.output_count, program.output_bytes) == (1, 128)


def test_the_cluster_does_what_every_rank_does(loop: Workload) -> None:
    summary = summarise(loop)
    assert summary.cluster_flops == 8 * summary.programs[0].flops


def test_programs_add_up_to_the_cluster(two_programs: Workload, loop: Workload) -> None:
    summary = summarise(two_programs)
    assert [program.rank_count for program in summary.programs] == [4, 4]
    assert summary.cluster_flops == summarise(loop).cluster_flops
    assert [program.name for program in summarise(two_programs, "low").programs] == ["low"]


def test_sums_beyond_64_bits_are_exact() -> None:
    # 3 ops of 2**62 FLOPs and bytes, in a loop of 1000 iterations in a loop of 2**31 - 1.
    tables = TableBuilder()
    scalar = tensor_type((), "f32")
    huge = Work((WorkItem(Unit.VECTOR, "f32", 2**62),), 2**62, 2**62)
    inner = GraphBuilder(tables)
    value = inner.input(tables.type(scalar))
    for _ in range(3):
        [value] = inner.compute("add", Role.ELEMENTWISE, (value, value), (scalar,), huge)
    body = inner.finish((value,))
    middle = GraphBuilder(tables)
    start = middle.input(tables.type(scalar))
    [value] = middle.loop(Loop(body, 1, 1000), (start,))
    outer = GraphBuilder(tables)
    start = outer.input(tables.type(scalar))
    [value] = outer.loop(Loop(middle.finish((value,)), 1, 2**31 - 1), (start,))
    graph = with_tables(outer.finish((value,)), tables.finish())
    [program] = summarise(workload_of(graph)).programs
    assert program.flops == program.bytes_read == 3 * 2**62 * 1000 * (2**31 - 1)
    assert json.loads(json.dumps(program.to_json()))["flops"] == program.flops


@given(workload_graphs())
def test_a_summary_is_what_visiting_every_node_adds_up(graph: WorkloadGraph) -> None:
    flops: Counter[str] = Counter()
    count: Counter[str] = Counter()
    moved: Counter[str] = Counter()

    def visit(part: WorkloadGraph, times: int) -> None:
        for node in part:
            if node.loop is not None:
                visit(node.loop.body, times * node.loop.trip_count)
            elif times:
                count[node.op] += times
                flops[node.op] += times * node.flops
                moved[node.op] += times * (node.work.read + node.work.written)

    visit(graph, 1)
    [program] = summarise(workload_of(graph, Mesh((8,)))).programs
    assert {row.op: row.count for row in program.ops} == count
    assert {row.op: row.flops for row in program.ops} == flops
    assert {row.op: row.traffic for row in program.ops} == moved
    assert program.flops == flops.total()


@pytest.mark.parametrize("granularity", ["op", "kernel", "region"])
def test_granularity_changes_nodes_but_neither_work_nor_communication(
    saved: Saved, granularity: str
) -> None:
    workload = saved("llama_tiny_scan_fsdp4_tp2")
    [before] = summarise(workload).programs
    [after] = summarise(at_granularity(workload, granularity)).programs
    assert after.work == before.work
    assert by_kind(after) == by_kind(before)
    assert after.nodes < before.nodes


def test_a_summary_is_json(saved: Saved) -> None:
    document = json.loads(json.dumps(summarise(saved("moe_einsum_8x8")).to_json()))
    [program] = document["programs"]
    shares = sum(op["flops_share"] for op in program["ops"])
    assert shares == pytest.approx(1)
    assert program["collectives"][0]["count"] > 0
    assert document["ranks"] == 64


def test_loop_nodes_themselves_are_not_counted(loop: Workload) -> None:
    graph = loop.graph
    plain = int((graph.kind < NodeKind.LOOP).sum())
    body = graph.loops[0].body
    [program] = summarise(loop).programs
    assert program.nodes == plain + 5 * len(body)
    assert program.stored_nodes == len(graph) + len(body)
