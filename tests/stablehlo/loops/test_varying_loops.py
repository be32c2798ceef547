"""Loops that run another number of times on each rank, or in each iteration of a loop around.

How often a body runs in all is counted by the program itself, under the reference interpreter.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.graph.graph import WorkloadGraph
from flint.graph.verification import verify
from flint.passes.branches import split_by_rank
from flint.passes.order import issue_order
from tests.stablehlo.helpers import executions, interpreted, walked
from tests.support.shared import examples

I = "tensor<i32>"  # noqa: E741  # as short as the type is frequent


def constants(numbers: dict[str, int]) -> str:
    return "\n".join(
        f"%{name} = stablehlo.constant dense<{number}> : {I}" for name, number in numbers.items()
    )


def loop(counter: str, start: str, end: str, step: str, body: str, carried: str) -> str:
    """``for counter in range(start, end, step): %x, %n = body``; gives ``carried`` and a count."""
    k = counter.strip("%")
    return f"""{carried}:3 = stablehlo.while(%{k} = {start}, %x{k} = %x{k}0, %n{k} = %n{k}0) :
        {I}, tensor<8xf32>, {I}
      cond {{
        %p{k} = stablehlo.compare LT, %{k}, {end} : ({I}, {I}) -> tensor<i1>
        stablehlo.return %p{k} : tensor<i1>
      }} do {{
        {body}
        %up{k} = stablehlo.add %{k}, {step} : {I}
        stablehlo.return %up{k}, %y{k}, %m{k} : {I}, tensor<8xf32>, {I}
      }}"""


INNER = f"""%yj = stablehlo.tanh %xj : tensor<8xf32>
        %mj = stablehlo.add %nj, %one : {I}"""


def nested(outer: tuple[int, int, int], low: tuple[int, int], high: tuple[int, int]) -> str:
    """``for i in range(*outer): for j in range(low, high, 2): x = tanh(x)``, bounds linear in i."""
    inner = loop("%j", "%low", "%high", "%two", INNER, "%r")
    # The barriers name the inner loop's initial values without changing them.
    body = f"""%xj0 = stablehlo.optimization_barrier %xi : tensor<8xf32>
        %nj0 = stablehlo.optimization_barrier %ni : {I}
        %l0 = stablehlo.multiply %i, %la : {I}
        %low = stablehlo.add %l0, %lb : {I}
        %h0 = stablehlo.multiply %i, %ha : {I}
        %high = stablehlo.add %h0, %hb : {I}
        {inner}
        %yi = stablehlo.optimization_barrier %r#1 : tensor<8xf32>
        %mi = stablehlo.optimization_barrier %r#2 : {I}"""
    numbers = {"from": outer[0], "to": outer[1], "by": outer[2], "la": low[0], "lb": low[1],
               "ha": high[0], "hb": high[1], "one": 1, "two": 2, "ni0": 0}  # fmt: skip
    return f"""module {{
  func.func @main() -> {I} {{
    {constants(numbers)}
    %xi0 = stablehlo.constant dense<1.0> : tensor<8xf32>
    {loop("%i", "%from", "%to", "%by", body, "%all")}
    return %all#2 : {I}
  }}
}}"""


def resolved(text: str) -> dict[int, WorkloadGraph]:
    """Rank -> its program's graph."""
    walk = walked(text)
    found: dict[int, WorkloadGraph] = {}
    for split in split_by_rank(issue_order(walk.graph), walk.world.partitions, walk.world.replicas):
        verify(split.graph)
        assert not split.graph.conditionals
        found |= dict.fromkeys(split.ranks.array().tolist(), split.graph)
    assert sorted(found) == list(range(walk.world.size))
    return found


def changing(start: int, op: str, by: int, direction: str, bound: int) -> str:
    """``while value DIRECTION bound: value = OP(value, by)``, and how often that runs."""
    return f"""func.func @main() -> {I} {{
      {constants({"start": start, "by": by, "bound": bound, "one": 1, "zero": 0})}
      %r:2 = stablehlo.while(%v = %start, %n = %zero) : {I}, {I}
      cond {{
        %p = stablehlo.compare {direction}, %v, %bound : ({I}, {I}) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %w = stablehlo.{op} %v, %by : {I}
        %m = stablehlo.add %n, %one : {I}
        stablehlo.return %w, %m : {I}, {I}
      }}
      return %r#1 : {I}
    }}"""


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(1, 9), st.integers(2, 5), st.integers(-2, 10**6), st.booleans())
def test_counters_that_double_or_halve(low: int, by: int, high: int, grows: bool) -> None:
    text = (
        changing(low, "multiply", by, "LT", high)
        if grows
        else changing(high, "divide", by, "GT", low)
    )
    [ran] = interpreted(text)
    [loop] = walked(text).graph.loops
    assert (loop.trip_count, loop.known_by) == (int(ran), "proved")


def test_a_counter_that_stays_where_it_is_has_no_end_that_can_be_told() -> None:
    with pytest.raises(FlintError, match="give it with --trip-count N"):
        walked(changing(0, "multiply", 2, "LT", 5))


numbers = st.integers(-3, 6)


@settings(deadline=None, max_examples=examples(40))
@given(
    st.tuples(numbers, st.integers(-3, 12), st.integers(1, 3)),
    st.tuples(numbers, numbers),
    st.tuples(numbers, numbers),
)
def test_bounds_that_an_outer_counter_gives(
    outer: tuple[int, int, int], low: tuple[int, int], high: tuple[int, int]
) -> None:
    text = nested(outer, low, high)
    [result] = interpreted(text)
    assert executions(resolved(text)[0], "tanh") == int(result)


def by_rank(bound: str, partitions: int, after: str = "") -> str:
    """``for j in range(bound): x = tanh(x)`` where ``bound`` makes %end of %rank."""
    return f"""module attributes {{mhlo.num_partitions = {partitions} : i32}} {{
  func.func @main(%xj0: tensor<8xf32>) -> tensor<8xf32> {{
    {constants({"zero": 0, "one": 1, "nj0": 0, "four": 4, "many": 65536})}
    %id = stablehlo.partition_id : tensor<ui32>
    %rank = stablehlo.convert %id : (tensor<ui32>) -> {I}
    {bound}
    {loop("%j", "%zero", "%end", "%one", INNER, "%r")}
    {after or "%z = stablehlo.sine %r#1 : tensor<8xf32>"}
    return %z : tensor<8xf32>
  }}
}}"""


def test_each_rank_runs_its_own_number_of_iterations() -> None:
    # rank % 4 iterations; ranks 0 and 4 skip the loop and have no node of it.
    text = by_rank(f"%end = stablehlo.remainder %rank, %four : {I}", 6)
    found = resolved(text)
    assert [executions(found[rank], "tanh") for rank in range(6)] == [0, 1, 2, 3, 0, 1]
    assert [executions(found[rank], "sine") for rank in range(6)] == [1] * 6
    assert len({id(graph) for graph in found.values()}) == 4
    assert not found[0].loops
    assert [graph.loops[0].known_by for graph in found.values() if graph.loops] == ["proved"] * 4


def test_a_counter_is_known_behind_a_loop_of_its_own_length() -> None:
    # Behind the loop j = rank: ranks above 1 take the second branch.
    after = f"""%above = stablehlo.compare GT, %r#0, %one : ({I}, {I}) -> tensor<i1>
    %z = "stablehlo.if"(%above) ({{
      %c = stablehlo.cosine %r#1 : tensor<8xf32>
      stablehlo.return %c : tensor<8xf32>
    }}, {{
      stablehlo.return %r#1 : tensor<8xf32>
    }}) : (tensor<i1>) -> tensor<8xf32>"""
    found = resolved(by_rank(f"%end = stablehlo.add %rank, %zero : {I}", 4, after))
    assert [executions(found[rank], "tanh") for rank in range(4)] == [0, 1, 2, 3]
    assert [executions(found[rank], "cosine") for rank in range(4)] == [0, 0, 1, 1]


def test_a_million_ranks_with_sixteen_lengths_are_sixteen_programs() -> None:
    text = by_rank(f"%end = stablehlo.divide %rank, %many : {I}", 2**20)
    walk = walked(text)
    splits = split_by_rank(walk.graph, walk.world.partitions)
    assert sorted(executions(split.graph, "tanh") for split in splits) == list(range(16))
    assert {split.ranks.size for split in splits} == {65536}


def test_a_bound_that_data_gives_still_has_to_be_given() -> None:
    text = by_rank("", 4).replace("%xj0: tensor<8xf32>)", f"%xj0: tensor<8xf32>, %end: {I})")
    with pytest.raises(FlintError, match="give it with --trip-count N"):
        walked(text)
