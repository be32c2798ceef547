"""The place of each device in a cluster: its host, its slice, its place in the torus.

The idea: devices are numbered host by host, and hosts slice by slice, as ``jax.devices()`` lists
them.  So each question is answered by arithmetic, for a million devices as for eight.

    layout = layout_of(512, "tpu-v5p", hosts=None, slices=2)
    layout.host_of(300), layout.slice_of(300), layout.coords_of(300)       # 75, 1, (2, 0, 2)
"""

from __future__ import annotations

from dataclasses import dataclass

from flint.errors import UsageError
from flint.frontends.jax.targets.table import slice_shape, table
from flint.host.readable import counted

#: Chips of a TPU host, along the torus' dims.
_TPU_HOST = (2, 2, 1)
#: Devices of a host if no kind of device is named.
_PER_HOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A cluster.

    Attributes:
        devices: number of devices.
        hosts: number of hosts; each has one process.
        slices: number of parts with a separate fast network; None: as the program asks.
        platform: JAX's name of it: "cpu", "gpu" or "tpu".
        kind: the device's name of its kind.
        memory: bytes of a device; None if no kind of device is named.
        shape: chips of a slice along the dims of its torus; empty for GPUs.
        cores: devices of a chip.
        target: the kind of device, a name of ``flint targets``.
        capability: compute capability of an NVIDIA GPU, major and minor.
        multiprocessors: of such a GPU.
    """

    devices: int
    hosts: int = 1
    slices: int | None = None
    platform: str = "cpu"
    kind: str = "cpu"
    memory: int | None = None
    shape: tuple[int, ...] = ()
    cores: int = 1
    target: str | None = None
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None

    def __post_init__(self) -> None:
        for count, what in ((self.hosts, "host"), (self.slices or 1, "slice")):
            if count < 1 or self.devices % count:
                raise UsageError(
                    f"{counted(self.devices, 'device')} do not divide into {counted(count, what)}"
                )

    @property
    def per_host(self) -> int:
        """Devices of a host."""
        return self.devices // self.hosts

    def host_of(self, device: int) -> int:
        """The host, and so the process, of a device."""
        return min(device // self.per_host, self.hosts - 1)

    def slice_of(self, device: int) -> int:
        """The slice of a device."""
        slices = self.slices or 1
        return min(device // (self.devices // slices), slices - 1)

    def core_of(self, device: int) -> int:
        """The index of the device within its chip."""
        return device % self.cores

    def coords_of(self, device: int) -> tuple[int, int, int]:
        """Place of a TPU's chip in its slice: hosts x first, and chips within their host alike."""
        chip = device % (self.devices // (self.slices or 1)) // self.cores
        shape = (*self.shape, 1, 1, 1)[:3]
        tile = [min(own, size) for own, size in zip(_TPU_HOST, shape, strict=True)]
        inside, place, whole = [], [], []
        for size in tile:
            chip, own = divmod(chip, size)
            inside.append(own)
        for size, own in zip(shape, tile, strict=True):
            chip, host = divmod(chip, size // own)
            place.append(host)
        whole = [p * t + i for p, t, i in zip(place, tile, inside, strict=True)]
        return whole[0], whole[1], whole[2]

    def with_slices(self, slices: int) -> Layout:
        """The same devices in that many slices.

        Raises:
            UsageError: as ``layout_of``.
        """
        return layout_of(self.devices, self.target, self.hosts, slices)


def layout_of(
    devices: int, target: str | None, hosts: int | None = None, slices: int | None = None
) -> Layout:
    """The cluster of that many devices.

    Args:
        devices: how many.
        target: the kind of device, a name of ``flint targets``; None: CPUs.
        hosts: how many; None: as many devices on each as machines of this kind have.
        slices: how many; None: as the program asks.

    Raises:
        UsageError: devices that do not divide into hosts or slices, or a TPU slice of a size that
            does not exist.
    """
    if target is None:
        return Layout(devices=devices, hosts=hosts or _hosts(devices, _PER_HOST), slices=slices)
    found = table()[target]
    row = found.row
    if found.platform != "tpu":
        return Layout(
            devices=devices,
            hosts=hosts or _hosts(devices, int(row["devices_per_host"])),
            slices=slices,
            platform="gpu",
            kind=str(row["kind"]),
            memory=found.memory,
            target=target,
            capability=found.capability,
            multiprocessors=found.cores,
        )
    cores = int(row["jax_devices_per_chip"])
    parts = slices or 1
    if devices % parts:
        raise UsageError(
            f"{counted(devices, 'device')} do not divide into {counted(parts, 'slice')}"
        )
    shape = slice_shape(found, devices // parts, cores)
    chips = 4 if max(shape) > 1 else 1
    return Layout(
        devices=devices,
        hosts=hosts or _hosts(devices, chips * cores),
        slices=slices,
        platform="tpu",
        kind=str(row["kind"]),
        memory=found.memory * int(row["devices_per_chip"]) // cores,
        shape=shape,
        cores=cores,
        target=target,
    )


def _hosts(devices: int, per_host: int) -> int:
    """Hosts of that many devices each, or one host if they do not divide."""
    return devices // per_host if devices % per_host == 0 else 1
