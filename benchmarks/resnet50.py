"""Partition a ResNet-50 training step for data-parallel devices, with plain JAX and XLA.

The idea: a real, unrolled convolution network for the per-op benchmark, made from nothing but JAX.
It is ResNet-50 v1.5 (stride in the 3x3 convolution; He et al. 2015, "Deep residual learning for
image recognition", with the stride of torchvision's version) with batch norm on the statistics of
the whole batch, cross entropy and SGD with momentum.  The batch is sharded, XLA's own SPMD
partitioner runs, nothing else of XLA does, and the partitioned module is saved as StableHLO.

XLA's compile call fails on purpose once the partitioned module is dumped (no code generation was
asked for), and may abort the process.  So this runs as a process of its own, and the file counts.

    JAX_PLATFORMS=cpu python benchmarks/resnet50.py --devices 4 resnet50.mlirbc
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Stages: (blocks, width of the 3x3 convolution, stride of the first block).
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
EXPANSION, CLASSES, EPSILON = 4, 1000, 1e-5
#: What XLA must run to partition, and what cleans up behind it (names as in XLA's pass list).
PASSES = (
    "flatten-call-graph,call-inliner,zero_sized_hlo_elimination,conditional-canonicalizer,"
    "shardy-xla,spmd-partitioning,dce,tuple-simplifier,cse,control-dep-rewriter,"
    "strip-memory-placement-annotations,async-collective-replacer"
)


def step(size: int) -> tuple[Callable[..., Any], dict[str, tuple[int, ...]]]:
    """The training step and the shapes of its parameters, for images of ``size`` squared."""
    import jax
    import jax.numpy as jnp

    shapes: dict[str, tuple[int, ...]] = {}

    def convolution(name: str, kernel: int, inputs: int, outputs: int) -> None:
        shapes[f"{name}.kernel"] = (kernel, kernel, inputs, outputs)
        shapes[f"{name}.scale"] = shapes[f"{name}.bias"] = (outputs,)

    convolution("stem", 7, 3, 64)
    channels, blocks = 64, []
    for stage, (count, width, first) in enumerate(STAGES):
        for number in range(count):
            name, out = f"stage{stage}.{number}", width * EXPANSION
            convolution(f"{name}.reduce", 1, channels, width)
            convolution(f"{name}.spatial", 3, width, width)
            convolution(f"{name}.expand", 1, width, out)
            stride = first if number == 0 else 1
            if number == 0:
                convolution(f"{name}.shortcut", 1, channels, out)
            blocks.append((name, stride, number == 0))
            channels = out
    shapes["head.kernel"], shapes["head.bias"] = (channels, CLASSES), (CLASSES,)

    def normalised(w: dict[str, Any], name: str, x: Any, stride: int) -> Any:
        kernel = w[f"{name}.kernel"]
        pad = (kernel.shape[0] - 1) // 2
        x = jax.lax.conv_general_dilated(
            x,
            kernel.astype(x.dtype),
            (stride, stride),
            ((pad, pad), (pad, pad)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        wide = x.astype(jnp.float32)
        mean = wide.mean((0, 1, 2))
        variance = (wide * wide).mean((0, 1, 2)) - mean * mean
        scale = jax.lax.rsqrt(variance + EPSILON) * w[f"{name}.scale"]
        return ((wide - mean) * scale + w[f"{name}.bias"]).astype(x.dtype)

    def block(w: dict[str, Any], name: str, x: Any, stride: int, projected: bool) -> Any:
        y = jax.nn.relu(normalised(w, f"{name}.reduce", x, 1))
        y = jax.nn.relu(normalised(w, f"{name}.spatial", y, stride))
        y = normalised(w, f"{name}.expand", y, 1)
        x = normalised(w, f"{name}.shortcut", x, stride) if projected else x
        return jax.nn.relu(x + y)

    def loss(w: dict[str, Any], images: Any, labels: Any) -> Any:
        x = jax.nn.relu(normalised(w, "stem", images.astype(jnp.bfloat16), 2))
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        lowest = jnp.array(-jnp.inf, x.dtype)
        x = jax.lax.reduce_window(
            x, lowest, jax.lax.max, window, strides, ((0, 0), (1, 1), (1, 1), (0, 0))
        )
        for name, stride, projected in blocks:
            x = block(w, name, x, stride, projected)
        pooled = x.astype(jnp.float32).mean((1, 2))
        logits = pooled @ w["head.kernel"] + w["head.bias"]
        return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, CLASSES)).sum(-1).mean()

    def train(w: dict[str, Any], momentum: dict[str, Any], images: Any, labels: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(w, images, labels)
        moved = {name: 0.9 * momentum[name] + gradient[name] + 1e-4 * w[name] for name in w}
        return {name: w[name] - 0.1 * moved[name] for name in w}, moved, value

    return train, shapes


def lowered(devices: int, batch: int, size: int) -> Any:
    """The step as global StableHLO with shardings, the batch sharded over ``devices``."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

    mesh = AbstractMesh((devices,), ("data",), axis_types=(AxisType.Auto,))
    train, shapes = step(size)

    def argument(shape: tuple[int, ...], dtype: Any, *axes: str) -> Any:
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    state = {name: argument(shape, jnp.float32) for name, shape in shapes.items()}
    images = argument((batch, size, size, 3), jnp.float32, "data")
    labels = argument((batch,), jnp.int32, "data")
    kept = {name: item.sharding for name, item in state.items()}
    jitted = jax.jit(
        train,
        donate_argnums=(0, 1),
        out_shardings=(kept, kept, NamedSharding(mesh, PartitionSpec())),
    )
    traced = jitted.trace(state, state, images, labels)
    return traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")


def partitioned(module: Any, devices: int, dump: Path) -> bytes:
    """The ``HloProto`` after XLA's SPMD partitioner.

    Raises:
        RuntimeError: XLA left no partitioned module.
    """
    import numpy as np
    from jaxlib import _jax, xla_client

    client = xla_client.make_cpu_client(num_devices=devices)
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_partitions = build.num_partitions = devices
    options.num_replicas = build.num_replicas = 1
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.device_assignment = xla_client.DeviceAssignment.create(
        np.arange(devices).reshape(1, devices)
    )
    debug = build.debug_options
    debug.xla_enable_hlo_passes_only = PASSES
    debug.xla_dump_to = str(dump)
    debug.xla_dump_hlo_pass_re = ".*spmd.*"
    debug.xla_dump_hlo_as_proto = True
    said = "nothing"
    try:
        client.compile_and_load(module, _jax.DeviceList(tuple(client.devices())), options)
    except Exception as error:  # on purpose: no code generation was asked for
        said = str(error)
    found = sorted(dump.glob("*after_spmd-partitioning*.hlo.pb"))
    if not found:
        raise RuntimeError(f"XLA left no partitioned module; it said: {said}")
    return found[-1].read_bytes()


def stablehlo(proto: bytes) -> bytes:
    """StableHLO bytecode of an ``HloProto``."""
    from jaxlib import _jax

    from flint.hlo.hlo_pb2 import HloProto

    module = HloProto.FromString(proto).hlo_module
    return bytes(_jax.mlir.hlo_to_stablehlo(module.SerializeToString()))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="partition a ResNet-50 training step")
    parser.add_argument("path", type=Path)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    given = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    module = lowered(given.devices, given.batch, given.size)
    with tempfile.TemporaryDirectory() as dump:
        proto = partitioned(module, given.devices, Path(dump))
    if given.path.name.endswith(".hlo.pb"):
        given.path.write_bytes(proto)
    else:
        given.path.write_bytes(stablehlo(proto))


if __name__ == "__main__":
    main()
