"""Conditionals that the rank (and the iteration) decides: which program each rank gets.

Longer than 300 lines because each case is a module written out, with what every rank runs of it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.graph.graph import WorkloadGraph
from flint.graph.verification import verify
from flint.passes.branches import split_by_rank
from tests.stablehlo.helpers import (
    all_reduce,
    exchanged,
    executions,
    interpreted,
    waits_for,
    walked,
)

F = "tensor<8xf32>"
INT = "tensor<i32>"


def program(body: str, partitions: int, replicas: int = 1, arguments: str = "") -> str:
    return f"""module attributes {{
      mhlo.num_partitions = {partitions} : i32, mhlo.num_replicas = {replicas} : i32}} {{
      func.func @main(%x: {F}{arguments}) -> {F} {{
        %id = stablehlo.partition_id : tensor<ui32>
        %rank = stablehlo.convert %id : (tensor<ui32>) -> {INT}
        {body}
        return %r : {F}
      }}
    }}"""


def case(result: str, index: str, *branches: str) -> str:
    regions = ", ".join(
        f'{{ {item}\n "stablehlo.return"(%o{result[1:]}{i}) : ({F}) -> () }}'.replace(
            "OUT", f"%o{result[1:]}{i}"
        )
        for i, item in enumerate(branches)
    )
    return f'{result} = "stablehlo.case"({index}) ({regions}) : ({INT}) -> {F}'


def unary(op: str, operand: str = "%x") -> str:
    return f"OUT = stablehlo.{op} {operand} : {F}"


def programs(text: str) -> dict[int, WorkloadGraph]:
    """Rank -> its program's graph."""
    walk = walked(text)
    splits = split_by_rank(walk.graph, walk.world.partitions, walk.world.replicas)
    found: dict[int, WorkloadGraph] = {}
    for split in splits:
        verify(split.graph)
        assert not split.graph.conditionals
        for rank in split.ranks.array().tolist():
            assert rank not in found
            found[rank] = split.graph
    assert sorted(found) == list(range(walk.world.size))
    return found


def test_each_rank_runs_its_own_branch_and_equal_ranks_share_a_program() -> None:
    # rank % 3 chooses: ranks 0, 3 tanh; 1, 4 sine; 2, 5 cosine.
    text = program(
        f"""%three = stablehlo.constant dense<3> : {INT}
        %i = stablehlo.remainder %rank, %three : {INT}
        {case("%r", "%i", unary("tanh"), unary("sine"), unary("cosine"))}""",
        6,
    )
    found = programs(text)
    for rank, graph in found.items():
        mine = ("tanh", "sine", "cosine")[rank % 3]
        assert {op: executions(graph, op) for op in ("tanh", "sine", "cosine")} == {
            op: int(op == mine) for op in ("tanh", "sine", "cosine")
        }
    assert len({id(graph) for graph in found.values()}) == 3


def test_an_index_out_of_range_is_the_last_branch_for_those_ranks_only() -> None:
    # rank - 1: rank 0 is out of range below, ranks 3 to 5 are above: last branch.
    text = program(
        f"""%one = stablehlo.constant dense<1> : {INT}
        %i = stablehlo.subtract %rank, %one : {INT}
        {case("%r", "%i", unary("tanh"), unary("sine"), unary("cosine"))}""",
        6,
    )
    taken = {rank: next(op for op in ("tanh", "sine", "cosine") if executions(graph, op))
             for rank, graph in programs(text).items()}  # fmt: skip
    assert taken == {0: "cosine", 1: "tanh", 2: "sine", 3: "cosine", 4: "cosine", 5: "cosine"}


def test_replicas_decide_too() -> None:
    text = program(
        f"""%rid = stablehlo.replica_id : tensor<ui32>
        %i = stablehlo.convert %rid : (tensor<ui32>) -> {INT}
        {case("%r", "%i", unary("tanh"), unary("sine"))}""",
        3,
        replicas=2,
    )
    # rank = 3 replica + partition
    assert [executions(graph, "sine") for _, graph in sorted(programs(text).items())] == [
        0, 0, 0, 1, 1, 1,
    ]  # fmt: skip


def loop(trips: int, body: str, counter: str = "%i", carried: str = "%v", start: str = "%x") -> str:
    """``for counter in range(trips): carried = %next`` with ``%next`` made by ``body``."""
    n = counter[1:]
    return f"""%zero{n} = stablehlo.constant dense<0> : {INT}
      %l{n}:2 = stablehlo.while({counter} = %zero{n}, {carried} = {start}) : {INT}, {F}
      cond {{
        %end = stablehlo.constant dense<{trips}> : {INT}
        %p = stablehlo.compare LT, {counter}, %end : ({INT}, {INT}) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        {body}
        %one{n} = stablehlo.constant dense<1> : {INT}
        %up{n} = stablehlo.add {counter}, %one{n} : {INT}
        stablehlo.return %up{n}, %next{n} : {INT}, {F}
      }}"""


def pipeline(stages: int, microbatches: int) -> str:
    """A stage works on tick t when stage <= t < stage + microbatches."""
    ticks = stages + microbatches - 1
    body = f"""%age = stablehlo.subtract %i, %rank : {INT}
        %none = stablehlo.constant dense<0> : {INT}
        %all = stablehlo.constant dense<{microbatches}> : {INT}
        %begun = stablehlo.compare GE, %age, %none : ({INT}, {INT}) -> tensor<i1>
        %open = stablehlo.compare LT, %age, %all : ({INT}, {INT}) -> tensor<i1>
        %busy = stablehlo.and %begun, %open : tensor<i1>
        %which = stablehlo.convert %busy : (tensor<i1>) -> {INT}
        {case("%nexti", "%which", unary("negate", "%v"), unary("tanh", "%v"))}"""
    return program(f"{loop(ticks, body)}\n %r = stablehlo.abs %li#1 : {F}", stages)


@given(st.integers(1, 5), st.integers(1, 6))
def test_a_pipeline_has_a_bubble_of_stages_minus_one_on_every_rank(
    stages: int, microbatches: int
) -> None:
    for rank, graph in programs(pipeline(stages, microbatches)).items():
        # Every stage works on every microbatch once and idles for the other stages - 1 ticks,
        # `rank` of them before its first microbatch.
        assert executions(graph, "tanh") == microbatches
        assert executions(graph, "negate") == stages - 1
        runs = [(item.trip_count, executions(item.body, "tanh")) for item in graph.loops]
        expected = [(rank, 0), (microbatches, 1), (stages - 1 - rank, 0)]
        assert runs == [(trips, busy) for trips, busy in expected if trips]


def test_nested_loops_are_cut_in_the_loop_whose_counter_decides() -> None:
    # In the inner iteration j == rank the branch is a tanh: once per outer iteration.
    inner = loop(
        4,
        f"""%d = stablehlo.subtract %j, %rank : {INT}
        {case("%nextj", "%d", unary("tanh", "%w"), unary("negate", "%w"))}""",
        counter="%j",
        carried="%w",
        start="%v",
    )
    text = program(
        f"""{loop(3, inner.replace("%lj:2", "%lj:2") + f" %nexti = stablehlo.abs %lj#1 : {F}")}
        %r = stablehlo.abs %li#1 : {F}""",
        4,
    )
    for rank, graph in programs(text).items():
        (outer,) = graph.loops
        assert outer.trip_count == 3
        assert [item.trip_count for item in outer.body.loops] == [
            n for n in (rank, 1, 3 - rank) if n
        ]
        assert executions(graph, "tanh") == 3
        assert executions(graph, "negate") == 9


def test_a_predicate_over_two_counters_cuts_both_loops() -> None:
    # tanh where i == j: the diagonal of 3 x 3, whatever the rank.
    inner = loop(
        3,
        f"""%d = stablehlo.subtract %j, %i : {INT}
        {case("%nextj", "%d", unary("tanh", "%w"), unary("negate", "%w"))}""",
        counter="%j",
        carried="%w",
        start="%v",
    )
    text = program(
        f"""{loop(3, inner + f" %nexti = stablehlo.abs %lj#1 : {F}")}
        %r = stablehlo.abs %li#1 : {F}""",
        1,
    )
    graph = programs(text)[0]
    assert [item.trip_count for item in graph.loops] == [1, 1, 1]
    assert (executions(graph, "tanh"), executions(graph, "negate")) == (3, 6)


def test_what_stands_around_a_cut_loop_is_connected_to_all_its_runs() -> None:
    graph = programs(pipeline(3, 2))[1]
    *_, last = [node for node in graph if node.loop is not None]
    end = next(node for node in graph if node.op == "abs")
    for node in graph:
        if node.loop is not None:
            assert waits_for(graph, end, node)
    assert last.loop is not None and last.loop.trip_count == 1


def test_captured_values_reach_both_branches() -> None:
    both = f"%m = stablehlo.add %a, %b : {F} "
    text = program(
        f"""%a = stablehlo.sine %x : {F}
        %b = stablehlo.cosine %x : {F}
        {case("%r", "%rank", unary("tanh", "%a"), both + unary("abs", "%m"))}""",
        2,
    )
    first, second = (programs(text)[rank] for rank in (0, 1))
    assert [node.op for node in first[-1].inputs] == ["sine"]
    (total,) = [node for node in second if node.op == "add"]
    assert sorted(node.op for node in total.inputs) == ["cosine", "sine"]


def test_communications_of_a_branch_belong_to_the_ranks_that_take_it() -> None:
    # Ranks 0 and 1 reduce once over {0, 1}; 2 and 3 twice over {2, 3}.
    pairs = ((0, 1), (2, 3))
    twice = "\n".join((all_reduce("%m", "%x", groups=pairs), all_reduce("OUT", "%m", groups=pairs)))
    text = program(
        f"""%two = stablehlo.constant dense<2> : {INT}
        %i = stablehlo.divide %rank, %two : {INT}
        {case("%r", "%i", all_reduce("OUT", "%x", groups=pairs), twice)}""",
        4,
    )
    counts = [exchanged(graph)["all_reduce"][0] for _, graph in sorted(programs(text).items())]
    assert counts == [1, 1, 2, 2]


def test_a_rank_conditional_inside_a_data_conditional_waits_for_the_data() -> None:
    inner = case("OUT", "%rank", unary("tanh", "%early"), unary("sine", "%early"))
    inner = inner.replace("%oUT", "%q")
    text = program(
        f"""%early = stablehlo.exponential %x : {F}
        %late = stablehlo.negate %data : {INT}
        {case("%r", "%late", inner, unary("abs"))}""",
        2,
        arguments=f", %data: {INT}",
    )
    walk = walked(text, branches={"": 0})
    for split in split_by_rank(walk.graph, 2):
        verify(split.graph)
        chosen = next(node for node in split.graph if node.op in ("tanh", "sine"))
        predicate = next(node for node in split.graph if node.op == "negate")
        assert waits_for(split.graph, chosen, predicate)


@given(st.data())
def test_branches_are_those_that_the_interpreter_takes(data: st.DataObject) -> None:
    """A random index expression: which branch every one of six ranks takes, executed."""
    a, b, c = (data.draw(st.integers(-4, 6)) for _ in range(3))
    op = data.draw(st.sampled_from(["add", "multiply", "subtract", "minimum", "xor"]))
    arms = data.draw(st.integers(1, 4))
    made = f"""%a = stablehlo.constant dense<{a}> : {INT}
      %b = stablehlo.constant dense<{b}> : {INT}
      %c = stablehlo.constant dense<{c if c else 1}> : {INT}
      %s = stablehlo.{op} %rank, %a : {INT}
      %t = stablehlo.remainder %s, %c : {INT}
      %i = stablehlo.add %t, %b : {INT}"""
    names = ["tanh", "sine", "cosine", "negate"][:arms]
    found = programs(program(f"{made}\n {case('%r', '%i', *map(unary, names))}", 6))
    for rank, graph in found.items():
        regions = ", ".join(
            f"{{ %o{i} = stablehlo.constant dense<{i}> : {INT}\n"
            f' "stablehlo.return"(%o{i}) : ({INT}) -> () }}'
            for i in range(arms)
        )
        (taken,) = interpreted(f"""func.func @main() -> {INT} {{
          %rank = stablehlo.constant dense<{rank}> : {INT}
          {made}
          %r = "stablehlo.case"(%i) ({regions}) : ({INT}) -> {INT}
          return %r : {INT}
        }}""")
        ran = Counter({name: executions(graph, name) for name in names})
        assert ran == Counter({name: int(i == int(taken)) for i, name in enumerate(names)})


def test_the_stages_of_a_million_ranks_are_looked_at_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flint.passes import branches

    looked_at = []
    original = branches._branches

    def counting(*args: Any) -> Any:
        looked_at.append(len(args[3]))
        return original(*args)

    monkeypatch.setattr(branches, "_branches", counting)
    ranks, stages = 2**20, 16
    text = pipeline(stages, 8).replace(f"num_partitions = {stages}", f"num_partitions = {ranks}")
    text = text.replace(
        f"%rank = stablehlo.convert %id : (tensor<ui32>) -> {INT}",
        f"""%linear = stablehlo.convert %id : (tensor<ui32>) -> {INT}
        %share = stablehlo.constant dense<{ranks // stages}> : {INT}
        %rank = stablehlo.divide %linear, %share : {INT}""",
    )
    splits = split_by_rank(walked(text).graph, ranks)
    assert [split.ranks.size for split in splits] == [ranks // stages] * stages
    assert looked_at == [stages]


def two_loops(element: str, row: str, read: int = 3) -> str:
    """A loop of 4 iterations writes ``element`` at ``row``; another reads the first rows."""
    return program(
        f"""%zero = stablehlo.constant dense<0> : {INT}
        %one = stablehlo.constant dense<1> : {INT}
        %two = stablehlo.constant dense<2> : {INT}
        %three = stablehlo.constant dense<3> : {INT}
        %four = stablehlo.constant dense<{read}> : {INT}
        %rows = stablehlo.constant dense<0> : tensor<4xi32>
        %w:2 = stablehlo.while(%i = %zero, %a = %rows) : {INT}, tensor<4xi32>
        cond {{
          %n = stablehlo.constant dense<4> : {INT}
          %c = stablehlo.compare LT, %i, %n : ({INT}, {INT}) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          {element}
          {row}
          %e1 = stablehlo.reshape %e : ({INT}) -> tensor<1xi32>
          %u = stablehlo.dynamic_update_slice %a, %e1, %row
            : (tensor<4xi32>, tensor<1xi32>, {INT}) -> tensor<4xi32>
          %j = stablehlo.add %i, %one : {INT}
          stablehlo.return %j, %u : {INT}, tensor<4xi32>
        }}
        %kept = stablehlo.reshape %w#1 : (tensor<4xi32>) -> tensor<1x4xi32>
        %v:3 = stablehlo.while(%i = %zero, %y = %x, %a = %kept) : {INT}, {F}, tensor<1x4xi32>
        cond {{
          %c = stablehlo.compare LT, %i, %four : ({INT}, {INT}) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          %s = stablehlo.dynamic_slice %a, %zero, %i, sizes = [1, 1]
            : (tensor<1x4xi32>, {INT}, {INT}) -> tensor<1x1xi32>
          %b = stablehlo.reshape %s : (tensor<1x1xi32>) -> {INT}
          {case("%z", "%b", unary("tanh", "%y"), unary("sine", "%y"), unary("cosine", "%y"))}
          %j = stablehlo.add %i, %one : {INT}
          stablehlo.return %j, %z, %a : {INT}, {F}, tensor<1x4xi32>
        }}
        %r = stablehlo.abs %v#1 : {F}""",
        4,
    )


#: (rank + 2 i) % 3
ELEMENT = f"""%i2 = stablehlo.multiply %i, %two : {INT}
    %sum = stablehlo.add %rank, %i2 : {INT}
    %e = stablehlo.remainder %sum, %three : {INT}"""
IN_ORDER = f"%row = stablehlo.add %i, %zero : {INT}"
REVERSED = f"%row = stablehlo.subtract %three, %i : {INT}"


@pytest.mark.parametrize(("row", "writer"), [(IN_ORDER, (0, 1, 2)), (REVERSED, (3, 2, 1))])
def test_a_branch_kept_by_one_loop_is_known_in_the_next(row: str, writer: tuple[int, ...]) -> None:
    """As in the backward pass of a scan over a cond; ``writer``: whose rows the second reads."""
    found = programs(two_loops(ELEMENT, row))
    for rank, graph in found.items():
        taken = Counter(("tanh", "sine", "cosine")[(rank + 2 * i) % 3] for i in writer)
        for op in ("tanh", "sine", "cosine"):
            assert executions(graph, op) == taken[op], (rank, op)


@pytest.mark.parametrize(
    ("element", "row"),
    [
        # Row 1 is overwritten, rows 2 and 3 are never written.
        (ELEMENT, f"%row = stablehlo.minimum %i, %one : {INT}"),
        # Where a rank writes is another row on every rank.
        (ELEMENT, f"%row = stablehlo.remainder %rank, %three : {INT}"),
        # An element of the buffer itself.
        (
            f"""%old = stablehlo.dynamic_slice %a, %i, sizes = [1]
              : (tensor<4xi32>, {INT}) -> tensor<1xi32>
            %e = stablehlo.reshape %old : (tensor<1xi32>) -> {INT}""",
            IN_ORDER,
        ),
    ],
)
def test_a_buffer_that_is_not_a_row_per_iteration_stays_data(element: str, row: str) -> None:
    warnings = walked(two_loops(element, row)).warnings
    assert any("a conditional that depends on data" in text for text in warnings)
