"""ResNet: published sizes, one result on any number of devices, and what it sends and computes."""

from __future__ import annotations

import collections
import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flint.graph.graph import Phase
from flint.models.jax.parameters import count, initial, leaves, zeros_like
from flint.models.jax.resnet import (
    RESNET50,
    TINY,
    batch_norm,
    parameters,
    train_resnet50,
    train_tiny,
    training,
    update,
)
from tests.support.children import answer_of
from tests.support.nodes import product_flops
from tests.support.shared import chosen, quick

pytestmark = pytest.mark.xdist_group("models")


def test_parameters_are_as_many_as_published():
    # torchvision's ResNet50_Weights: num_params.
    assert count(parameters(RESNET50)) == 25_557_032


@pytest.mark.parametrize(
    ("blocks", "published"), [((3, 4, 23, 3), 44_549_160), ((3, 8, 36, 3), 60_192_808)]
)
def test_the_deeper_ones_too(blocks, published):
    # ResNet101_Weights and ResNet152_Weights.
    assert count(parameters(replace(RESNET50, blocks=blocks))) == published


@pytest.fixture(scope="module")
def distances(request):
    names = chosen(request, "variant")
    return answer_of(
        # Where an activation is about 0, a gradient hangs on how its sum was rounded.
        Path(__file__).with_name("resnet_runs.py"),
        *names,
        devices=8,
        flags="",
    )


@pytest.mark.parametrize(
    "variant", quick(["own", "own, two axes", "synchronised", "synchronised, two axes"])
)
def test_two_steps_on_eight_devices_are_those_of_one(variant, distances):
    """Parameters, momentum (with it, gradients), running statistics and losses."""
    found = distances[variant]
    assert len(found) == 2 * len(leaves(parameters(TINY))) + 2 * 9 + 1  # nine norms
    assert max(found.values()) < 5e-5, found


@pytest.mark.thorough
def test_statistics_of_a_devices_images_are_not_those_of_the_batch(distances):
    assert max(distances["own or synchronised"].values()) > 0.1


@pytest.mark.parametrize("together", [2, 3, None])
def test_batch_norm_is_its_formula(together):
    generator = np.random.default_rng(0)
    x = generator.normal(3.0, 2.0, (6, 4, 5, 7)).astype(np.float32)
    layer = {"scale": np.arange(7, dtype=np.float32), "bias": np.ones(7, np.float32)}
    out, seen = batch_norm(jnp.asarray(x), layer, together)
    size = together or 6
    groups = [x[start : start + size].astype(np.float64) for start in range(0, 6, size)]
    exact = [
        (part - part.mean((0, 1, 2))) / np.sqrt(part.var((0, 1, 2)) + 1e-5) * layer["scale"] + 1
        for part in groups
    ]
    np.testing.assert_allclose(out, np.concatenate(exact), atol=1e-4)
    for name, of in (("mean", np.mean), ("variance", np.var)):
        average = np.mean([of(part, (0, 1, 2)) for part in groups], 0)
        np.testing.assert_allclose(seen[name], average, rtol=1e-4)


@pytest.mark.thorough
def test_gradient_descent_is_optaxs():
    described = parameters(TINY)
    params, momentum = (
        initial(tree, jax.random.key(0)) for tree in (described, zeros_like(described))
    )
    weights = jax.tree.map(lambda p: p.ndim > 1, params)
    theirs = optax.chain(
        optax.add_decayed_weights(TINY.decay, weights), optax.sgd(TINY.rate, momentum=0.9)
    )
    their_params, their_state = params, theirs.init(params)
    for number in range(3):
        grads = initial(described, jax.random.key(number + 5))
        params, momentum = update(TINY, params, grads, momentum)
        updates, their_state = theirs.update(grads, their_state, their_params)
        their_params = optax.apply_updates(their_params, updates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-7), params, their_params)


def taps(size, kernel, stride):
    """Multiply-adds along one dim: (output, tap) pairs on the image; with padding."""
    outputs = (size - 1) // stride + 1  # a pad of kernel // 2 on either side
    inside = sum(
        0 <= stride * output + tap - kernel // 2 < size
        for output in range(outputs)
        for tap in range(kernel)
    )
    return inside, outputs * kernel


def multiply_adds(config, padded):
    """Of an image's forward pass, by layer: (stem, all others), from table 1 of the paper.

    Args:
        config: the model.
        padded: count products with padding too, as published figures do.
    """

    def convolution(size, kernel, stride, inputs, outputs):
        return taps(size, kernel, stride)[padded] ** 2 * inputs * outputs

    stem = convolution(config.size, 7, 2, 3, config.width)
    size, inputs, rest = config.size // 4, config.width, 0  # strides of the stem and of the pool
    for stage, blocks in enumerate(config.blocks):
        middle, outputs = config.width << stage, 4 * config.width << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            rest += convolution(size, 1, 1, inputs, middle)
            rest += convolution(size, 3, stride, middle, middle)
            if not block:
                rest += convolution(size, 1, stride, inputs, outputs)
            size //= stride
            rest += convolution(size, 1, 1, middle, outputs)
            inputs = outputs
    return stem, rest + inputs * config.classes


def test_multiply_adds_are_as_many_as_published():
    """torchvision's ResNet50_Weights states 4.09 billion at 224 x 224."""
    assert round(sum(multiply_adds(RESNET50, padded=True)) / 1e9, 2) == 4.09


STEPS = {
    "tiny": (train_tiny, TINY),
    "resnet50": (train_resnet50, RESNET50),
    "resnet50, float32": (
        training(replace(RESNET50, dtype=jnp.float32), mesh=(64,)),
        replace(RESNET50, dtype=jnp.float32),
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=quick(STEPS, "tiny"))
def case(request):
    step, config = STEPS[request.param]
    return step.capture(), config


def test_convolutions_take_three_times_the_forward_passs_flops_but_for_the_stem(case):
    """The gradients of a convolution's input and of its kernel pair the same elements as the
    convolution itself: each (input, tap, output) triple once.  Padding and dilation hold no
    elements, so that they do not count.  Images need no gradient: of the stem only two times."""
    workload, config = case
    stem, rest = multiply_adds(config, padded=False)
    found = product_flops(*workload.programs)
    assert found == 2 * config.images * (2 * stem + 3 * rest)


def reduced(workload):
    """Phase -> [(shape, bytes) of the all-reduces that stand in it]; there is nothing else."""
    [program] = workload.programs
    found = collections.defaultdict(list)
    for graph, times in program.graph.walk():
        for node in graph:
            if node.communication is not None:
                assert (node.communication.kind, times) == ("all_reduce", 1)
                assert node.communication.groups.size == workload.mesh.size
                for kind in node.result_types:
                    found[node.source.phase].append((math.prod(kind.shape), kind.bytes))
    return found


def test_every_gradient_is_reduced_once(case):
    """Weights are cast for their product, so that their gradients are of the activations' type:
    ResNet-50 sends 25,502,912 of them in bfloat16, and 54,120 of norms and of the bias in float32.
    """
    workload, config = case
    tree = leaves(parameters(config))
    size = jnp.dtype(config.dtype).itemsize
    expected = [
        (math.prod(p.shape), math.prod(p.shape) * (size if len(p.shape) > 1 else 4)) for p in tree
    ]
    assert sorted(reduced(workload)[Phase.BACKWARD]) == sorted(expected)


@pytest.mark.thorough
def test_resnet50s_gradients_are_51_megabytes_in_bfloat16_and_102_in_float32():
    for dtype, total in ((jnp.bfloat16, 51_222_304), (jnp.float32, 4 * 25_557_032)):
        workload = training(replace(RESNET50, dtype=dtype), mesh=(8,)).capture()
        assert sum(size for _, size in reduced(workload)[Phase.BACKWARD]) == total


def test_of_statistics_only_the_running_averages_cross_devices(case):
    """Mean and variance of every norm, and the loss."""
    workload, config = case
    channels = [math.prod(p.shape) for p in leaves(parameters(config)) if len(p.shape) == 1]
    channels.remove(config.classes)  # the head's bias; scale and bias of every norm remain
    expected = [(size, 4 * size) for size in [*channels, 1]]
    assert sorted(reduced(workload)[Phase.FORWARD]) == sorted(expected)


def test_synchronised_norms_reduce_two_vectors_forward_and_three_backward():
    """Forward the means of x and of x^2.  Backward, of the gradient g of a norm's result, the sums
    over images and pixels of g (for the bias), of g (x - mean) (for the scale and the variance)
    and of what reaches the mean, which the derivative of its broadcast sums once more."""
    config = replace(TINY, together=None)
    found = reduced(training(config, mesh=(8,)).capture())
    norms = [math.prod(p.shape) for p in leaves(parameters(config)) if len(p.shape) == 1]
    norms.remove(config.classes)
    norms = norms[::2]  # scale and bias are two of each
    assert sorted(size for size, _ in found[Phase.FORWARD]) == sorted(2 * norms + [1])
    weights = [math.prod(p.shape) for p in leaves(parameters(config)) if len(p.shape) > 1]
    assert sorted(size for size, _ in found[Phase.BACKWARD]) == sorted(
        weights + 3 * norms + [config.classes]
    )
