"""Child process: steps run for real on 16 host devices, under JAX's profiler.

Reads lines ``FOLDER MODULE:ATTRIBUTE`` until its input ends.  For each it leaves FOLDER/profile, a
profile of two runs, and FOLDER/module.txt, the executable's HLO, and answers with a line: ``done``,
or what went wrong, as JSON.  With a third word, ``called``, the step is called and not compiled as
a whole; FOLDER/modules has the HLO of each program that is compiled for it.
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
from jax._src import compiler
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from tests.support.meshes import auto_mesh


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


def profile_calls(step, folder):
    """As ``profile``, of a step that calls several programs."""
    shape, axes, setup, _, _ = step._flint
    devices = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
    mesh = Mesh(devices, axes)
    abstract = setup(auto_mesh(shape, axes))

    def run():
        arguments = jax.tree.map(lambda leaf: real(leaf, mesh), abstract)
        return jax.block_until_ready(step.__wrapped__(*arguments))

    (folder / "modules").mkdir()
    compile_and_load = compiler.backend_compile_and_load

    def noted(*args, **kwargs):
        made = compile_and_load(*args, **kwargs)
        for module in made.hlo_modules():
            number = len(list((folder / "modules").iterdir()))
            (folder / "modules" / f"{number}.txt").write_text(module.to_string())
        return made

    jax.clear_caches()
    with jax.set_mesh(mesh):
        compiler.backend_compile_and_load = noted
        try:
            run()
        finally:
            compiler.backend_compile_and_load = compile_and_load
        with jax.profiler.trace(str(folder / "profile")):
            run()
            run()


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # any other output is not an answer
    for line in sys.stdin:
        folder, place, *how = line.split()
        module, _, attribute = place.partition(":")
        try:
            work = profile_calls if how else profile
            work(getattr(importlib.import_module(module), attribute), Path(folder))
            answer = "done"
        except Exception:
            answer = traceback.format_exc()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
