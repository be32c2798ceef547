"""What a walk costs: rules per distinct op, nodes per op, nothing per rank or iteration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks import modules
from flint.errors import FlintError
from flint.stablehlo.handlers import simple
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walk import state
from flint.stablehlo.walker import walk
from tests.stablehlo.helpers import all_reduce, exchanged, walked


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    calls = {"measure": 0, "source": 0}

    def wrap(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any) -> Any:
            calls[name] += 1
            return original(*args)

        monkeypatch.setattr(owner, name, call)

    wrap(simple, "measure")
    wrap(state.WalkState, "source")
    return calls


def test_an_unrolled_module_measures_each_kind_of_op_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    measured = []
    for layers in (2, 4, 8):
        calls["measure"] = 0
        text, ops = modules.text(layers)
        walked_ = walk(read_mlir(text.encode()))
        assert walked_.ops == ops
        # One node per op but for the slices that reduce-scatters have swallowed: 7 a layer.
        assert len(walked_.graph) == ops - 7 * layers
        measured.append(calls["measure"])
    assert measured[1] == measured[2] <= 1.1 * measured[0]


def test_a_generated_layer_communicates_as_it_says() -> None:
    text, _ = modules.text(3)
    found = exchanged(walk(read_mlir(text.encode())).graph)
    # A layer gathers seven weights twice, reduces four activations, and scatters seven gradients.
    assert {kind: number for kind, (number, _, _) in found.items()} == {
        "all_gather": 3 * 14,
        "all_reduce": 3 * 4,
        "reduce_scatter": 3 * 7,
    }
    # 1024 tokens x 4096 in bf16 each time.
    assert found["all_reduce"][1] == 3 * 4 * 1024 * 4096 * 2
    weights = sum(rows * columns for rows, columns in modules.WEIGHTS.values())
    assert found["all_gather"][1] == 3 * 2 * weights * 2
    assert found["reduce_scatter"][1:] == (3 * weights * 64 * 2, 3 * weights * 2)


@pytest.mark.parametrize("form", ["bytecode", "hlo"])
def test_all_forms_of_a_generated_module_say_the_same(form: str) -> None:
    text, _ = modules.text(2)
    expected = exchanged(walk(read_mlir(text.encode())).graph)
    data = modules.WRITERS[form](text)
    if form == "hlo":
        from flint.hlo.reader import read_hlo

        # XLA's conversion leaves the number of devices to the one who runs the module.
        module = replace(read_hlo(data), num_partitions=512)
    else:
        module = read_mlir(data)
    assert exchanged(walk(module).graph) == expected


def loop(trips: int, ranks: int) -> str:
    groups = (tuple(range(ranks)),)
    return f"""module attributes {{mhlo.num_partitions = {ranks} : i32}} {{
      func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{
        %z = stablehlo.constant dense<0> : tensor<i32>
        %r:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, tensor<8xf32>
        cond {{
          %n = stablehlo.constant dense<{trips}> : tensor<i32>
          %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }} do {{
          %o = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %o : tensor<i32>
          {all_reduce("%w", "%v", groups=groups)}
          stablehlo.return %j, %w : tensor<i32>, tensor<8xf32>
        }}
        return %r#1 : tensor<8xf32>
      }}
    }}"""


def test_nodes_do_not_grow_with_iterations_or_ranks() -> None:
    sizes = set()
    for trips, ranks in ((1, 2), (1000, 2), (1000, 4096), (1_000_000, 2)):
        graph = walked(loop(trips, ranks)).graph
        assert exchanged(graph)["all_reduce"][0] == trips
        sizes.add(sum(len(part) for part, _ in graph.walk()))
    assert len(sizes) == 1


def doubling(levels: int) -> str:
    """A module in which each function calls the next one twice."""
    kind = "(tensor<i32>) -> tensor<i32>"
    functions = "".join(
        f"""
      func.func private @f{n}(%x: tensor<i32>) -> tensor<i32> {{
        %a = call @f{n + 1}(%x) : {kind}
        %b = call @f{n + 1}(%a) : {kind}
        return %b : tensor<i32>
      }}"""
        for n in range(levels)
    )
    return f"""module {{
      func.func public @main(%x: tensor<i32>) -> tensor<i32> {{
        %a = call @f0(%x) : {kind}
        return %a : tensor<i32>
      }}{functions}
      func.func private @f{levels}(%x: tensor<i32>) -> tensor<i32> {{
        %a = stablehlo.negate %x : tensor<i32>
        return %a : tensor<i32>
      }}
    }}"""


def test_calls_that_double_are_counted_before_they_are_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2**60 ops in 1 KB of text; ten levels are 1 call, 2 + 4 + ... + 1024 calls, 1024 ops."""
    monkeypatch.setattr(state.WalkState, "block", None)
    with pytest.raises(FlintError, match=f"open into more than {2**23} ops"):
        walk(read_mlir(doubling(60).encode()))
    monkeypatch.undo()
    monkeypatch.setattr(state, "MAX_OPS", 1 + 2046 + 1024)
    assert walk(read_mlir(doubling(10).encode())).ops == 3071
    monkeypatch.setattr(state, "MAX_OPS", 3070)
    with pytest.raises(FlintError, match="open into more than 3070 ops"):
        walk(read_mlir(doubling(10).encode()))


def test_opening_too_many_ops_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_OPS", 100)
    text, _ = modules.text(1)
    with pytest.raises(FlintError, match="open into more than 100 ops"):
        walk(read_mlir(text.encode()))
