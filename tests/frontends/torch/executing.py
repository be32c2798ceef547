"""Emitted modules, executed by XLA on the CPU, in a process of their own.

The tests' own process stays without XLA's threads, since captures fork it.
"""

from __future__ import annotations

import concurrent.futures
import functools
import io
import multiprocessing

import ml_dtypes
import numpy as np
import torch

from flint.stablehlo.read.bindings import ir, parse
from tests.support.children import fast_emitters

ALIASING = "tf.aliasing_output"

#: Ops whose groups are of partitions when they have a channel, of replicas when they have none.
AMONG_PARTITIONS = {
    "stablehlo.all_to_all", "stablehlo.collective_broadcast", "stablehlo.collective_permute",
}  # fmt: skip


def to_numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    if tensor.dtype == torch.float8_e4m3fn:
        return tensor.contiguous().view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn)
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


@functools.cache
def worker():
    """The process that runs modules; it ends with the tests."""
    spawned = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(1, mp_context=spawned)


def execute(data, inputs):
    """Outputs of a module for one rank: a list of tensors, and its aliases."""
    arrays = [[to_numpy(item) for item in inputs]]
    outputs, aliases = worker().submit(arrays_of, arrays, data).result()
    return [to_torch(array) for array in outputs[0]], aliases


def execute_on(inputs, data):
    """Outputs of a module on as many devices as there are lists of inputs; in this process."""
    arrays = [[to_numpy(item) for item in items] for items in inputs]
    outputs, aliases = arrays_of(arrays, data)
    return [[to_torch(array) for array in items] for items in outputs], aliases


def arrays_of(inputs, data):
    """``execute_on`` of numpy arrays."""
    import jax
    from jax._src import compiler
    from jaxlib import _jax

    with jax.enable_x64(True):
        devices = jax.devices("cpu")[: len(inputs)]
        code, aliases = as_replicas(data)
        order = np.arange(len(inputs)).reshape(-1, 1)
        options = compiler.get_compile_options(len(inputs), 1, device_assignment=order)
        debug = options.executable_build_options.debug_options
        debug.xla_backend_optimization_level = 0
        debug.xla_llvm_disable_expensive_passes = True
        options.env_option_overrides = list(fast_emitters().items())
        executable = devices[0].client.compile_and_load(
            code, _jax.DeviceList(tuple(devices)), options
        )
        mesh = jax.sharding.Mesh(np.array(devices), ("rank",))
        given = []
        for arrays in zip(*inputs, strict=True):
            shape = arrays[0].shape
            spec = jax.sharding.PartitionSpec("rank") if shape else jax.sharding.PartitionSpec()
            if shape:
                shape = (shape[0] * len(inputs), *shape[1:])
            sharding = jax.sharding.NamedSharding(mesh, spec)
            parts = [jax.device_put(a, d) for a, d in zip(arrays, devices, strict=True)]
            given.append(jax.make_array_from_single_device_arrays(shape, sharding, parts))
        results = executable.execute_sharded(given).disassemble_into_single_device_arrays()
        outputs = [[np.array(result[at]) for result in results] for at in range(len(inputs))]
    return outputs, aliases
