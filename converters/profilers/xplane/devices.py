"""Which rank each device of a profile is, by the device assignment in the executed module.

The idea: JAX gives a module its devices in the order of the mesh, by ids that count over all hosts.
Host devices are profiled by these ids; GPUs are numbered within their host, so that profiles of
several hosts must say which host is which.

    Devices.of(module).rank(2048)      # 4: the fifth in the mesh
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flint.errors import FlintError
from flint.hlo import hlo_pb2 as pb


@dataclass(frozen=True)
class Devices:
    """Devices of a program.

    Attributes:
        ids: of every rank, in order; () where the module does not say.
    """

    ids: tuple[int, ...]

    @classmethod
    def of(cls, module: pb.HloModuleProto) -> Devices:
        """Those of a module."""
        partitions = module.device_assignment.computation_devices
        by_partition = [partition.replica_device_ids for partition in partitions]
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
