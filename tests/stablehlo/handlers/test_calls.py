"""Calls, tuples, barriers, async pairs; cycles and calls that double."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.passes.aliases import resolve_aliases
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.stablehlo.helpers import all_reduce, executions, named, waits_for, walked
from tests.stablehlo.texts import F, main, ops


def test_a_function_called_twice_is_opened_twice_with_its_own_operands() -> None:
    helper = f"""func.func private @g(%v: {F}) -> {F} {{
      %w = stablehlo.sine %v : {F}
      return %w : {F}
    }}
    func.func private @f(%v: {F}) -> {F} {{
      %w = func.call @g(%v) : ({F}) -> {F}
      return %w : {F}
    }}"""
    text = main(
        f"""%a = func.call @f(%x) : ({F}) -> {F}
        %b = func.call @f(%y) : ({F}) -> {F}
        %c = stablehlo.subtract %a, %b : {F}
        return %c : {F}""",
        extra=helper,
    )
    graph = walked(text).graph
    assert ops(graph) == ["sine", "sine", "subtract"]
    assert [node.operands for node in graph][:2] == [(0,), (1,)]


def test_a_function_that_calls_itself_is_an_error_that_names_it() -> None:
    helper = f"""func.func private @f(%v: {F}) -> {F} {{
      %w = func.call @f(%v) : ({F}) -> {F}
      return %w : {F}
    }}"""
    text = main(f"%a = func.call @f(%x) : ({F}) -> {F}\n return %a : {F}", extra=helper)
    with pytest.raises(FlintError, match="@f call itself"):
        walked(text)


def test_functions_that_are_not_called_are_not_read() -> None:
    helper = f"""func.func private @unused(%v: {F}) -> {F} {{
      %w = "who.knows"(%v) : ({F}) -> {F}
      return %w : {F}
    }}"""
    walk_ = walked(main(f"return %x : {F}", extra=helper), strict=True)
    assert len(walk_.graph) == 0 and not walk_.warnings


def test_tuples_pass_their_elements_through_calls() -> None:
    kind = f"tuple<{F}, {F}>"
    helper = f"""func.func private @second(%t: {kind}) -> {F} {{
      %e = stablehlo.get_tuple_element %t[1] : ({kind}) -> {F}
      return %e : {F}
    }}"""
    text = main(
        f"""%a = stablehlo.sine %x : {F}
        %b = stablehlo.cosine %y : {F}
        %t = stablehlo.tuple %a, %b : {kind}
        %c = func.call @second(%t) : ({kind}) -> {F}
        %d = stablehlo.abs %c : {F}
        return %d : {F}""",
        extra=helper,
    )
    graph = walked(text).graph
    assert [node.op for node in named(graph, "abs").inputs] == ["cosine"]


BARRIER = main(
    f"""%a = stablehlo.sine %x : {F}
    %b = stablehlo.cosine %y : {F}
    %c:2 = stablehlo.optimization_barrier %a, %b : {F}, {F}
    %d = stablehlo.abs %c#0 : {F}
    return %d : {F}"""
)


def test_a_barrier_is_free_and_joins_its_operands() -> None:
    graph = resolve_aliases(walked(BARRIER).graph)
    (barrier,) = [node for node in graph if node.op == "optimization_barrier"]
    assert barrier.category == "free"
    assert waits_for(graph, named(graph, "abs"), named(graph, "sine"))
    assert waits_for(graph, named(graph, "abs"), named(graph, "cosine"))


def test_a_dropped_barrier_passes_each_operand_through() -> None:
    graph = walked(BARRIER, drop_barriers=True).graph
    assert not waits_for(graph, named(graph, "abs"), named(graph, "cosine"))


def test_a_barrier_keeps_what_is_known_of_a_counter() -> None:
    text = main(
        f"""%n = stablehlo.constant dense<5> : tensor<i32>
        %z = stablehlo.constant dense<0> : tensor<i32>
        %k:2 = stablehlo.optimization_barrier %n, %x : tensor<i32>, {F}
        %r:2 = stablehlo.while(%i = %z, %v = %k#1) : tensor<i32>, {F}
        cond {{
          %p = stablehlo.compare LT, %i, %k#0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }} do {{
          %o = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %o : tensor<i32>
          %w = stablehlo.sine %v : {F}
          stablehlo.return %j, %w : tensor<i32>, {F}
        }}
        return %r#1 : {F}"""
    )
    assert executions(walked(text).graph, "sine") == 5


def test_an_async_pair_is_what_it_starts() -> None:
    text = main(
        f"""%f = "stablehlo.async_start"(%x) ({{
          ^bb0(%v: {F}):
            {all_reduce("%w", "%v")}
            "stablehlo.return"(%w) : ({F}) -> ()
        }}) : ({F}) -> !stablehlo.future<{F}>
        %a = stablehlo.sine %y : {F}
        %b = "stablehlo.async_done"(%f) : (!stablehlo.future<{F}>) -> {F}
        %c = stablehlo.add %a, %b : {F}
        return %c : {F}"""
    )
    graph = walked(text).graph
    assert ops(graph) == ["all_reduce", "sine", "add"]
    assert {node.op for node in graph[2].inputs} == {"all_reduce", "sine"}


def test_a_result_of_unknown_size_is_a_view_of_what_a_branch_gives() -> None:
    text = main(
        f"""%u = stablehlo.partition_id : tensor<ui32>
        %i = stablehlo.convert %u : (tensor<ui32>) -> tensor<i32>
        %r = "stablehlo.case"(%i) ({{
          "stablehlo.return"(%x) : ({F}) -> ()
        }}, {{
          %s = stablehlo.sine %x : {F}
          "stablehlo.return"(%s) : ({F}) -> ()
        }}) : (tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<8>>
        return %r : tensor<?xf32, #stablehlo.bounds<8>>""",
        results="tensor<?xf32, #stablehlo.bounds<8>>",
    )
    assert len(walked(text).graph.conditionals) == 1


@pytest.mark.parametrize("op", ["call", "composite", "while"])
def test_cycles_through_any_op_are_errors(op: str) -> None:
    again = {
        "call": f"%r = func.call @f(%x) : ({F}) -> {F}",
        "composite": f'%r = stablehlo.composite "a.b" %x {{decomposition = @f}} : ({F}) -> {F}',
        "while": f"""%r = stablehlo.while(%v = %x) : {F} cond {{
            %y = func.call @f(%v) : ({F}) -> {F}
            %p = stablehlo.constant dense<false> : tensor<i1>
            stablehlo.return %p : tensor<i1>
          }} do {{
            stablehlo.return %v : {F}
          }}""",
    }[op]
    helper = f"func.func private @f(%x: {F}) -> {F} {{ {again}\n return %r : {F} }}"
    text = main(f"%r = func.call @f(%x) : ({F}) -> {F}\n return %r : {F}", extra=helper)
    with pytest.raises(FlintError, match=r"deep|itself"):
        walked(text)


def test_calls_that_double_at_each_level_are_not_followed_for_ever() -> None:
    chain = ["func.func private @f0(%x: tensor<i32>) -> tensor<i32> { return %x : tensor<i32> }"]
    for i in range(1, 40):
        once = f"func.call @f{i - 1}(%{{}}) : (tensor<i32>) -> tensor<i32>"
        chain.append(
            f"func.func private @f{i}(%x: tensor<i32>) -> tensor<i32> {{\n"
            f"%a = {once.format('x')}\n%b = {once.format('a')}\n return %b : tensor<i32> }}"
        )
    text = main(
        f"""%z = stablehlo.constant dense<0> : tensor<i32>
        %r:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, {F}
        cond {{
          %n = func.call @f39(%i) : (tensor<i32>) -> tensor<i32>
          %p = stablehlo.compare LT, %n, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }} do {{
          %j = func.call @f39(%i) : (tensor<i32>) -> tensor<i32>
          stablehlo.return %j, %v : tensor<i32>, {F}
        }}
        return %r#1 : {F}""",
        extra="\n".join(chain),
    )
    with pytest.raises(FlintError, match="open into more than"):
        walked(text)


def test_a_value_that_is_both_input_and_output_is_not_a_node() -> None:
    graph = walked(main(f"return %x, %x : {F}, {F}", results=f"{F}, {F}")).graph
    assert len(graph) == 0
    assert graph.outputs.tolist() == [0, 0]


def test_options_do_not_change_what_is_walked_silently() -> None:
    walk_ = walk(read_mlir(BARRIER.encode()), None, WalkOptions(branches={"case_3": 1}))
    assert list(walk_.warnings) == ["case_3: no loop or conditional of this name needs a value"]
