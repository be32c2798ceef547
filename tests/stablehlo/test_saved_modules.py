"""Real modules against independent counts.

The counts of ``STATED`` were taken by other means than Flint.  For all modules a second count is
made here by a plain walk over the MLIR operations: loops by the constant in their condition, calls
opened, bytes from the types as MLIR prints them.
"""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flint.errors import FlintError
from flint.graph.graph import NodeKind
from flint.graph.verification import verify
from flint.graph.work import Unit
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.bindings import ir, parse
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import Walked, walk
from tests.stablehlo.helpers import exchanged, named, waits_for

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests/data/stablehlo", ROOT / "models/saved")
MODULES = sorted(path for folder in FOLDERS for path in folder.glob("*.mlir*"))
#: What data decides in some of them.
OPTIONS: dict[str, dict[str, Any]] = {
    "while_dynamic_8x8": {"trip_counts": {"while_0": 5}},
    "cond_8x8": {"branches": {"case_0": 1}},
}
#: Module -> kind -> (number, operand bytes, result bytes) on one rank, loops unrolled.
STATED = {
    "llama3_8b_scan_fsdp64_tp8": {
        "all_gather": (451, 56872960, 3623354368),
        "all_reduce": (553, 19207299076, 19207299076),
        "all_to_all": (2, 134217728, 134217728),
        "collective_permute": (1, 32768, 32768),
    },
    "pipeline_ppermute_8x8": {"collective_permute": (16, 262144, 262144)},
    "ring_attention_8x8": {"collective_permute": (32, 4194304, 4194304)},
}
COLLECTIVE = re.compile(
    r"stablehlo\.(all_gather|all_reduce|all_to_all|collective_permute|reduce_scatter)$"
)
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "i32": 4, "ui32": 4, "i1": 1, "i64": 8}


def walked(path: Path, **options: Any) -> Walked:
    chosen = OPTIONS.get(path.name.partition(".")[0], {})
    result = walk(read_mlir(path.read_bytes(), path.name), None, WalkOptions(**chosen, **options))
    verify(result.graph)
    return result


def size_of(kind: Any) -> int:
    *dims, dtype = str(kind).removeprefix("tensor<").removesuffix(">").split("x")
    return prod(map(int, dims)) * BYTES[dtype]


def plain_count(path: Path) -> dict[str, tuple[int, int, int]]:
    module = parse(path.read_bytes())
    functions = {
        ir.StringAttr(op.attributes["sym_name"]).value: op
        for op in module.body.operations
        if op.operation.name == "func.func"
    }
    total: Counter[tuple[str, int]] = Counter()

    def block(operations: Any, times: int) -> None:
        for view in operations:
            op = view.operation
            if op.name == "func.call":
                callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
                block(functions[callee].regions[0].blocks[0].operations, times)
            elif op.name == "stablehlo.while":
                condition, body = (region.blocks[0] for region in op.regions)
                trips = loop_trips(op, condition)
                block(condition.operations, times * (trips + 1))
                block(body.operations, times * trips)
            elif op.name == "stablehlo.case":
                block(op.regions[1].blocks[0].operations, times)
            elif found := COLLECTIVE.match(op.name):
                operands = sum(size_of(value.type) for value in op.operands)
                results = sum(size_of(value.type) for value in op.results)
                for number, amount in enumerate((1, operands, results)):
                    total[found[1], number] += times * amount

    def loop_trips(op: Any, condition: Any) -> int:
        # Loops of these modules count from 0 by 1 to a constant; the one that data ends has none.
        bounds = re.findall(r"dense<(\d+)> : tensor<i32>", str(op.regions[0].blocks[0]))
        outer = re.findall(r"constant dense<(\d+)> : tensor<i32>", outside(condition))
        return int((bounds or outer or [5])[0])

    def outside(condition: Any) -> str:
        """Definitions outside of the condition of what its compare takes."""
        texts = []
        for view in condition.operations:
            if view.operation.name == "stablehlo.compare":
                for value in view.operation.operands:
                    if isinstance(value.owner, ir.OpView | ir.Operation):
                        texts.append(str(value.owner))
        return "\n".join(texts)

    block(functions["main"].regions[0].blocks[0].operations, 1)
    kinds = {kind for kind, _ in total}
    return {kind: (total[kind, 0], total[kind, 1], total[kind, 2]) for kind in kinds}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_communications_are_those_of_a_plain_count(path: Path) -> None:
    found = exchanged(walked(path, reduce_scatter=False).graph)
    found.pop("ragged_all_to_all", None)
    assert found == plain_count(path)


@pytest.mark.parametrize("name", STATED)
def test_communications_are_those_that_were_counted_elsewhere(name: str) -> None:
    (path,) = [path for path in MODULES if path.name.startswith(name)]
    assert exchanged(walked(path, reduce_scatter=False).graph) == STATED[name]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_recognising_reduce_scatters_keeps_number_and_operand_bytes(path: Path) -> None:
    written = exchanged(walked(path, reduce_scatter=False).graph)
    found = exchanged(walked(path).graph)
    zero = (0, 0, 0)
    before, after = written.pop("all_reduce", zero), found.pop("all_reduce", zero)
    scattered = found.pop("reduce_scatter", zero)
    assert found == written
    assert tuple(a + s for a, s in zip(after, scattered, strict=True))[:2] == before[:2]
    assert scattered[2] <= scattered[1]


def test_the_matrix_products_of_the_8b_step_are_those_counted_elsewhere() -> None:
    (path,) = [path for path in MODULES if path.name.startswith("llama3_8b")]
    flops = sum(
        times * int(part.work_flops[part.work_unit == Unit.MATMUL].sum())
        for part, times in walked(path).graph.walk()
    )
    assert flops == 74146167914496


def test_a_loop_that_data_ends_says_how_to_name_it() -> None:
    path = FOLDERS[0] / "while_dynamic_8x8.mlirbc"
    with pytest.raises(FlintError, match=r"loop while_0 .*--trip-count while_0=N"):
        walk(read_mlir(path.read_bytes(), path.name))


def test_a_conditional_with_other_communications_per_branch_needs_a_branch() -> None:
    path = FOLDERS[0] / "cond_8x8.mlirbc"
    with pytest.raises(FlintError, match=r"case_0 .*--branch case_0=N"):
        walk(read_mlir(path.read_bytes(), path.name))
    one = walk(read_mlir(path.read_bytes()), None, WalkOptions(branches={"": 0}))
    other = walk(read_mlir(path.read_bytes()), None, WalkOptions(branches={"": 1}))
    assert exchanged(one.graph) != exchanged(other.graph)


def test_the_ragged_exchange_is_there_and_marked_as_a_bound() -> None:
    walk_ = walked(FOLDERS[0] / "ragged_all_to_all_8x8.mlirbc")
    (item,) = walk_.graph.tables.communications
    assert item.kind == "ragged_all_to_all" and not item.exact
    # 8192 x 64 of bf16 over 64 devices: 128 rows of 128 bytes.
    assert item.operand_bytes == item.result_bytes == (16384,)
    assert item.groups is not None and item.groups.members(9).tolist() == list(range(8, 16))


def test_the_condition_of_the_dynamic_loop_reduces_once_more_than_its_body_runs() -> None:
    graph = walked(FOLDERS[0] / "while_dynamic_8x8.mlirbc").graph
    # The condition sums along two axes, one after the other; the body runs five times.
    assert exchanged(graph)["all_reduce"][0] == 2 * (5 + 1)
    (loop,) = graph.loops
    inside = {node.op for node in loop.body}
    assert {"compare", "all_reduce", "multiply"} <= inside
    assert waits_for(loop.body, named(loop.body, "multiply"), named(loop.body, "compare"))


def test_text_and_bytecode_of_one_module_give_one_graph() -> None:
    text, bytecode = (
        walked(FOLDERS[0] / f"llama_tiny_scan_fsdp4_tp2.{suffix}").graph
        for suffix in ("mlir", "mlirbc")
    )
    for name in ("kind", "role", "operand", "result_type", "work_flops", "bytes_read", "outputs"):
        assert np.array_equal(getattr(text, name), getattr(bytecode, name)), name
    assert text.tables.communications == bytecode.tables.communications
    assert [n.op for n in text] == [n.op for n in bytecode]


def test_nodes_do_not_grow_with_ranks_or_trip_counts() -> None:
    small, large = (
        walked(next(path for path in MODULES if path.name.startswith(name))).graph
        for name in ("llama3_8b", "llama3_405b")
    )
    # 32 layers on 512 ranks, 126 layers on 2048: the same program text but for the sharding.
    counts = [sum(len(part) for part, _ in graph.walk()) for graph in (small, large)]
    assert counts[1] < 1.2 * counts[0]
    communications = [
        sum(
            times * int((part.kind == NodeKind.COMMUNICATION).sum()) for part, times in graph.walk()
        )
        for graph in (small, large)
    ]
    assert communications[1] > 3 * communications[0]
