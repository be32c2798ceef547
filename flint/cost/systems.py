"""Systems: the clusters that costs are computed for, as data files.

The idea: everything a cost model needs to know about hardware stands in one small TOML file, each
figure with its source in a comment.  Ours are named (``dgx-h100``); a user's is given by its path.

    system = load_system("dgx-h100")
    system.accelerator.matmul["bf16"]        # 989.4e12 FLOP/s
    [tier.bandwidth for tier in system.network]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flint.errors import UsageError

#: Link arrangements that network simulators know.
TOPOLOGIES: Final = ("Ring", "Switch", "FullyConnected")

_FOLDER: Final = Path(__file__).with_name("systems")
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device.

    Attributes:
        name: what it is sold as.
        memory_bytes: capacity.
        memory_bandwidth: bytes per second.
        launch_overhead: seconds that every kernel takes besides its work.
        transcendental: function evaluations per second.
        matmul: FLOP/s of matrix units by element type.
        vector: FLOP/s of vector units by element type.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    launch_overhead: float
    transcendental: float
    matmul: Mapping[str, float]
    vector: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of the network, as a device sees it.

    Attributes:
        name: what it is.
        size: devices reached through it; 0 is any number.
        topology: one of ``TOPOLOGIES``.
        bandwidth: bytes per second, per device and direction.
        latency: seconds per message.
    """

    name: str
    size: int
    topology: str
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class System:
    """A cluster.

    Attributes:
        name: short name.
        description: one line.
        accelerator: the device.
        network: tiers, innermost first; the last one reaches everybody.
    """

    name: str
    description: str
    accelerator: Accelerator
    network: tuple[Tier, ...]

    def tier(self, span: int) -> Tier:
        """The innermost tier that reaches ``span`` consecutive devices."""
        return next(tier for tier in self.network if tier.size == 0 or tier.size >= span)


def system_names() -> tuple[str, ...]:
    """The systems that come with Flint."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load_system(name_or_path: str | Path) -> System:
    """A system by name, or from a TOML file.

    Raises:
        UsageError: no such name or file, or a file that does not describe a system.
    """
    text = str(name_or_path)
    path = _FOLDER / f"{text}.toml" if text in system_names() else Path(text)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path}: too large for a system description")
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"no system is called {text!r} and there is no such file; there are: "
            f"{', '.join(system_names())}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    try:
        return _system(tomllib.loads(content))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: is not TOML: {error}") from error
    except _Unfit as error:
        raise UsageError(f"{path}: {error}") from None


class _Unfit(Exception):
    """A description that lacks something; the message says what."""


class _Table:
    """A TOML table whose entries are taken by name and checked; what is left over is an error."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise _Unfit(f"{where or 'the file'} must be a table")
        self.content: dict[str, Any] = dict(content)
        self.where = f"{where}." if where else ""

    def take(self, key: str) -> Any:
        if key not in self.content:
            raise _Unfit(f"{self.where}{key} is missing")
        return self.content.pop(key)

    def text(self, key: str) -> str:
        value = self.take(key)
        if not isinstance(value, str) or not value:
            raise _Unfit(f"{self.where}{key} must be a text, not {value!r}")
        return value

    def number(self, key: str, *, zero: bool = False) -> float:
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Unfit(f"{self.where}{key} must be a number, not {value!r}")
        if not (value > 0 or (zero and value == 0)) or value == float("inf"):
            raise _Unfit(f"{self.where}{key} must be {'at least' if zero else 'above'} 0")
        return float(value)

    def done(self) -> None:
        if self.content:
            raise _Unfit(f"{self.where}{next(iter(self.content))} is unknown")


def _system(content: dict[str, Any]) -> System:
    table = _Table(content, "")
    tiers = table.take("network")
    if not isinstance(tiers, list) or not tiers:
        raise _Unfit("network must be a list of tiers: [[network]]")
    system = System(
        name=table.text("name"),
        description=table.text("description"),
        accelerator=_accelerator(_Table(table.take("accelerator"), "accelerator")),
        network=tuple(_tier(_Table(tier, f"network[{i}]")) for i, tier in enumerate(tiers)),
    )
    table.done()
    sizes = [tier.size for tier in system.network]
    if sizes[-1] != 0 or 0 in sizes[:-1] or sizes[:-1] != sorted(set(sizes[:-1])):
        raise _Unfit(f"network sizes must grow and end with 0 (any number), they are {sizes}")
    return system


def _accelerator(table: _Table) -> Accelerator:
    rates = {unit: _rates(_Table(table.take(unit), f"accelerator.{unit}")) for unit in
             ("matmul", "vector")}  # fmt: skip
    accelerator = Accelerator(
        name=table.text("name"),
        memory_bytes=int(table.number("memory_bytes")),
        memory_bandwidth=table.number("memory_bandwidth"),
        launch_overhead=table.number("launch_overhead", zero=True),
        transcendental=table.number("transcendental"),
        **rates,
    )
    table.done()
    return accelerator


def _rates(table: _Table) -> dict[str, float]:
    rates = {key: table.number(key) for key in tuple(table.content)}
    if "f32" not in rates:
        raise _Unfit(f"{table.where}f32 is missing (it stands in for types that are not listed)")
    return rates


def _tier(table: _Table) -> Tier:
    tier = Tier(
        name=table.text("name"),
        size=int(table.number("size", zero=True)),
        topology=table.text("topology"),
        bandwidth=table.number("bandwidth"),
        latency=table.number("latency", zero=True),
    )
    table.done()
    if tier.topology not in TOPOLOGIES:
        raise _Unfit(f"{table.where}topology must be one of {', '.join(TOPOLOGIES)}")
    return tier
