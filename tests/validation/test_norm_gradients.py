"""Gradients of a norm that PyTorch runs op by op: those that the capture has, and no others."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import flint  # noqa: E402
from flint.observed.classes import OpClass, aten_class  # noqa: E402
from flint.observed.columns import OpFacts  # noqa: E402
from flint.validation.expected.ops import expected_of  # noqa: E402
from flint.validation.matching.equivalence import rules_for  # noqa: E402
from flint.validation.matching.pairing import Matching  # noqa: E402
from flint.validation.rewrites.cpu_substitutes import decomposed  # noqa: E402

#: What needs a gradient -> whether the input does, whether the weight does.
NEEDED = {"both": (True, True), "input": (True, False), "weight": (False, True)}
#: Shapes of the input, and how many of its last dims are normalised.
SHAPES = {"last": ((2, 16, 64), 1), "every": ((16, 64), 2)}


def tensors(needed, shape, dims, device="cpu"):
    sizes = shape, shape[-dims:]
    return [
        torch.ones(size, device=device, requires_grad=needs)
        for size, needs in zip(sizes, NEEDED[needed], strict=True)
    ]


def step(x, weight):
    y = nn.functional.rms_norm(x, weight.shape, weight)
    y.backward(x.detach())


@functools.cache
def captured(needed, shapes):
    """The norm, forward and backward, as it is captured for an accelerator."""
    setup = lambda mesh: tensors(needed, *SHAPES[shapes], mesh.device_type)  # noqa: E731
    workload = flint.capture(step, mesh=(1,), axes=("x",), setup=setup, framework="torch").capture()
    expected = expected_of(workload, 0)
    norms = [i for i, facts in enumerate(expected.captured) if "rms_norm" in facts.name]
    return expected.only(norms)


class _Recorded(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = "aten::" + function.name().removeprefix("aten::").partition(".")[0]
        operands = [arg for arg in args if isinstance(arg, torch.Tensor)]
        shapes = tuple((tuple(tensor.shape), "f32") for tensor in operands)
        if aten_class(name) != OpClass.FREE:
            self.ops.append(OpFacts(aten_class(name), name, shapes))
        return function(*args, **(kwargs or {}))


def left(captured, executed):
    """How many captured and executed ops have no partner, and no reason why."""
    rules = rules_for(executed, recorded=True, backend="cpu")
    matching = Matching(captured.captured, executed, rules, captured)
    decomposed(matching)
    return len(matching.unmatched_captured), len(matching.unmatched_executed)


def ran(needed, shapes):
    """The ops of the norm, forward and backward, that PyTorch runs on the CPU."""
    arguments = tensors(needed, *SHAPES[shapes])
    with _Recorded() as run:
        step(*arguments)
    return run.ops


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("needed", NEEDED)
def test_a_norm_is_explained_by_the_gradients_that_it_has(needed, shapes):
    assert left(captured(needed, shapes), ran(needed, shapes)) == (0, 0)


@pytest.mark.parametrize(
    ("needed", "other", "shapes"),
    [
        ("both", "input", "last"), ("both", "weight", "last"), ("input", "weight", "last"),
        # Input or weight alone: where these have one shape, nothing captured tells which.
        ("both", "input", "every"), ("both", "weight", "every"),
    ],
)  # fmt: skip
def test_a_norm_is_not_explained_by_fewer_gradients_or_more(needed, other, shapes):
    assert left(captured(other, shapes), ran(needed, shapes)) != (0, 0)
    assert left(captured(needed, shapes), ran(other, shapes)) != (0, 0)
