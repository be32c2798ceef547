"""An XLA CPU client of any number of devices, of which one is here.

The idea: a CPU client makes a thread for every device of its own, and a machine has only so many.
One process of a cluster has few devices of its own and knows of all others by the topology that the
processes exchange through a key-value store.  So the client is told that it is one process of two;
the other one, which does not exist, has all the other devices, as the store says.  Nothing is ever
run, so nobody misses it.

    client = make_client(1_048_576, Path("/tmp/scratch"))
    len(client.devices())          # 1048576, one of them addressable

Private: ``jaxlib._jax.get_distributed_runtime_service``, the keys of the exchange and the messages
``DeviceProto``, ``LocalTopologyProto``, ``GlobalTopologyProto`` (xla/pjrt/distributed/protocol.proto),
as of jaxlib 0.10.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxlib import _jax, xla_client

#: Where a process with node number 1 looks for everybody's devices.
_TOPOLOGY_KEY = "cpu:global_topology/cpu"
#: Number of the one device that is here: XLA numbers a process's devices from 2048 x its node.
OWN_DEVICE = 2048
_CONNECT_SECONDS = 60
#: Stores of the clients that there are: XLA ends the process when a client's store goes away.
_KEPT: list[Any] = []


def device_numbers(devices: int) -> list[int]:
    """Global numbers of the devices of ``make_client(devices)``, ascending, ``OWN_DEVICE`` in it."""
    others = list(range(devices - 1)) if devices <= OWN_DEVICE else list(range(devices))
    return others if devices > OWN_DEVICE else [*others, OWN_DEVICE]


def make_client(devices: int, folder: Path) -> Any:
    """The client.

    Args:
        devices: how many.
        folder: for the socket of the key-value store; its path must be short (100 characters).

    Raises:
        RuntimeError: the exchange is not as it is known to be.
    """
    address = f"unix:{folder / 'store'}"
    service = _jax.get_distributed_runtime_service(address, 1)
    store = _jax.get_distributed_runtime_client(address, 0, init_timeout=_CONNECT_SECONDS)
    store.connect()
    store.key_value_set_bytes(_TOPOLOGY_KEY, topology(device_numbers(devices)))
    client: Any = xla_client.make_cpu_client(
        asynchronous=False,
        num_devices=1,
        node_id=1,
        num_nodes=2,
        distributed_client=store,
        collectives=_jax.make_mpi_collectives(),
    )
    if len(client.devices()) != devices:
        raise RuntimeError(f"{len(client.devices())} devices instead of {devices}")
    _KEPT.append((service, store))
    return client


def topology(numbers: list[int]) -> bytes:
    """A ``GlobalTopologyProto``: ``OWN_DEVICE`` in process 1, every other device in process 0."""
    others = [number for number in numbers if number != OWN_DEVICE]
    return _bytes(1, _process(0, others)) + _bytes(1, _process(1, [OWN_DEVICE]))


def _process(node: int, numbers: list[int]) -> bytes:
    devices = [_bytes(3, _device(place, number)) for place, number in enumerate(numbers)]
    return _integer(1, node) + _bytes(2, b"process %d" % node) + b"".join(devices)


def _device(place: int, number: int) -> bytes:
    name, kind = b"CpuDevice(id=%d)" % number, b"cpu:%d" % number
    return (
        _integer(1, place)
        + _integer(4, number)
        + b"\x42\x03cpu"
        + _bytes(9, name)
        + _bytes(10, kind)
    )


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80,)) + _varint(value >> 7)
