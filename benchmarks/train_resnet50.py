"""Make a ResNet-50 training module: data parallel over 4 devices, partitioned by XLA.

The idea: the per-op conversion of such a module is what a peer (hespas) has a published time for,
so the benchmark needs one.  ResNet-50 v1.5 (stride in the 3x3 convolution), batch norm with
training and running statistics, cross entropy, Adam; written in plain JAX and partitioned by XLA's
own SPMD partitioner on a CPU client in a child process.

    python benchmarks/train_resnet50.py resnet50.mlirbc
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from jaxlib import _jax, xla_client

from flint.hlo import hlo_pb2

DEVICES, BATCH, CLASSES = 4, 128, 1000
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
#: XLA's passes up to the partitioner and nothing behind it.
PASSES = (
    "flatten-call-graph,call-inliner,zero_sized_hlo_elimination,conditional-canonicalizer,"
    "shardy-xla,spmd-partitioning,dce,tuple-simplifier,cse"
)

Params = dict[str, Any]


def shapes() -> dict[str, tuple[int, ...]]:
    """Name -> shape of every parameter: kernels HWIO, scale and bias of every batch norm."""
    found: dict[str, tuple[int, ...]] = {}

    def conv(name: str, size: int, into: int, out: int) -> None:
        found[f"{name}/kernel"] = (size, size, into, out)
        found[f"{name}/scale"] = found[f"{name}/bias"] = (out,)

    conv("stem", 7, 3, 64)
    width = 64
    for stage, (blocks, features) in enumerate(STAGES):
        for block in range(blocks):
            name = f"stage{stage}/block{block}"
            conv(f"{name}/a", 1, width, features)
            conv(f"{name}/b", 3, features, features)
            conv(f"{name}/c", 1, features, 4 * features)
            if block == 0:
                conv(f"{name}/shortcut", 1, width, 4 * features)
            width = 4 * features
    found["head/kernel"], found["head/bias"] = (width, CLASSES), (CLASSES,)
    return found


def conv_norm(
    params: Params, running: Params, name: str, x: jax.Array, stride: int = 1
) -> jax.Array:
    """Convolution and batch norm over the whole batch; its statistics go to ``running``."""
    x = jax.lax.conv_general_dilated(
        x,
        params[f"{name}/kernel"],
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    running[f"{name}/mean"], running[f"{name}/variance"] = mean, variance
    x = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
    return x * params[f"{name}/scale"] + params[f"{name}/bias"]


def logits(params: Params, images: jax.Array) -> tuple[jax.Array, Params]:
    """Class scores, shape [batch, classes], and the batch's statistics by layer."""
    running: Params = {}
    x = jax.nn.relu(conv_norm(params, running, "stem", images, 2))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage, (blocks, _) in enumerate(STAGES):
        for block in range(blocks):
            name = f"stage{stage}/block{block}"
            stride = 2 if block == 0 and stage > 0 else 1
            y = jax.nn.relu(conv_norm(params, running, f"{name}/a", x))
            y = jax.nn.relu(conv_norm(params, running, f"{name}/b", y, stride))
            y = conv_norm(params, running, f"{name}/c", y)
            if block == 0:
                x = conv_norm(params, running, f"{name}/shortcut", x, stride)
            x = jax.nn.relu(x + y)
    return x.mean((1, 2)) @ params["head/kernel"] + params["head/bias"], running


def train_step(
    params: Params, state: Params, images: jax.Array, labels: jax.Array
) -> tuple[Params, Params, jax.Array]:
    """One step of Adam; ``state`` holds its moments, its count and the running statistics."""

    def loss(params: Params) -> tuple[jax.Array, Params]:
        scores, statistics = logits(params, images)
        log = jax.nn.log_softmax(scores)
        return -(jax.nn.one_hot(labels, CLASSES) * log).sum(-1).mean(), statistics

    (value, statistics), grads = jax.value_and_grad(loss, has_aux=True)(params)
    count = state["count"] + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["first"], grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["second"], grads)

    def updated(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        m, v = m / (1 - 0.9**count), v / (1 - 0.999**count)
        return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)

    params = jax.tree.map(updated, params, first, second)
    running = jax.tree.map(lambda r, b: 0.9 * r + 0.1 * b, state["running"], statistics)
    state = {"first": first, "second": second, "running": running, "count": count}
    return params, state, value


def partition(folder: str) -> None:
    """Let XLA partition the step and dump the ``HloProto`` into ``folder``."""
    mesh = AbstractMesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))

    def abstract(shape: tuple[int, ...], dtype: Any, *spec: str | None) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    params = {name: abstract(shape, jnp.float32) for name, shape in shapes().items()}
    norms = [name.removesuffix("/scale") for name in params if name.endswith("/scale")]
    running = {
        f"{name}/{what}": params[f"{name}/scale"] for name in norms for what in ("mean", "variance")
    }
    state = {"first": params, "second": params, "running": running}
    state["count"] = abstract((), jnp.float32)
    images = abstract((BATCH, 224, 224, 3), jnp.float32, "data")
    labels = abstract((BATCH,), jnp.int32, "data")
    step = jax.jit(train_step, donate_argnums=(0, 1))
    lowered = step.trace(params, state, images, labels).lower(lowering_platforms=("cpu",))
    client = xla_client.make_cpu_client(num_devices=DEVICES)
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_partitions = build.num_partitions = DEVICES
    options.num_replicas = build.num_replicas = 1
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.device_assignment = xla_client.DeviceAssignment.create(np.arange(DEVICES)[None])
    debug = build.debug_options
    debug.xla_dump_to, debug.xla_dump_hlo_pass_re = folder, ".*spmd.*"
    debug.xla_dump_hlo_as_proto, debug.xla_enable_hlo_passes_only = True, PASSES
    devices = _jax.DeviceList(tuple(client.devices()))
    client.compile_and_load(lowered.compiler_ir("stablehlo"), devices, options)


def partitioned() -> bytes:
    """The partitioned module as an ``HloProto``.

    Code generation of a module that was not optimised fails or aborts; by then the dump is written,
    which is why the compiler runs in a child and only the dump counts.
    """
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.run(
            [sys.executable, __file__, "--partition", folder], capture_output=True, check=False
        )
        dumps = glob.glob(f"{folder}/*after_spmd-partitioning*.hlo.pb")
        if not dumps:
            raise SystemExit(f"XLA wrote no module: {child.stderr.decode()[-400:]}")
        return Path(dumps[0]).read_bytes()


def main() -> None:
    """Write the module as StableHLO bytecode, or as HLO proto where the name ends with ``.pb``."""
    if sys.argv[1] == "--partition":
        partition(sys.argv[2])
        return
    path, proto = Path(sys.argv[1]), partitioned()
    if path.suffix == ".pb":
        path.write_bytes(proto)
        return
    module = hlo_pb2.HloProto.FromString(proto).hlo_module
    path.write_bytes(_jax.mlir.hlo_to_stablehlo(module.SerializeToString()))


if __name__ == "__main__":
    main()
