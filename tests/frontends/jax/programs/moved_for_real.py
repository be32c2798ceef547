"""What JAX copies between devices when an array is put on others, beside what is planned for it.

Prints for each case the copies of a real ``jax.device_put`` on host devices, whether the host's
value of the array was used, and the plan: [[source, target, bytes], ...], sorted, and the same.
"""

from __future__ import annotations

import json

import jax
import numpy as np
from jax._src import array
from jax._src.interpreters import pxla
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from flint.frontends.jax.programs.moved_arrays import plan_of

devices = np.array(jax.devices())
left, right, small = (Mesh(devices[part], ("x",)) for part in (slice(4), slice(4, 8), slice(6, 8)))
grid, other = (Mesh(devices[part].reshape(2, 2), ("a", "b")) for part in (slice(4), slice(4, 8)))
every = Mesh(devices, ("x",))
CASES = [
    (NamedSharding(left, P("x")), NamedSharding(right, P("x"))),
    (NamedSharding(left, P()), NamedSharding(right, P())),
    (NamedSharding(left, P()), NamedSharding(small, P())),
    (NamedSharding(grid, P("a")), NamedSharding(small, P("x"))),
    (NamedSharding(grid, P("a", "b")), NamedSharding(other, P("a", "b"))),
    (NamedSharding(every, P()), SingleDeviceSharding(devices[2])),
    (NamedSharding(right, P()), SingleDeviceSharding(devices[0])),
    (SingleDeviceSharding(devices[3]), NamedSharding(right, P("x"))),
    (SingleDeviceSharding(devices[3]), NamedSharding(every, P())),
    (SingleDeviceSharding(devices[3]), SingleDeviceSharding(devices[5])),
    (NamedSharding(left, P()), NamedSharding(Mesh(devices[3::-1], ("x",)), P())),
    (NamedSharding(left, P("x")), NamedSharding(right, P(None, "x"))),
    (NamedSharding(left, P("x")), SingleDeviceSharding(devices[0])),
]
copied: list[list[int]] = []
of_host: list[int] = []
put, copy = pxla.batched_device_put, array.xc.batched_copy_array_to_devices_with_sharding


def noted(source: object, target: object, size: int) -> None:
    if source != target:
        copied.append([source.id, target.id, size])


def putting(aval, sharding, parts, targets, *rest, **named):
    for part, target in zip(parts, targets, strict=True):
        if isinstance(part, jax.Array):
            noted(next(iter(part.devices())), target, part.nbytes)
        else:
            of_host.append(target.id)
    return put(aval, sharding, parts, targets, *rest, **named)


def copying(arrays, targets, *rest):
    for one, devices in zip(arrays, targets, strict=True):
        shards = {shard.device: shard.data.nbytes for shard in one.addressable_shards}
        for source, target in zip(one.sharding._device_assignment, devices, strict=True):
            noted(source, target, shards[source])
    return copy(arrays, targets, *rest)


found = []
for source, target in CASES:
    x = jax.device_put(np.ones((8, 16), np.float32), source)
    copied.clear(), of_host.clear()
    pxla.batched_device_put, array.xc.batched_copy_array_to_devices_with_sharding = putting, copying
    jax.block_until_ready(jax.device_put(x, target))
    pxla.batched_device_put, array.xc.batched_copy_array_to_devices_with_sharding = put, copy
    plan = plan_of(x.shape, 32, source, target)
    planned = sorted(map(list, plan.pieces))
    found.append([[sorted(copied), bool(of_host)], [planned, plan.through_host]])
print(json.dumps(found))
