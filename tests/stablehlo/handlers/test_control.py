"""Loops that data ends, conditionals, calls and plumbing: what runs how often, and what waits."""

from __future__ import annotations

import pytest

from flint.errors import FlintError, UsageError
from flint.passes.aliases import resolve_aliases
from tests.stablehlo.helpers import all_reduce, exchanged, executions, named, waits_for, walked

F = "tensor<8xf32>"
GREATER = "stablehlo.compare GT, {0}, {1} : (tensor<f32>, tensor<f32>) -> tensor<i1>"


def sum_of(result: str, operand: str) -> str:
    return f"""%z{result[1:]} = stablehlo.constant dense<0.0> : tensor<f32>
    {result} = stablehlo.reduce({operand} init: %z{result[1:]}) applies stablehlo.add
      across dimensions = [0] : ({F}, tensor<f32>) -> tensor<f32>"""


DATA_LOOP = f"""module attributes {{mhlo.num_partitions = 4 : i32}} {{
  func.func @main(%x: {F}, %other: {F}) -> ({F}, {F}) {{
    %r = stablehlo.while(%v = %x) : {F}
    cond {{
      {all_reduce("%all", "%v")}
      {sum_of("%total", "%all")}
      %limit = stablehlo.constant dense<1.0> : tensor<f32>
      %p = {GREATER.format("%total", "%limit")}
      stablehlo.return %p : tensor<i1>
    }} do {{
      %w = stablehlo.sine %v : {F}
      %n = stablehlo.multiply %w, %other : {F}
      stablehlo.return %n : {F}
    }}
    %after = stablehlo.cosine %r : {F}
    %aside = stablehlo.exponential %other : {F}
    return %after, %aside : {F}, {F}
  }}
}}"""


def test_the_condition_of_a_data_dependent_loop_runs_once_more_than_its_body() -> None:
    graph = walked(DATA_LOOP, trip_counts={"while_0": 7}).graph
    # Seven times true, then false: 8 reductions of 8 x 4 bytes; the body's sine runs 7 times.
    assert exchanged(graph) == {"all_reduce": (8, 8 * 32, 8 * 32)}
    assert executions(graph, "sine") == 7


def test_the_condition_runs_once_when_the_body_never_does() -> None:
    graph = walked(DATA_LOOP, trip_counts={"": 0}).graph
    assert exchanged(graph)["all_reduce"][0] == 1


def test_the_body_waits_for_the_condition_and_so_does_what_follows() -> None:
    graph = walked(DATA_LOOP, trip_counts={"": 7}).graph
    for resolved in (graph, resolve_aliases(graph)):
        body = resolved.loops[0].body
        assert waits_for(body, named(body, "sine"), named(body, "compare"))
        after, condition = named(resolved, "cosine"), named(resolved, "compare")
        assert waits_for(resolved, after, condition)
        assert not waits_for(resolved, named(resolved, "exponential"), condition)


def test_a_data_dependent_loop_without_a_count_is_an_error_with_its_name() -> None:
    with pytest.raises(FlintError, match=r"loop while_0 .*--trip-count while_0=N"):
        walked(DATA_LOOP)


def conditional(
    predicate: str, branches: list[str], captured: str = "%x", form: str = "case"
) -> str:
    shown = ", ".join(
        "{" + body.replace("RESULT", f"%b{i}") + f'\n "stablehlo.return"(%b{i}) : ({F}) -> ()' + "}"
        for i, body in enumerate(branches)
    )
    kind = "tensor<i32>" if form == "case" else "tensor<i1>"
    return f'"stablehlo.{form}"({predicate}) ({shown}) : ({kind}) -> {F}'


def program(body: str, partitions: int = 4, arguments: str = "") -> str:
    return f"""module attributes {{mhlo.num_partitions = {partitions} : i32}} {{
      func.func @main(%x: {F}{arguments}) -> {F} {{
        {body}
        return %r : {F}
      }}
    }}"""


CHEAP = f"RESULT = stablehlo.negate %x : {F}"
DEAR = f"%e = stablehlo.sine %x : {F}\n RESULT = stablehlo.cosine %e : {F}"
TALKS = all_reduce("RESULT", "%x")


@pytest.mark.parametrize(
    ("index", "branch"), [(0, "negate"), (1, "cosine"), (2, "tanh"), (7, "tanh"), (-1, "tanh")]
)
def test_a_constant_index_opens_its_branch_and_the_last_one_out_of_range(
    index: int, branch: str
) -> None:
    last = f"RESULT = stablehlo.tanh %x : {F}"
    text = program(f"%i = stablehlo.constant dense<{index}> : tensor<i32>\n %r = "
                   + conditional("%i", [CHEAP, DEAR, last]))  # fmt: skip
    walk = walked(text)
    assert walk.graph[-1].op == branch and not walk.warnings
    assert not walk.graph.conditionals


@pytest.mark.parametrize(("value", "branch"), [("true", "negate"), ("false", "cosine")])
def test_the_first_region_of_an_if_is_the_true_one(value: str, branch: str) -> None:
    text = program(f"%p = stablehlo.constant dense<{value}> : tensor<i1>\n %r = "
                   + conditional("%p", [CHEAP, DEAR], form="if"))  # fmt: skip
    assert walked(text).graph[-1].op == branch


def test_data_chooses_the_most_expensive_branch_and_reports_it() -> None:
    text = program("%r = " + conditional("%i", [CHEAP, DEAR]), arguments=", %i: tensor<i32>")
    walk = walked(text)
    assert [node.op for node in walk.graph] == ["sine", "cosine"]
    ((warning, count),) = walk.warnings.items()
    assert "(case at test.mlir:3): branch 1, its most expensive, is taken" in warning and count == 1


def test_the_only_branch_needs_no_choice() -> None:
    text = program("%r = " + conditional("%i", [TALKS]), arguments=", %i: tensor<i32>")
    walk = walked(text)
    assert exchanged(walk.graph) == {"all_reduce": (1, 32, 32)} and not walk.warnings


@pytest.mark.parametrize("name", ["", "case_0"])
def test_an_option_chooses_a_branch(name: str) -> None:
    text = program("%r = " + conditional("%i", [CHEAP, DEAR]), arguments=", %i: tensor<i32>")
    walk = walked(text, branches={name: 0})
    assert [node.op for node in walk.graph] == ["negate"]
    assert not walk.warnings


def test_a_branch_that_is_not_there_is_a_usage_error() -> None:
    text = program("%r = " + conditional("%i", [CHEAP, DEAR]), arguments=", %i: tensor<i32>")
    with pytest.raises(UsageError, match=r"--branch 2: case_0 .* 0 to 1"):
        walked(text, branches={"case_0": 2})


def test_branches_that_communicate_differently_need_a_choice() -> None:
    text = program("%r = " + conditional("%i", [CHEAP, TALKS]), arguments=", %i: tensor<i32>")
    said = (
        r"case_0 .*communicate differently.*--branch case_0=N\), "
        r"where N is 0: no communication; 1: 1 all_reduce$"
    )
    with pytest.raises(FlintError, match=said):
        walked(text)
    assert exchanged(walked(text, branches={"": 1}).graph) == {"all_reduce": (1, 32, 32)}
    assert exchanged(walked(text, branches={"": 0}).graph) == {}


def test_branches_that_communicate_alike_on_other_channels_do_not() -> None:
    dear = TALKS.replace("RESULT", "%c").replace("handle = 1", "handle = 2")
    dear += f"\n RESULT = stablehlo.sine %c : {F}"
    text = program("%r = " + conditional("%i", [TALKS, dear]), arguments=", %i: tensor<i32>")
    walk = walked(text)
    assert exchanged(walk.graph) == {"all_reduce": (1, 32, 32)}
    assert executions(walk.graph, "sine") == 1
    assert len(walk.graph.tables.communications) == 1


def gated(branches: list[str]) -> str:
    return program(
        f"""%early = stablehlo.exponential %x : {F}
        {sum_of("%total", "%x")}
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %p = {GREATER.format("%total", "%zero")}
        %c = {conditional("%p", [item.replace("%x", "%early") for item in branches], form="if")}
        %r = stablehlo.tanh %c : {F}"""
    )


def test_a_branch_waits_for_its_predicate_though_its_operands_were_there_before() -> None:
    for graph in (
        walked(gated([CHEAP, DEAR])).graph,
        resolve_aliases(walked(gated([CHEAP, DEAR])).graph),
    ):
        for later in ("sine", "cosine", "tanh"):
            assert waits_for(graph, named(graph, later), named(graph, "compare"))
        assert not waits_for(graph, named(graph, "exponential"), named(graph, "compare"))


def test_a_value_that_a_branch_passes_through_waits_for_the_predicate_as_well() -> None:
    text = gated([CHEAP, DEAR]).replace("(%b0) :", "(%early) :")
    graph = walked(text, branches={"": 0}).graph
    for resolved in (graph, resolve_aliases(graph)):
        assert waits_for(resolved, named(resolved, "tanh"), named(resolved, "compare"))


def test_nested_data_conditionals_wait_for_both_predicates() -> None:
    inner = conditional("%q", [CHEAP, DEAR], form="if").replace("%b", "%n")
    outer = [f"RESULT = {inner}", CHEAP]
    text = program(
        f"""{sum_of("%total", "%x")}
        %wave = stablehlo.logistic %total : tensor<f32>
        %zero = stablehlo.constant dense<0.0> : tensor<f32>
        %p = {GREATER.format("%total", "%zero")}
        %q = {GREATER.format("%wave", "%zero").replace("GT", "LT")}
        %c = {conditional("%p", outer, form="if")}
        %r = stablehlo.tanh %c : {F}"""
    )
    graph = walked(text, branches={"case_0": 0, "case_1": 1}).graph
    tests = [node for node in graph if node.op == "compare"]
    assert len(tests) == 2
    for later in ("sine", "tanh"):
        assert all(waits_for(graph, named(graph, later), test) for test in tests)


def test_deeply_nested_data_conditionals_are_walked_in_linear_time() -> None:
    def nest(depth: int) -> str:
        if depth == 0:
            return CHEAP
        inner = conditional("%i", [nest(depth - 1), CHEAP]).replace("%b", f"%n{depth}_")
        return f"RESULT = {inner}"

    text = program("%r = " + conditional("%i", [nest(40), CHEAP]), arguments=", %i: tensor<i32>")
    walk = walked(text)
    assert [node.op for node in walk.graph] == ["negate"]
    assert sum(walk.warnings.values()) == 41
