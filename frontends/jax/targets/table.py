"""Targets of XLA's compile-only GPU and TPU compilers, and the packages that they need.

The idea: targets are data (``targets.toml`` and the descriptions next to it); whether one can be
compiled for here depends on installed distributions and their versions.  Nothing is imported or
loaded to find out.

    find("h100").missing        # "" where the extra `gpu` is installed
"""

from __future__ import annotations

import functools
import importlib.util
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flint.capturing.targets import Target
from flint.errors import UsageError
from flint.host.environment import DISTRIBUTION, installed_version, satisfies

_FOLDER = Path(__file__).parent
_MEMORY = re.compile(r"\bdevice_memory_size: (\d+)")
_CORES = re.compile(r"\bcore_count: (\d+)")
_CAPABILITY = re.compile(r"cuda_compute_capability \{\s*major: (\d+)(?:\s+minor: (\d+))?")

#: Distributions of the GPU extra that must have jaxlib's own version, and one that need not.
_GPU_PLUGIN = ("jax-cuda12-pjrt", "jax-cuda12-plugin")
_GPU_TOOLS = "nvidia-cuda-nvcc-cu12"
#: libtpu releases whose compile-only topologies are known to work with jaxlib 0.10.2.
_LIBTPU = ">=0.0.42,<0.0.43"

#: Platform -> (module of the plugin, library in its folder).
_LIBRARIES = {
    "cuda": ("jax_plugins.xla_cuda12", "xla_cuda_plugin.so"),
    "tpu": ("libtpu", "libtpu.so"),
}
#: Platform -> the distributions that compile for it.
COMPILERS = {"cuda": ("jaxlib", "jax-cuda12-pjrt"), "tpu": ("jaxlib", "libtpu")}
#: Platform -> extra of this distribution that installs it.
EXTRAS = {"cuda": "gpu", "tpu": "tpu"}


@dataclass(frozen=True, slots=True)
class CompileTarget:
    """A target as this folder's table describes it.

    Attributes:
        name: as on the command line.
        platform: "cuda" or "tpu".
        row: the table's row.
    """

    name: str
    platform: str
    row: Mapping[str, Any]

    @property
    def config(self) -> str:
        """The description that XLA's GPU compiler reads, a text proto."""
        return (_FOLDER / str(self.row["config"])).read_text(encoding="utf-8")

    @property
    def memory(self) -> int:
        """Bytes of memory of a device."""
        if self.platform == "tpu":
            return int(self.row["memory"])
        found = _MEMORY.search(self.config)
        return int(found[1]) if found else 0

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability of a GPU; None of a TPU."""
        if self.platform == "tpu":
            return None
        found = _CAPABILITY.search(self.config)
        return (int(found[1]), int(found[2] or 0)) if found else None

    @property
    def cores(self) -> int | None:
        """Multiprocessors of a GPU; None of a TPU."""
        found = None if self.platform == "tpu" else _CORES.search(self.config)
        return int(found[1]) if found else None

    @property
    def largest(self) -> int | None:
        """Devices of the largest mesh; None for any."""
        if self.platform != "tpu":
            return None
        return int(self.row["chips"]) * int(self.row["devices_per_chip"])


@functools.cache
def table() -> Mapping[str, CompileTarget]:
    """All targets by name."""
    rows = tomllib.loads((_FOLDER / "targets.toml").read_text(encoding="utf-8"))
    return {name: CompileTarget(name, str(row["platform"]), row) for name, row in rows.items()}


def targets() -> tuple[Target, ...]:
    """All targets, with the missing packages for each."""
    missing = {platform: missing_for(platform) for platform in EXTRAS}
    return tuple(
        Target(
            name=item.name,
            device=str(item.row["device"]),
            platform=item.platform,
            memory=item.memory,
            accelerator=str(item.row["accelerator"]),
            system=str(item.row["system"]),
            largest=item.largest,
            missing=missing[item.platform],
        )
        for item in table().values()
    )


def plugin(platform: str) -> Path | None:
    """The library of a platform's plugin, None if it is not installed."""
    module, library = _LIBRARIES[platform]
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / library
    return path if path.is_file() else None


def missing_for(platform: str) -> str:
    """The obstacle to compiling for a platform, with advice; "" if there is none."""
    return _missing_tpu() if platform == "tpu" else _missing_gpu()


def _missing_gpu() -> str:
    jaxlib = installed_version("jaxlib") or "none"
    absent = [n for n in (*_GPU_PLUGIN, _GPU_TOOLS) if installed_version(n) is None]
    if absent or plugin("cuda") is None:
        return _install("gpu", absent)
    for name in _GPU_PLUGIN:
        version = installed_version(name) or ""
        if not satisfies(version, f"=={jaxlib}"):
            return (
                f"{name} {version} and jaxlib {jaxlib} do not match: pip install '{name}=={jaxlib}'"
            )
    return ""


def _missing_tpu() -> str:
    version = installed_version("libtpu")
    if version is None or plugin("tpu") is None:
        return _install("tpu", ["libtpu"])
    if not satisfies(version, _LIBTPU):
        return (
            f"libtpu {version} and jaxlib {installed_version('jaxlib')} are not known to work "
            f"together: pip install 'libtpu{_LIBTPU}'"
        )
    return ""


def _install(extra: str, absent: list[str]) -> str:
    which = f" ({', '.join(absent)} not installed)" if absent else ""
    return f"the extra `{extra}` is needed: pip install '{DISTRIBUTION}[{extra}]'{which}"


def tpu_topology(target: CompileTarget, devices: int) -> tuple[str, tuple[int, int, int]]:
    """libtpu's name for a slice of that many devices, and the chips of one host of it.

    Raises:
        UsageError: no slice has that many devices; the text names the nearest sizes.
    """
    row = target.row
    shape = slice_shape(target, devices, int(row["devices_per_chip"]))
    host = (1, 1, 1) if max(shape) == 1 else (2, 2, 1)
    return f"{row['topology']}:{'x'.join(map(str, shape))}", host


def slice_shape(target: CompileTarget, devices: int, per_chip: int) -> tuple[int, ...]:
    """Chips of a TPU slice of that many devices along each dim of its torus.

    A host has 2x2 chips, so both of its dims are even, except in a slice of one chip.  Of the
    possible shapes, the one with the smallest longest dim is taken, as in Cloud TPU's standard
    slices: 4x4x8 for 128 chips, 8x16 for 128 chips of a 2D family.

    Args:
        target: a TPU.
        devices: of the slice.
        per_chip: devices of a chip.

    Raises:
        UsageError: no slice has that many devices; the text names the nearest sizes.
    """
    dims, most = int(target.row["dims"]), int(target.row["chips"])
    shape = _slice(devices / per_chip, dims, most)
    if shape is not None:
        return shape
    sizes = [chips * per_chip for chips in range(1, most + 1) if _slice(chips, dims, most)]
    below = max((size for size in sizes if size < devices), default=0)
    above = min((size for size in sizes if size > devices), default=0)
    near = " and ".join(f"{size:,}" for size in (below, above) if size)
    raise UsageError(
        f"target {target.name}: no slice has {devices:,} devices; the nearest sizes are {near}"
    )


def _slice(chips: float, dims: int, largest: int) -> tuple[int, ...] | None:
    """The shape of a slice, None if none has that many chips."""
    if chips != int(chips) or not 1 <= chips <= largest:
        return None
    chips = int(chips)
    if chips == 1:
        return (1,) * dims
    shapes: list[tuple[int, ...]] = []
    for x in range(2, int(chips**0.5) + 2, 2):
        if chips % x:
            continue
        rest = chips // x
        if dims == 2:
            if x <= rest and rest % 2 == 0:
                shapes.append((x, rest))
            continue
        for y in range(x, int(rest**0.5) + 2, 2):
            z, left = divmod(rest, y)
            if not left and (z >= y or chips == 4):
                shapes.append((x, y, z))
    return min(shapes, key=lambda shape: (max(shape), -min(shape)), default=None)
