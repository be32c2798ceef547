"""Opened captures: what PyTorch's host launches of them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.cost.simplified import without  # noqa: E402
from flint.cost.systems import load_system  # noqa: E402
from flint.explaining.causes import LAUNCHES  # noqa: E402
from flint.explaining.explaining import explain  # noqa: E402
from flint.simulation.launches import OP  # noqa: E402
from tests.frontends.torch.inductor.test_rules_against_inductor import given, train  # noqa: E402

LAYERS = 8


def captured(step, setup, **options):
    capture = flint.capture(step, mesh=(1,), axes=("dp",), setup=setup, framework="torch")
    level = options.pop("level", {})
    return capture.capture(options={"audit": 0, **options}, **level)


def launched(workload, **options):
    """Ops that the host launches in a step."""
    (program,) = workload.simulate("dgx-h100", **options).programs
    return round(program.launch_seconds / OP)


def weights(mesh):
    sizes = {"device": "cuda", "dtype": torch.bfloat16}
    return torch.empty((8, 64), **sizes), [torch.empty((64, 64), **sizes) for _ in range(LAYERS)]


def forward(x, weights):
    for weight in weights:
        x = x @ weight.T
    return x


@pytest.mark.parametrize("granularity", ["op", "kernel", "inductor", "region"])
def test_a_step_is_as_long_as_its_launches(granularity):
    """A product for each layer, which takes the device some microseconds, and no kernel for a view:
    so many are launched, whatever the device's time is made of."""
    result = captured(forward, weights, fuse=True).simulate("dgx-h100", granularity=granularity)
    assert result.step_seconds == pytest.approx(LAYERS * OP)
    assert any(f"launches {LAYERS} ops one by one" in note for note in result.notes)


def test_the_host_can_be_left_out():
    """CUDA graphs launch a step at once; launches on the device keep their time."""
    workload = captured(forward, weights, fuse=True)
    system = load_system("dgx-h100")
    alone = workload.simulate(without(system, ("host",)))
    bare = workload.simulate(without(system, ("launches",)))
    assert bare.step_seconds < alone.step_seconds < LAYERS * OP
    assert not any("launches" in note and "one by one" in note for note in alone.notes)
    assert "dgx-h100 is simulated without host" in alone.notes


def test_the_explanation_has_the_same_launches():
    workload = captured(forward, weights, fuse=True)
    explanation = explain(workload, "dgx-h100")
    (cause,) = (cause for cause in explanation.causes if cause.name == LAUNCHES)
    assert cause.step_seconds + cause.seconds == pytest.approx(LAYERS * OP)


@pytest.mark.thorough
def test_compiled_opened_and_eager_launches():
    """Of one Llama block, forward and backward: PyTorch's compiler launches 32 kernels, 21 of them
    products and two of attention.  Rules like its own are within an eighth of that; Transformer
    Engine, which fuses less, lies between them and the 62 of eager PyTorch."""
    compiled = captured(train, given, level={"level": "optimized", "target": "h100"})
    opened, eager = captured(train, given, fuse=True), captured(train, given)
    assert launched(compiled) == 32
    assert launched(eager) == 62
    assert launched(opened) == pytest.approx(32, rel=1 / 8)
