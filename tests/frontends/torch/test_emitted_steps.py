"""A recorded step, executed as StableHLO, computes what PyTorch computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flint.frontends.torch.emission import emitted
from tests.frontends.torch.checking import assert_equal, check
from tests.frontends.torch.exchanges import ALONG
from tests.frontends.torch.exchanges import CASES as EXCHANGES
from tests.frontends.torch.executing import execute
from tests.frontends.torch.real_recording import record
from tests.frontends.torch.tiny_models import (
    Experts,
    Llama,
    ResNet,
    image_batch,
    token_batch,
    trainer,
)
from tests.support.shared import chosen, quick


def adamw(**options):
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, **options)


def sgd(**options):
    return lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, **options)


STEPS = {
    # name: (model, batch, optimizer, options of the step)
    "transformer, clip, foreach AdamW": (Llama, token_batch, adamw(foreach=True), {"clip": 1.0}),
    "transformer, AdamW per tensor": (Llama, token_batch, adamw(foreach=False), {}),
    "transformer, fused AdamW": (Llama, token_batch, adamw(fused=True), {"clip": 1.0}),
    "mixture of experts, SGD": (lambda: Llama(mlp=Experts), token_batch, sgd(), {}),
    "ResNet, SGD": (ResNet, image_batch, sgd(foreach=True), {}),
    "ResNet, fused SGD": (ResNet, image_batch, sgd(fused=True), {}),
}


def recorded_step(model, batch, optimizer, options, seed=0):
    """The second step: the first one makes the optimizer's state."""
    torch.manual_seed(seed)
    built = model()
    step = trainer(built, optimizer(built.parameters()), **options)
    step(*batch())
    return record(step, *batch())


@pytest.mark.parametrize("name", quick(STEPS, "transformer, fused AdamW", "ResNet, SGD"))
def test_an_executed_step_gives_pytorchs_loss_gradients_parameters_and_state(name):
    recorded = recorded_step(*STEPS[name])
    outputs = check(recorded)
    mutated = len(outputs) - len(recorded.results)
    # Parameters, and one or two moments or buffers for each, at least.
    assert mutated >= 2 * (len(recorded.results) - 1)


def worst_update(recorded, made_of):
    """How far the changes that another recording's module makes are from PyTorch's, relatively."""
    outputs, aliases = execute(emitted(made_of.recording).data, recorded.inputs)
    worst = 0.0
    for number, after in recorded.mutated.items():
        before = recorded.inputs[number]
        if number in aliases and not torch.equal(before, after):
            off = (outputs[aliases[number]] - after).norm() / (after - before).norm()
            worst = max(worst, float(off))
    return worst


@pytest.mark.thorough
def test_an_executed_step_in_bf16_changes_parameters_as_pytorch_does_within_its_precision():
    """Compared are the changes, which are small against the parameters.

    Rounding to bfloat16 is off by up to half a unit in the last place, which is 2**-8 to 2**-7 of
    the value: 2**-8 / sqrt(12) to twice that in quadratic mean, 0.0016 about.  The first layer's
    gradient comes through some 40 products and additions that are rounded, forward and backward,
    independently on both sides once they differ: 0.0016 * sqrt(2 * 40) = 0.014.
    """
    options = {"clip": 0.1, "autocast": True}
    recorded = recorded_step(Llama, token_batch, sgd(), options)
    assert worst_update(recorded, recorded) < 0.014
    # The negative control: gradients cut to a norm that is 5 % larger.
    other = recorded_step(Llama, token_batch, sgd(), options | {"clip": 0.105})
    assert worst_update(recorded, other) > 0.014


def test_another_seeds_step_is_not_taken_for_this_one():
    """The negative control."""
    case = STEPS["transformer, clip, foreach AdamW"]
    recorded, other = recorded_step(*case), recorded_step(*case, seed=1)
    outputs, _ = execute(emitted(recorded.recording).data, other.inputs)
    with pytest.raises(AssertionError):
        assert_equal(outputs[-1], recorded.results[-1])


@pytest.fixture(scope="module")
def sharded(request):
    """What the child found of the chosen parallelisms -> counts and differences."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    exchanges = ["exchanges"] if chosen(request, "along") else []
    ran = subprocess.run(
        [
            sys.executable, "-m", "tests.frontends.torch.sharded_steps",
            *chosen(request, "parallelism"), *exchanges,
        ],
        capture_output=True, text=True, env=environment, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


# Two layers and the root are three groups: gathered forward, the layers again backward, and reduced
# once each; replication adds an all-reduce per group.
COLLECTIVES = {
    "fsdp": {"all_gather": 5, "reduce_scatter": 3},
    "hsdp": {"all_gather": 5, "reduce_scatter": 3, "all_reduce": 3},
}


@pytest.mark.thorough
@pytest.mark.xdist_group("sharded_steps")
@pytest.mark.parametrize("parallelism", quick(["fsdp", "hsdp", "tensor parallel"], "hsdp"))
def test_a_parallel_step_on_four_devices_gives_the_whole_batchs_parameters(sharded, parallelism):
    found = sharded[parallelism]
    assert found["compared"] == 4 * found["parameters"]
    assert found["worst"] < 2e-5
    assert found["moved"] > 50 * found["worst"]


@pytest.mark.thorough
@pytest.mark.xdist_group("sharded_steps")
@pytest.mark.parametrize("parallelism", quick(COLLECTIVES, "hsdp"))
def test_parallel_steps_have_the_collectives_of_their_wrapping(sharded, parallelism):
    assert sharded[parallelism]["collectives"] == COLLECTIVES[parallelism]


@pytest.mark.xdist_group("sharded_steps")
@pytest.mark.thorough
@pytest.mark.parametrize("along", ALONG)
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_communication_on_four_devices_does_what_torch_distributed_says(sharded, name, along):
    found = sharded["exchanges"][f"{name} along {along}"]
    assert isinstance(found, float), found
    assert found < 1e-6


@pytest.mark.thorough
def test_bytes_per_op_do_not_grow_with_the_number_of_layers():
    sizes = []
    for layers in (2, 4, 8):
        recorded = recorded_step(
            lambda layers=layers: Llama(layers=layers), token_batch, sgd(foreach=False), {}
        )
        sizes.append(len(emitted(recorded.recording).data))
    assert sizes[2] - sizes[1] < 2.2 * (sizes[1] - sizes[0])
