"""If an annotation of gloo ends on another thread, the observer gives the parents of ops.

The file has ops in the order in which they ended, ``rf_id`` that in which they began: an op is in
the innermost one of its thread that began before it and ended after it.
"""

from __future__ import annotations

import json

import numpy as np

from flint.converters.profilers.pytorch_et.observe import observe as observe_pytorch_et
from flint.observed.classes import OpClass

PARENT, GATHER, FUNCTIONAL, INNER, COPY = 10, 20, 30, 40, 50


def op(number, name, began, around, thread=1):
    attributes = [("rf_id", began), ("tid", thread)]
    side = {"values": [], "shapes": [], "types": []}
    exchanged = {
        "values": [[number, number, 0, 1024, 4, "cpu"]] * 2, "shapes": [[1024]] * 2,
        "types": ["Tensor(float)"] * 2,
    }  # fmt: skip
    return {
        "id": number, "name": name, "ctrl_deps": around, "outputs": side,
        "inputs": exchanged if "all" in name else side,
        "attrs": [{"name": key, "type": "uint64", "value": value} for key, value in attributes],
    }  # fmt: skip


def observed(tmp_path, nodes):
    path = tmp_path / "et_rank0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    return observe_pytorch_et(path)


def test_an_op_is_in_what_began_before_it_and_ended_after_it(tmp_path):
    """The exchange and the copy are of the functional one, which follows the gather.

    As they ended: the gather, the exchange, the copy, the functional exchange, what is around all.
    """
    nodes = [
        op(GATHER, "gloo:all_gather", 2, PARENT),
        op(INNER, "c10d::alltoall_base_", 4, GATHER),
        op(COPY, "aten::copy_", 5, GATHER),
        op(FUNCTIONAL, "_c10d_functional::all_to_all_single", 3, GATHER),
        op(PARENT, "aten::around", 1, 1),
    ]
    found = observed(tmp_path, nodes)
    names = ["around", "gather", "functional", "exchange", "copy"]  # as they began
    parents = dict(zip(names, found.parent.tolist(), strict=True))
    assert {name: names[row] for name, row in parents.items() if row >= 0} == {
        "gather": "around",
        "functional": "around",
        "exchange": "functional",
        "copy": "functional",
    }
    assert sum(found.notes.values()) >= 3
    kinds = [found.facts[fact].kind for fact in found.op.tolist()]
    assert kinds.count(OpClass.ALL_TO_ALL) == 2  # one of them in the other: one exchange


def test_ops_of_another_thread_are_in_none_of_this_one(tmp_path):
    nodes = [
        op(GATHER, "gloo:all_gather", 2, PARENT),
        op(COPY, "aten::copy_", 4, GATHER, thread=2),
        op(FUNCTIONAL, "_c10d_functional::all_to_all_single", 3, PARENT),
        op(PARENT, "aten::around", 1, 1),
    ]
    assert np.array_equal(observed(tmp_path, nodes).parent, [-1, 0, 0, 0])


def test_updates_between_which_other_gradients_are_computed_are_counted_in_one_step(tmp_path):
    """It steps after the gradients of a product, of a convolution and of a sum."""
    nodes, began = [op(PARENT, "aten::around", 1, 1)], 2
    for name in ("Mm", "Convolution", "Sum"):
        for part in (f"autograd::engine::evaluate_function: {name}Backward0", "Optimizer.step#A"):
            nodes.append(op(100 + began, part, began, PARENT))
            began += 1
    found = observed(tmp_path, nodes)
    assert found.steps == ("whole trace",)
    assert [text for text in found.notes if "an optimizer steps 3 times in what is" in text]


def test_a_gradient_that_seems_to_enclose_later_steps_ends_before_the_first_update(tmp_path):
    """Three equal steps, of which the first one's gradient is said to enclose all that follows."""
    backward, update = "autograd::engine::evaluate_function: MmBackward0", "Optimizer.step#A"
    nodes, began, around = (
        [op(PARENT, "[pytorch|profiler|execution_trace|thread]", 1, 1)],
        2,
        PARENT,
    )
    for _ in range(3):
        for part in ("aten::relu", backward, update):
            nodes.append(op(100 + began, part, began, around))
            if part == backward and around == PARENT:
                around = 100 + began
            began += 1
    found = observed(tmp_path, nodes)
    assert found.steps == ("step#0", "step#1", "step#2")
    assert [int((found.step == number).sum()) for number in range(3)] == [3, 3, 3]


def test_only_a_gradient_with_hooks_encloses_an_update(tmp_path):
    """Each of three gradients is said to enclose its update and what the next step begins with."""
    update = "Optimizer.step#A"
    for name, steps in (("Relu", 3), ("torch::autograd::AccumulateGrad", 1)):
        ends = "Backward0" if name == "Relu" else ""
        backward = f"autograd::engine::evaluate_function: {name}{ends}"
        nodes = [op(PARENT, "[pytorch|profiler|execution_trace|thread]", 1, 1)]
        began, around = 2, PARENT
        for _ in range(3):
            for part in ("aten::relu", backward, update):
                nodes.append(op(100 + began, part, began, PARENT if part == backward else around))
                around = 100 + began if part == backward else around
                began += 1
        assert len(observed(tmp_path, nodes).steps) == steps
