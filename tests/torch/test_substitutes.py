"""What stands in for an op without a lowering, and what --strict says of it."""

from __future__ import annotations

import pytest
import torch

from flint.errors import FlintError
from flint.frontends.torch.emission import emitted
from flint.stablehlo.bindings import parse
from flint.stablehlo.reader import read_mlir
from flint.stablehlo.walker import walk
from flint.work import Unit
from tests.torch.lowering_cases.inputs import normal
from tests.torch.real_recording import by_hand, record

aten = torch.ops.aten


def test_an_op_without_a_lowering_is_a_kernel_with_torchs_own_flops_and_a_warning():
    x, w = normal(3, 4), normal(5, 4)
    tensors = [x, w.t(), normal(), normal()]
    recording = by_hand("aten._scaled_mm.default", tensors, [normal(3, 5)], {0}, {1}, {2}, {3})
    made = emitted(recording)
    assert list(made.warnings.values()) == [1]
    text = str(parse(made.data))
    assert "custom_call @flint.aten._scaled_mm.default(%arg0, %arg1, %arg2, %arg3)" in text
    assert f"\\22flops\\22: {2 * 3 * 4 * 5}," in text
    graph = walk(read_mlir(made.data, "step")).graph
    [work] = [node.work for node in graph if node.op == "aten._scaled_mm.default"]
    assert [(item.unit, item.flops) for item in work.items] == [(Unit.MATMUL, 2 * 3 * 4 * 5)]


def test_an_op_that_nobody_knows_has_a_flop_per_element_and_a_warning():
    recording = by_hand("aten._cdist_forward.default", [normal(3, 4)], [normal(3, 3)], {0}, {0})
    made = emitted(recording)
    assert any("one FLOP per element assumed" in text for text in made.warnings)
    graph = walk(read_mlir(made.data, "step")).graph
    [work] = [node.work for node in graph if node.op == "aten._cdist_forward.default"]
    assert [(item.unit, item.flops) for item in work.items] == [(Unit.VECTOR, 9)]


def test_strict_refuses_an_op_without_a_lowering():
    recording = by_hand("aten._cdist_forward.default", [normal(3, 4)], [normal(3, 3)], {0}, {0})
    with pytest.raises(FlintError, match=r"op 0 \(aten._cdist_forward.default\).*no lowering"):
        emitted(recording, strict=True)


def test_an_operand_that_is_only_written_is_not_read():
    recorded = record(lambda x, y: aten.copy_.default(x, y), normal(3), normal(3))
    text = str(parse(emitted(recorded.recording).data))
    assert 'composite "aten.copy_.default" %arg1 {' in text


@pytest.mark.parametrize(
    "function",
    [
        aten.nonzero.default, lambda x: aten.masked_select.default(x, x > 0),
        lambda x: aten.masked_scatter.default(x, x > 0, x),
        lambda x: aten._unique2.default(x)[0], lambda x: aten.unique_consecutive.default(x)[0],
    ],
    ids=["nonzero", "masked_select", "masked_scatter", "_unique2", "unique_consecutive"],
)  # fmt: skip
def test_what_depends_on_data_is_refused_by_name_and_reason(function):
    recording = record(function, normal(5)).recording
    with pytest.raises(FlintError, match=r"no lowering: aten.*depends on data"):
        emitted(recording, strict=True)
