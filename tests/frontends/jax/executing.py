"""Child process: steps run for real on host devices, and what the profiler saw of them.

    python executing.py STEP...

Prints JSON: step -> [[kind, groups or pairs, calls, result bytes], ...] for one device and one run,
from executed thunks; groups and sizes stand in the executable's HLO under a thunk's name.
"""

from __future__ import annotations

import collections
import glob
import importlib
import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=16 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=2400"
)
sys.path.insert(0, str(Path(__file__).parent))

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding

KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
BYTES = {"f32": 4, "bf16": 2, "s32": 4, "u32": 4, "pred": 1, "f16": 2, "s64": 8}
TYPE = re.compile(r"(\w+)\[([\d,]*)\]")
GROUPS = re.compile(
    r"replica_groups=(\{(?:\{[\d,]+\},?)*\}|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?)"
)
MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\]T\(([\d,]+)\)\))? \{([^}]*)\}"
)
AXIS = re.compile(r"'(\w+)'(?:=(\d+))?(?::\((\d+)\)(\d+))?")
PAIRS = re.compile(r"source_target_pairs=(\{(?:\{[\d,]+\},?)*\})")
INSTRUCTION = re.compile(r"%?([\w.\-]+) = (\(.*?\)|\S+) (\w[\w\-]*)\(")


def real(leaf, mesh):
    sharding = NamedSharding(mesh, leaf.sharding.spec)
    generator = np.random.default_rng(0)
    return jax.device_put(generator.normal(size=leaf.shape).astype(leaf.dtype), sharding)


def numbers(text):
    return [int(number) for number in text.split(",")]


def along_axes(mesh, dims, order, axes):
    """Groups along axes of a mesh: ``'a'=4,'b'=2`` and ``'a'`` or, of a part, ``'a':(2)2``.

    The mesh's devices are in order, or (dims, order) an iota of other dims transposed.
    """
    sizes = {name: int(size) for name, size, _, _ in AXIS.findall(mesh)}
    parts = {name: (1, size) for name, size in sizes.items()}
    along = []
    for name, _, before, size in AXIS.findall(axes):
        assert name not in along
        along.append(name)
        if size:
            parts[name] = int(before), int(size)
    shape, grouped = [], []
    for name, total in sizes.items():
        before, size = parts[name]
        if name in along:
            grouped.append(len(shape) + 1)
        shape += [before, size, total // before // size]
    devices = np.arange(math.prod(shape))
    if dims:
        devices = devices.reshape(numbers(dims)).transpose(numbers(order))
    devices = devices.reshape(shape)
    members = math.prod(shape[dim] for dim in grouped)
    rows = np.moveaxis(devices, grouped, range(-len(grouped), 0)).reshape(-1, members)
    return sorted(sorted(row) for row in rows.tolist())


def members(line, devices):
    """Groups of a collective, or pairs of a permute, as sorted lists."""
    found = PAIRS.search(line)
    if along := MESH.search(line):
        return along_axes(*along.groups())
    text = found[1] if found else GROUPS.search(line)[1]
    if text.startswith("["):
        shape, _, rest = text[1:].partition("]<=[")
        dims, _, order = rest.partition("]")
        devices = np.arange(math.prod(numbers(dims))).reshape(numbers(dims))
        if order:
            devices = devices.transpose(numbers(order[2:-1]))
        return sorted(sorted(row) for row in devices.reshape(numbers(shape)).tolist())
    lists = [numbers(part) for part in re.findall(r"\{([\d,]+)\}", text)]
    return sorted(lists) if found else sorted(map(sorted, lists or [range(devices)]))


def collectives(hlo, devices):
    """Instruction -> (kind, groups as text, bytes of its results)."""
    found = {}
    for line in hlo.splitlines():
        match = INSTRUCTION.search(line)
        if match and match[3] in KINDS:
            parts = TYPE.findall(match[2])
            size = [math.prod(map(int, filter(None, dims.split(",")))) for _, dims in parts]
            item = [BYTES[kind] for kind, _ in parts]
            size = sum(a * b for a, b in zip(size, item, strict=True))
            found[match[1]] = match[3], str(members(line, devices)), size
    return found


def executed(step):
    shape, axes, setup, _, settings = step._flint
    settings = dict(settings)
    types = settings.pop("axis_types", jax.sharding.AxisType.Auto)
    types = (types,) * len(shape)
    devices = np.array(jax.devices()[: math.prod(shape)]).reshape(shape)
    mesh = Mesh(devices, axes, axis_types=types)
    arguments = setup(AbstractMesh(shape, axes, axis_types=types))
    with jax.set_mesh(mesh):
        arguments = jax.tree.map(lambda leaf: real(leaf, mesh), arguments)
        function = step.__wrapped__
        jitted = function if hasattr(function, "lower") else jax.jit(function, **settings)
        compiled = jitted.lower(*arguments).compile()
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(compiled(*arguments))
            events = executed_ops(folder)
    known = collectives(compiled.as_text(), devices.size)
    totals = collections.defaultdict(lambda: [0, 0])
    for name in filter(known.__contains__, events):
        kind, groups, size = known[name]
        totals[kind, groups][0] += 1
        totals[kind, groups][1] += size
    return [[*key, *total] for key, total in totals.items()]


def executed_ops(folder):
    """Names of the ops that device 0 has executed, once per execution."""
    [file] = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    names = []
    for plane in jax.profiler.ProfileData.from_file(file).planes:
        for line in plane.lines:
            for event in line.events:
                if event.name.startswith("end:"):
                    continue
                stats = dict(event.stats)
                if int(stats.get("device_ordinal", -1)) == 0:
                    names.append(str(stats.get("hlo_op", "")))
    return names


def found(name):
    """``module:attribute``; a bare attribute is one of ``steps``."""
    module, _, attribute = name.rpartition(":")
    return getattr(importlib.import_module(module or "steps"), attribute)


def main(names):
    print(json.dumps({name: executed(found(name)) for name in names}))


if __name__ == "__main__":
    main(sys.argv[1:])
