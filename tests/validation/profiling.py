"""Child process: steps run for real on host devices, under the profiler.

    python profiling.py FOLDER NAME=STEP...

Leaves FOLDER/NAME, a profile folder of two runs; a step is ``module:attribute`` as for
``tests/frontends/jax/executing.py``, whose settings of XLA this uses.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "frontends" / "jax"))

import executing
import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh


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
            lambda leaf: executing.real(leaf, mesh),
            setup(AbstractMesh(shape, axes, axis_types=types)),
        )
        function = step.__wrapped__
        jitted = function if hasattr(function, "lower") else jax.jit(function, **settings)
        compiled = jitted.lower(*arguments).compile()
        spare = jax.tree.map(jax.numpy.array, arguments)
        with jax.profiler.trace(folder):
            jax.block_until_ready(compiled(*arguments))
            jax.block_until_ready(compiled(*spare))


def main(folder, steps):
    for step in steps:
        name, _, place = step.partition("=")
        profile(executing.found(place), str(Path(folder) / name))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
