"""An XLA CPU client of any number of devices, of which few are local.

The idea: a CPU client creates a thread for every local device, and a machine has a limited number
of threads.  A process of a cluster has few local devices and knows all others from data that the
processes exchange through a key-value store.  So the client is created as the first process of two;
the second one, which does not exist, has all the other devices, according to the store.  Nothing
ever runs on those, so its absence does not matter.

    client = make_client(1_048_576, folder)
    len(client.devices())          # 1048576, one of them addressable

Private: ``jaxlib._jax.get_distributed_runtime_service``, the keys of the exchange and the messages
``DeviceProto`` and ``LocalTopologyProto``, which xla/pjrt/distributed/protocol.proto describes, as
of jaxlib 0.10.2.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxlib import _jax, xla_client

from flint.host.temporary import temporary_folder

Numbers = npt.NDArray[np.int64]

#: The key under which the first process looks up the devices of the second one.
_TOPOLOGY_KEY = "cpu:local_topology/cpu/1"
#: Address of the key-value store, in a separate folder.
_STORE = "unix:store"
_CONNECT_SECONDS = 60
#: Stores of the existing clients: XLA ends the process when a client's store is deleted.
_KEPT: list[Any] = []


def make_client(devices: int, folder: Path, own: int = 1, compiles: bool = True) -> Any:
    """The client.  Its devices are numbered from 0, the local ones first.

    Args:
        devices: number of devices.
        folder: for the socket of the key-value store; other users should not be able to write
            there.
        own: number of local devices, which can run computations.
        compiles: whether it compiles programs over all devices; if so, those over several local
            devices that communicate cannot run: the process would end by SIGSEGV.

    Raises:
        RuntimeError: the exchange differs from its known form, or no socket can be created.
    """
    # A socket's path has at most 107 characters, a temporary folder's may have more.
    with contextlib.chdir(folder):
        service = _jax.get_distributed_runtime_service(_STORE, 1)
        store = _jax.get_distributed_runtime_client(_STORE, 0, init_timeout=_CONNECT_SECONDS)
        store.connect()
    _KEPT.append((service, store))
    store.key_value_set_bytes(_TOPOLOGY_KEY, others(own, devices))
    client: Any = xla_client.make_cpu_client(
        asynchronous=False,
        num_devices=own,
        node_id=0,
        num_nodes=2,
        distributed_client=store,
        collectives=_jax.make_mpi_collectives() if compiles else None,
    )
    if len(client.devices()) != devices:
        raise RuntimeError(f"{len(client.devices())} devices instead of {devices}")
    return client


def client_of(devices: int, own: int = 1, compiles: bool = True) -> Any:
    """The client, in a folder that is not needed later.

    Raises:
        RuntimeError: as ``make_client``.
    """
    with temporary_folder() as folder:
        return make_client(devices, folder, own, compiles)


def use_devices_of_another_process(devices: int) -> None:
    """Make ``jax.devices()`` return that many CPU devices, of which one can run computations.

    Raises:
        RuntimeError: jax already has its client.
    """
    from jax._src import xla_bridge

    xla_bridge.register_backend_factory(
        "cpu", lambda: client_of(devices), priority=0, fail_quietly=False
    )


def others(first: int, devices: int) -> bytes:
    """A ``LocalTopologyProto``: the devices from ``first`` on are process 1's."""
    return _process(1, np.arange(first, devices))


def _process(node: int, numbers: Numbers) -> bytes:
    return _integer(1, node) + _bytes(2, b"process %d" % node) + _devices(numbers)


def _devices(numbers: Numbers) -> bytes:
    """``DeviceProto`` (field 3) of each: 1, place in its process, and 4, number.

    Messages of equal length are rows of one table: a million separate ones take seconds.
    """
    places = np.arange(len(numbers))
    sizes = _varint_sizes(places), _varint_sizes(numbers)
    ends = np.flatnonzero(np.diff(sizes[0]) | np.diff(sizes[1])) + 1
    rows = []
    for rows_of in np.split(places, ends):
        first, second = (int(size[rows_of[0]]) if len(rows_of) else 0 for size in sizes)
        table = np.empty((len(rows_of), 4 + first + second), np.uint8)
        table[:, :3] = 3 << 3 | 2, 2 + first + second, 1 << 3
        table[:, 3 : 3 + first] = _varints(rows_of, first)
        table[:, 3 + first] = 4 << 3
        table[:, 4 + first :] = _varints(numbers[rows_of], second)
        rows.append(table.tobytes())
    return b"".join(rows)


def _varint_sizes(values: Numbers) -> Numbers:
    sizes = np.ones_like(values)
    for bits in range(7, 35, 7):
        sizes += values >> bits > 0
    return sizes


def _varints(values: Numbers, size: int) -> npt.NDArray[np.uint8]:
    """Each value in ``size`` bytes: seven bits a byte, the top bit in all but the last."""
    table = (values[:, None] >> (7 * np.arange(size)) & 0x7F).astype(np.uint8)
    table[:, :-1] |= 0x80
    return table


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    values = np.array([value])
    return _varints(values, int(_varint_sizes(values)[0])).tobytes()
