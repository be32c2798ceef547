"""Bytes that a fusion accesses, derived by hand; one property per test.

f32 elements have 4 bytes; (read, written, aliased).
"""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.graph.scalars import Place, evaluate
from tests.hlo.optimized.text import graph_of


def accessed(fused, parameters, result):
    """(read, written, aliased) of a fusion whose computation is ``fused``."""
    inside = "\n".join(f"  p{i} = {kind} parameter({i})" for i, kind in enumerate(parameters))
    operands = ", ".join(f"p{i}" for i in range(len(parameters)))
    graph = graph_of(
        f"fused {{\n{inside}\n{fused}\n}}\n"
        f"ENTRY e {{\n{inside}\n  ROOT f = {result} fusion({operands}), kind=kLoop, calls=fused\n}}"
    )
    [node] = graph
    return node.work.read, node.work.written, node.work.aliased


def test_an_operand_is_read_once_however_often_it_is_used():
    fused = "  a = f32[100] add(p0, p0)  ROOT m = f32[100] multiply(a, p0)"
    assert accessed(fused, ["f32[100]"], "f32[100]") == (400, 400, 0)


def test_slices_are_read_as_they_are_taken():
    fused = (
        "  a = f32[10] slice(p0), slice={[0:10]}  b = f32[10] slice(p0), slice={[50:60]}"
        "  ROOT s = f32[10] add(a, b)"
    )
    assert accessed(fused, ["f32[100]"], "f32[10]") == (2 * 40, 40, 0)


def test_what_a_slice_of_a_result_is_made_of_is_read_in_part():
    """A third of two operands, also where several ops on the way read them; as a whole if what is
    taken of it adds up to that."""
    fused = (
        "  n = f32[30] negate(p0)  m = f32[30] multiply(n, p0)  a = f32[30] add(m, p1)"
        "  ROOT s = f32[10] slice(a), slice={[10:20]}"
    )
    assert accessed(fused, ["f32[30]", "f32[30]"], "f32[10]") == (2 * 40, 40, 0)
    fused = (
        "  n = f32[30] negate(p0)  a = f32[20] slice(n), slice={[0:20]}"
        "  b = f32[20] slice(n), slice={[10:30]}  ROOT s = f32[20] add(a, b)"
    )
    assert accessed(fused, ["f32[30]"], "f32[20]") == (120, 80, 0)


def test_a_slice_of_a_slice_reads_its_part():
    """Ten of the twenty elements that a slice takes; all twenty where something else reads them, or
    where what is taken of them adds up to that; of two slices what one slice takes of both.  An
    associative scan halves its sequence again and again."""
    half = "  h = f32[20] slice(p0), slice={[10:30]}"
    fused = f"{half}  ROOT s = f32[10] slice(h), slice={{[0:10]}}"
    assert accessed(fused, ["f32[30]"], "f32[10]") == (40, 40, 0)
    part = f"{half}  s = f32[10] slice(h), slice={{[0:10]}}"
    fused = f"{part}  t = f32[10] slice(h), slice={{[10:20]}}  ROOT a = f32[10] add(s, t)"
    assert accessed(fused, ["f32[30]"], "f32[10]") == (80, 40, 0)
    fused = f"{part}  n = f32[20] negate(h)  ROOT c = f32[30] concatenate(s, n), dimensions={{0}}"
    assert accessed(fused, ["f32[30]"], "f32[30]") == (80, 120, 0)
    fused = (
        f"{half}  o = f32[20] slice(p0), slice={{[0:20]}}  a = f32[20] add(h, o)"
        "  ROOT s = f32[5] slice(a), slice={[0:5]}"
    )
    assert accessed(fused, ["f32[30]"], "f32[5]") == (2 * 20, 20, 0)


def test_slices_of_what_is_padded_read_as_much_as_they_take():
    """The gradient of an associative scan's halves: every fourth sum of the odd elements and of the
    even ones behind a zero is made of 128 odd and of 127 even ones, which are read as 128."""
    fused = (
        "  y = f32[512] slice(p0), slice={[1:1024:2]}  m = f32[511] slice(p0), slice={[2:1024:2]}"
        "  c = f32[] constant(0)  p = f32[512] pad(m, c), padding=1_0  a = f32[512] add(y, p)"
        "  ROOT s = f32[128] slice(a), slice={[0:512:4]}"
    )
    assert accessed(fused, ["f32[1024]"], "f32[128]") == (2 * 128 * 4, 128 * 4, 0)


def test_a_dynamic_slice_reads_what_it_takes_and_its_index():
    fused = "  ROOT s = f32[1,50] dynamic-slice(p0, p1, p1), dynamic_slice_sizes={1,50}"
    # The stack has 8 rows of 200 bytes; the index is read once, also where it stands twice.
    assert accessed(fused, ["f32[8,50]", "s32[]"], "f32[1,50]") == (200 + 4, 200, 0)


def test_an_update_in_place_moves_the_update():
    fused = (
        "  u = f32[1,50] negate(p1)  z = s32[] constant(0)"
        "  ROOT d = f32[8,50] dynamic-update-slice(p0, u, p2, z)"
    )
    parameters = ["f32[8,50]", "f32[1,50]", "s32[]"]
    assert accessed(fused, parameters, "f32[8,50]") == (200 + 4, 200, 7 * 200)


def test_an_update_of_a_buffer_made_inside_writes_all_of_it():
    fused = (
        "  c = f32[] constant(0)  b = f32[8,50] broadcast(c), dimensions={}  z = s32[] constant(0)"
        "  ROOT d = f32[8,50] dynamic-update-slice(b, p0, p1, z)"
    )
    assert accessed(fused, ["f32[1,50]", "s32[]"], "f32[8,50]") == (200 + 4, 8 * 200, 0)


def test_an_access_behind_a_bitcast_is_an_access():
    fused = (
        "  v = f32[8,50] bitcast(p0)  z = s32[] constant(0)"
        "  ROOT s = f32[1,50] dynamic-slice(v, p1, z), dynamic_slice_sizes={1,50}"
    )
    assert accessed(fused, ["f32[400]", "s32[]"], "f32[1,50]") == (200 + 4, 200, 0)


def test_a_gather_reads_the_rows_it_takes():
    fused = (
        "  ROOT g = f32[3,50] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0},"
        " start_index_map={0}, index_vector_dim=1, slice_sizes={1,50}"
    )
    assert accessed(fused, ["f32[1000,50]", "s32[3]"], "f32[3,50]") == (600 + 12, 600, 0)


def test_a_scatter_reads_and_writes_as_much_as_its_updates():
    fused = (
        "  ROOT s = f32[1000,50] scatter(p0, p1, p2), update_window_dims={1},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1,"
        " to_apply=add"
    )
    parameters = ["f32[1000,50]", "s32[3]", "f32[3,50]"]
    # Rows before, updates, indices; rows after.
    assert accessed(fused, parameters, "f32[1000,50]") == (600 + 600 + 12, 600, 200_000 - 600)


def test_what_a_nested_fusion_slices_is_read_in_slices():
    graph = graph_of(
        """inner { a = f32[100] parameter(0)  ROOT s = f32[10] slice(a), slice={[0:10]} }
        outer { b = f32[100] parameter(0)
          i = f32[10] fusion(b), kind=kLoop, calls=inner  ROOT n = f32[10] negate(i) }
        ENTRY e { c = f32[100] parameter(0)
          ROOT f = f32[10] fusion(c), kind=kLoop, calls=outer }"""
    )
    assert (graph[0].work.read, graph[0].work.written, graph[0].flops) == (40, 40, 10)


@pytest.mark.parametrize(("elements", "read"), [(8, 0), (9, 36)])
def test_constants_that_fit_into_the_code_are_not_read(elements, read):
    values = ",".join(map(str, range(elements)))
    fused = f"  ROOT c = f32[{elements}] constant({{{values}}})"
    assert accessed(fused, [], f"f32[{elements}]") == (read, 4 * elements, 0)


def test_flops_are_those_inside():
    fused = (
        "  d = f32[4,8] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        "  ROOT m = f32[4,8] maximum(d, d)"
    )
    graph = graph_of(
        f"fused {{ p0 = f32[4,16] parameter(0) p1 = f32[16,8] parameter(1)\n{fused} }}\n"
        "ENTRY e { a = f32[4,16] parameter(0) b = f32[16,8] parameter(1)\n"
        "  ROOT f = f32[4,8] fusion(a, b), kind=kOutput, calls=fused }"
    )
    assert graph[0].flops == 2 * 4 * 16 * 8 + 4 * 8


def test_a_fusion_is_called_what_the_backend_calls_its_kernel():
    graph = graph_of(
        """fused { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
        ENTRY e { x = f32[4] parameter(0)
          ROOT loop_negate_fusion.12.clone = f32[4] fusion(x), kind=kLoop, calls=fused }"""
    )
    assert graph[0].op == "loop_negate_fusion"


def nested(levels):
    """A fusion that calls another one twice, and so on: 2**levels negations of 4 elements."""
    inner = ["level0 { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }"]
    for level in range(1, levels + 1):
        call = f"fusion({{}}), kind=kLoop, calls=level{level - 1}"
        inner.append(
            f"level{level} {{ p = f32[4] parameter(0)  a = f32[4] {call.format('p')}"
            f"  ROOT b = f32[4] {call.format('a')} }}"
        )
    return "\n".join(inner) + (
        f"\nENTRY e {{ x = f32[4] parameter(0)  ROOT f = f32[4] fusion(x), kind=kLoop,"
        f" calls=level{levels} }}"
    )


def test_a_computation_that_many_share_is_looked_at_once():
    assert graph_of(nested(40))[0].flops == 4 * 2**40


def test_more_work_than_any_kernel_does_is_refused():
    with pytest.raises(FlintError, match=r"more than 2\*\*60"):
        graph_of(nested(80))


STAGES = """fused { rank = u32[] parameter(0)  stage = s32[] convert(rank)
  middle = s32[] constant(COUNT)  ROOT early = pred[] compare(stage, middle), direction=LT }
once { x = f32[8] parameter(0)  ROOT a = f32[8] tanh(x) }
twice { x = f32[8] parameter(0)  b = f32[8] tanh(x)  ROOT a = f32[8] tanh(b) }
ENTRY e { x = f32[8] parameter(0)  rank = u32[] SOURCE
  early = pred[] fusion(rank), kind=kLoop, calls=fused
  ROOT c = f32[8] conditional(early, x, x), true_computation=once, false_computation=twice }"""


def stages(middle, source="partition-id()"):
    return graph_of(STAGES.replace("COUNT", str(middle)).replace("SOURCE", source))


@pytest.mark.parametrize("middle", [1, 3])
def test_a_branch_that_follows_from_the_rank_through_a_fusion_is_the_ranks_own(middle):
    """GPUs' and TPUs' compilers put the comparison of a stage's number into a kernel."""
    graph = stages(middle)
    [conditional] = graph.conditionals
    chosen = [int(evaluate(conditional.predicate, Place(partitions=rank))) for rank in range(4)]
    done = [
        sum(node.work.transcendentals for node in conditional.branches[branch]) for branch in chosen
    ]
    assert done == [8 if rank < middle else 16 for rank in range(4)]


def test_a_branch_that_follows_from_data_through_a_fusion_is_the_dearest():
    graph = stages(1, "parameter(1)")
    assert not graph.conditionals
    assert sum(node.work.transcendentals for node in graph) == 16
