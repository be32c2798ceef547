"""Which rank each device of a profile is, by the device assignment in the executed module.

The idea: JAX gives a module its devices in the order of the mesh, by ids that count over all hosts.
Host devices are profiled by these ids; GPUs are numbered within their host, so that profiles of
several hosts must say which host is which.

    Devices.of(proto).rank(2048)      # 4: the fifth in the mesh
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flint.errors import FlintError
from flint.hlo.messages import is_wrapped

#: Field numbers: HloProto.hlo_module, HloModuleProto.device_assignment,
#: DeviceAssignmentProto.computation_devices, ComputationDevice.replica_device_ids
#: (xla/service/hlo.proto, xla/xla_data.proto).
_MODULE, _ASSIGNMENT, _COMPUTATION, _IDS = 1, 15, 3, 1


@dataclass(frozen=True)
class Devices:
    """Devices of a program.

    Attributes:
        ids: of every rank, in order; () where the module does not say.
    """

    ids: tuple[int, ...]

    @classmethod
    def of(cls, proto: bytes) -> Devices:
        """Those of a serialised module.

        Raises:
            ValueError: it is damaged.
        """
        module = proto
        if is_wrapped(proto):
            module = next((value for value in messages(proto, _MODULE)), b"")
        by_partition = [
            [number for part in messages(computation, _IDS) for number in varints(part)]
            for assignment in messages(module, _ASSIGNMENT)
            for computation in messages(assignment, _COMPUTATION)
        ]
        if len({len(ids) for ids in by_partition}) != 1:
            return cls(())
        # A rank is replica * partitions + partition, as XLA flattens ids.
        found = tuple(number for ids in zip(*by_partition, strict=True) for number in ids)
        return cls(found if len(set(found)) == len(found) else ())

    def rank(self, device: int) -> int:
        """The rank of a device by its id; the id itself where the module does not have it."""
        return self.ids.index(device) if device in self.ids else device


def hosts_of(files: Sequence[Path], backends: set[str], world: int | None) -> list[int]:
    """The first device id of each of several files, one per host.

    Raises:
        FlintError: nothing tells it.
    """
    if backends == {"cpu"}:  # ids count over all hosts
        return [0] * len(files)
    stems = [file.name.removesuffix(".xplane.pb") for file in files]
    numbers = [int(stem) if re.fullmatch(r"\d{1,6}", stem) else -1 for stem in stems]
    whole = world is not None and world % len(files) == 0
    if backends != {"gpu"} or sorted(numbers) != list(range(len(files))) or not whole:
        raise FlintError(
            f"{files[0].parent}: profiles of {len(files)} hosts ({', '.join(stems[:4])}), each "
            "of which numbers its devices from 0, so which host has which ranks is unknown: for "
            "GPUs, name the files 0.xplane.pb, 1.xplane.pb ... by jax.process_index()"
        )
    assert world is not None
    return [number * (world // len(files)) for number in numbers]


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Fields of a protobuf message: bytes of length-delimited ones, numbers of varints.

    Raises:
        ValueError: it is cut off or is no message.
    """
    view, at = memoryview(data), 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or at + size > len(data):
            raise ValueError(f"no field at byte {at}")
        yield tag >> 3, bytes(view[at : at + size])
        at += size


def messages(data: bytes, field: int) -> Iterator[bytes]:
    """What stands in a field, each time that it stands there (raises as ``fields``)."""
    for number, value in fields(data):
        if number == field and isinstance(value, bytes):
            yield value


def varints(data: bytes) -> Iterator[int]:
    """Packed numbers (raises as ``fields``)."""
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise ValueError("cut off")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"no number at byte {at}")
