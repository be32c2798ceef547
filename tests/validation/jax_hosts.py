"""Child process: one of several hosts that run a step on host devices together, profiled.

    python jax_hosts.py FOLDER MODULE:STEP PROCESS PROCESSES PORT

Leaves FOLDER/host<PROCESS>.xplane.pb of two runs, on a mesh of all devices in reverse order.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.support.meshes import auto_mesh


def main(folder, place, process, processes, port):
    module, _, attribute = place.partition(":")
    step = getattr(importlib.import_module(module), attribute)
    shape, axes, setup = step._flint[:3]
    mine = int(np.prod(shape)) // int(processes)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={mine}"
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    mesh = Mesh(np.array(jax.devices()[::-1]).reshape(shape), axes)

    def real(leaf):
        spec = leaf.sharding.spec if leaf.sharding is not None else PartitionSpec()
        ones = np.ones(leaf.shape, leaf.dtype)
        whole = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(leaf.shape, whole, lambda place: ones[place])

    with jax.set_mesh(mesh), tempfile.TemporaryDirectory() as spare:
        arguments = jax.tree.map(real, setup(auto_mesh(shape, axes)))
        compiled = jax.jit(step.__wrapped__).lower(*arguments).compile()
        jax.block_until_ready(compiled(*arguments))
        with jax.profiler.trace(spare):
            for _ in range(2):
                jax.block_until_ready(compiled(*arguments))
        [file] = Path(spare).glob("**/*.xplane.pb")
        (Path(folder) / f"host{process}.xplane.pb").write_bytes(file.read_bytes())
        (Path(folder) / "devices.txt").write_text(" ".join(str(d.id) for d in mesh.devices.flat))


if __name__ == "__main__":
    main(*sys.argv[1:])
