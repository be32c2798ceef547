"""Bytes that models' tiny steps need on a device: XLA's buffer assignment for CPU, and ours.

Run as a program on 8 devices; prints a JSON object of the models that are named.  float32
throughout: on a CPU, XLA computes bf16 in float32.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp

from flint.models.jax import decode, llama3, moe, pipeline, resnet
from flint.models.jax.layers import Heads
from flint.passes import apply
from flint.simulation.memory import peak_memory

_SIZES = {
    "width": 256,
    "heads": Heads(queries=8, keys=4, size=32),
    "vocabulary": 1024,
    "sequence": 256,
    "dtype": jnp.float32,
}
LLAMA = replace(llama3.TINY, layers=4, hidden=512, sequences=4, **_SIZES)
MOE = replace(
    moe.TINY,
    layers=3,
    sequences=4,
    experts=replace(moe.TINY.experts, hidden=512),
    **_SIZES,
)
RESNET = replace(
    resnet.TINY, blocks=(2, 2), width=32, size=64, images=8, together=8, dtype=jnp.float32
)
SERVING = decode.Serving(model=replace(LLAMA, sequences=1), length=512, sequences=8)
DATA, MODEL, EXPERT = "data", "model", "expert"


def cases():
    """Name, captured step, setup, mesh, axes."""
    setup = functools.partial(llama3.abstract_arguments, LLAMA)
    yield "llama3", llama3.training(LLAMA, mesh=(4, 2)), setup, (4, 2), (DATA, MODEL)
    setup = functools.partial(moe.abstract_arguments, MOE)
    yield "moe", moe.training(MOE, mesh=(2, 4)), setup, (2, 4), (DATA, EXPERT)
    setup = functools.partial(resnet.abstract_arguments, RESNET)
    yield "resnet", resnet.training(RESNET, mesh=(8,)), setup, (8,), (DATA,)
    setup = functools.partial(decode.abstract_arguments, SERVING)
    yield "decode", decode.decoding(SERVING, mesh=(4, 2)), setup, (4, 2), (DATA, MODEL)
    setup = functools.partial(pipeline.abstract_arguments, LLAMA, 4)
    mesh, axes = (2, 2, 2), ("stage", DATA, MODEL)
    yield "pipeline", pipeline.training(LLAMA, 4, mesh=mesh), setup, mesh, axes


def main(names) -> None:
    """Print what each needs, in bytes."""
    sizes = {}
    for name, step, setup, shape, axes in cases():
        if name not in names:
            continue
        devices = jax.devices()[: math.prod(shape)]
        kinds = (jax.sharding.AxisType.Auto,) * len(shape)
        mesh = jax.make_mesh(shape, axes, devices=devices, axis_types=kinds)
        with jax.set_mesh(mesh):
            compiled = step.lower(*setup(mesh)).compile().memory_analysis()
        needed = (
            compiled.argument_size_in_bytes
            + compiled.output_size_in_bytes
            - compiled.alias_size_in_bytes
            + compiled.temp_size_in_bytes
        )
        [program] = step.capture().programs
        ours = peak_memory(apply(program.graph, "kernel"), program.inputs)
        arguments = compiled.argument_size_in_bytes
        sizes[name] = arguments, needed, sum(ours.inputs.values()), ours.bytes
    print(json.dumps(sizes))


if __name__ == "__main__":
    main(sys.argv[1:])
