"""Does a captured JAX step run as it was captured?  A test on eight host devices.

The same function is captured for a mesh of eight devices that need not exist.  It is then run on
eight devices that XLA makes of the CPU, under JAX's profiler:

    python examples/validate_jax_step.py

On GPUs and TPUs run your own step under ``jax.profiler.trace(folder)`` and compare with ``flint
validate out/ --trace folder``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
# A device that waits in a collective holds a thread; XLA starts one per core that it counts.
os.environ["NPROC"] = "64"

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

import flint
from flint.validation.validating import validate

MESH, AXES = (4, 2), ("data", "model")
WIDTH, HIDDEN, BATCH = 128, 512, 32


def arguments(mesh: AbstractMesh | Mesh) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Two weights split over "model", a batch split over "data"."""

    def tensor(shape: tuple[int, ...], *axes: str | None) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    return (
        tensor((WIDTH, HIDDEN), None, "model"),
        tensor((HIDDEN, WIDTH), "model", None),
        tensor((BATCH, WIDTH), "data", None),
    )


@flint.capture(mesh=MESH, axes=AXES, setup=arguments, framework="jax")
def train(up: jax.Array, down: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One training step of a feed-forward network: new weights."""

    def loss(up: jax.Array, down: jax.Array) -> jax.Array:
        return jnp.mean((jax.nn.relu(batch @ up) @ down - batch) ** 2)

    grad_up, grad_down = jax.grad(loss, argnums=(0, 1))(up, down)
    return up - 0.1 * grad_up, down - 0.1 * grad_down


def run(folder: str) -> None:
    """Run the step on real devices and write a profile."""
    mesh = jax.make_mesh(MESH, AXES, axis_types=(jax.sharding.AxisType.Auto,) * len(AXES))
    real = [
        jax.device_put(jnp.full(leaf.shape, 0.01, leaf.dtype), leaf.sharding)
        for leaf in arguments(mesh)
    ]
    shardings = tuple(leaf.sharding for leaf in real)
    # Weights are returned as they are sharded on entry: as in the capture, ready for the next step.
    step = jax.jit(train, in_shardings=shardings).lower(*real).compile()
    jax.block_until_ready(step(*real))
    with jax.profiler.trace(folder):
        jax.block_until_ready(step(*real))


def main() -> int:
    """Capture, run, compare; 1 if they differ."""
    workload = train.capture()
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
        report = validate(workload, [Path(folder)])
    for kind, count in report.classes.items():
        if kind.must_match:  # XLA fuses the others
            print(
                f"{kind:15} captured {count.captured:5}   executed {count.executed:5}   "
                f"matched {count.matched:5}"
            )
    for reason, ops in report.explained.items():
        print(f"{ops:5}  {reason}")
    print(f"{report.edges - report.contradicted} of {report.edges} dependencies ran in order")
    print(report.verdict)
    return int(not report.ok)


if __name__ == "__main__":
    sys.exit(main())
