"""Steps of collectives on two-dimensional meshes of gloo ranks, by name in ``STEPS``."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist

import flint

LAYERS, WIDTH = 6, 256


def built(mesh):
    """Operands, and the groups of both axes."""
    dp, tp = (mesh.get_group(axis) for axis in ("dp", "tp"))
    sizes = ((WIDTH, WIDTH), (64,), (256,))
    return *(torch.ones(size, device=mesh.device_type) for size in sizes), dp, tp


def step(matrix, activation, gradient, dp, tp, exchanged=-1):
    """Layers that are reduced over one axis, and gradients over the other, between products.

    In the layer ``exchanged``, the first reduction is over the other axis.
    """
    for layer in range(LAYERS):
        for _ in range(1 + layer % 3):
            matrix = matrix @ matrix * 1e-3
        dist.all_reduce(activation, group=dp if layer == exchanged else tp)
        gathered = activation.new_empty(dist.get_world_size(tp) * 64)
        dist.all_gather_into_tensor(gathered, activation, group=tp)
        dist.all_reduce(gradient, group=dp)


def swapped(matrix, activation, gradient, dp, tp):
    """The same with the axes exchanged."""
    step(matrix, activation, gradient, tp, dp)


def mixed(matrix, activation, gradient, dp, tp):
    """The same with one reduction over the other axis."""
    step(matrix, activation, gradient, dp, tp, exchanged=3)


def _captured(run, shape):
    return flint.capture(run, mesh=shape, axes=("dp", "tp"), setup=built, framework="torch")


SHAPES = ((2, 2), (2, 4), (4, 2))
STEPS = {f"mesh_{a}x{b}": _captured(step, (a, b)) for a, b in SHAPES}
SWAPPED = {f"mesh_{a}x{b}": functools.partial(_captured, swapped, (a, b)) for a, b in SHAPES}
MIXED = {f"mesh_{a}x{b}": functools.partial(_captured, mixed, (a, b)) for a, b in SHAPES}
