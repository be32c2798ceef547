"""Child process: steps run for real on 16 host devices, under JAX's profiler.

Reads lines ``FOLDER MODULE:ATTRIBUTE`` until its input ends.  For each it leaves FOLDER/profile, a
profile of two runs, and FOLDER/module.txt, the executable's HLO, and answers with a line: ``done``,
or what went wrong, as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding


def real(leaf, mesh):
    sharding = NamedSharding(mesh, leaf.sharding.spec)
    generator = np.random.default_rng(0)
    return jax.device_put(generator.normal(size=leaf.shape).astype(leaf.dtype), sharding)


def profile(step, folder):
    shape, axes, setup, _, settings = step._flint
    settings = dict(settings)
    types = settings.pop("axis_types", jax.sharding.AxisType.Auto)
    types = (types,) * len(shape)
    devices = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
    mesh = Mesh(devices, axes, axis_types=types)
    settings.pop("donate_argnums", None)  # the arguments are used twice
    with jax.set_mesh(mesh):
        arguments = jax.tree.map(
            lambda leaf: real(leaf, mesh), setup(AbstractMesh(shape, axes, axis_types=types))
        )
        function = step.__wrapped__
        jitted = function if hasattr(function, "lower") else jax.jit(function, **settings)
        compiled = jitted.lower(*arguments).compile()
        (folder / "module.txt").write_text(compiled.as_text())
        spare = jax.block_until_ready(jax.tree.map(jax.numpy.array, arguments))
        with jax.profiler.trace(str(folder / "profile")):
            # One run at a time: the devices share a few threads, and two can block them all.
            jax.block_until_ready(compiled(*arguments))
            jax.block_until_ready(compiled(*spare))


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints is no answer
    for line in sys.stdin:
        folder, place = line.split()
        module, _, attribute = place.partition(":")
        try:
            profile(getattr(importlib.import_module(module), attribute), Path(folder))
            answer = "done"
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
