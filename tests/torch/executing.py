"""Emitted modules, executed by XLA on the CPU."""

from __future__ import annotations

import io

import jax
import ml_dtypes
import numpy as np
import torch
from jax._src import compiler
from jaxlib import _jax

from flint.stablehlo.bindings import ir, parse

ALIASING = "tf.aliasing_output"

#: Ops whose groups are of partitions when they have a channel, of replicas when they have none.
AMONG_PARTITIONS = {
    "stablehlo.all_to_all", "stablehlo.collective_broadcast", "stablehlo.collective_permute",
}  # fmt: skip


def to_numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.contiguous().numpy()


def to_torch(array):
    array = np.array(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_replicas(data):
    """The module with its partitions as replicas, which XLA runs without partitioning; aliases.

    Returns:
        MLIR bytecode, and parameter -> output of mutated inputs.
    """
    module = parse(data)
    attributes = module.operation.attributes
    world = ir.IntegerAttr(attributes["mhlo.num_partitions"]).value
    aliases = {}
    with module.context:
        kind = ir.IntegerType.get_signless(32)
        attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(kind, 1)
        attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(kind, world)
        for item in module.body.operations:
            if ir.StringAttr(item.attributes["sym_name"]).value != "main":
                continue
            for op in item.regions[0].blocks[0].operations:
                if op.operation.name in AMONG_PARTITIONS:
                    del op.operation.attributes["channel_handle"]
            plain = []
            for number, entry in enumerate(ir.ArrayAttr(item.attributes["arg_attrs"])):
                named = {pair.name: pair.attr for pair in ir.DictAttr(entry)}
                if ALIASING in named:
                    aliases[number] = ir.IntegerAttr(named[ALIASING]).value
                plain.append(ir.DictAttr.get({}))
            item.attributes["arg_attrs"] = ir.ArrayAttr.get(plain)
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue(), aliases


def execute(data, inputs):
    """Outputs of a module for one rank: a list of tensors, and its aliases."""
    outputs, aliases = execute_on([inputs], data)
    return outputs[0], aliases


def execute_on(inputs, data):
    """Outputs of a module on as many devices as there are lists of inputs."""
    with jax.enable_x64(True):
        devices = jax.devices("cpu")[: len(inputs)]
        code, aliases = as_replicas(data)
        order = np.arange(len(inputs)).reshape(-1, 1)
        options = compiler.get_compile_options(len(inputs), 1, device_assignment=order)
        executable = devices[0].client.compile_and_load(
            code, _jax.DeviceList(tuple(devices)), options
        )
        mesh = jax.sharding.Mesh(np.array(devices), ("rank",))
        given = []
        for per_rank in zip(*inputs, strict=True):
            arrays = [to_numpy(item) for item in per_rank]
            rank = arrays[0].ndim
            spec = jax.sharding.PartitionSpec("rank") if rank else jax.sharding.PartitionSpec()
            shape = arrays[0].shape
            if rank:
                shape = (shape[0] * len(inputs), *shape[1:])
            sharding = jax.sharding.NamedSharding(mesh, spec)
            parts = [jax.device_put(a, d) for a, d in zip(arrays, devices, strict=True)]
            given.append(jax.make_array_from_single_device_arrays(shape, sharding, parts))
        results = executable.execute_sharded(given).disassemble_into_single_device_arrays()
        outputs = [[to_torch(result[at]) for result in results] for at in range(len(inputs))]
    return outputs, aliases
