"""Systems: the clusters that costs are computed for, as data files.

The idea: everything a cost model needs to know about hardware stands in small TOML files, each
figure with its unit and its source: ``["3.35 TB/s", "NVIDIA H100 datasheet"]`` or just
``"3.35 TB/s"``.  Ours are named (``dgx-h100``) and share the descriptions of their accelerators; a
user's is given by its path and has the same form.

    system = load_system("dgx-h100")
    system.accelerator.matmul["bf16"]        # 989.4e12 FLOP/s
    [tier.bandwidth for tier in system.network]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from flint.cost.description import Description, Stated, Unfit
from flint.cost.units import parse
from flint.errors import UsageError
from flint.graph.tensor_types import DTYPES

#: Element types that a rate can be given for: a program's, narrow floats of any format, and TF32,
#: which is how f32 is computed.
_RATED: Final = frozenset((*DTYPES, "f8", "f6", "f4", "tf32"))
#: Link arrangements that network simulators know.
TOPOLOGIES: Final = ("Ring", "Switch", "FullyConnected")
#: How collectives can run (see ``flint.cost.collectives``).
ALGORITHMS: Final = ("ring", "tree", "halving-doubling", "direct", "in-network")
#: Those that libraries use where a description names none.
_USUAL: Final = {
    "Ring": ("ring",),
    "Switch": ("ring", "tree", "halving-doubling"),
    "FullyConnected": ("ring", "direct"),
}
#: Those that an arrangement of links can run: a torus has neighbours only, and what has no switch
#: reduces in none.
_POSSIBLE: Final = {
    "Ring": ("ring",),
    "Switch": ALGORITHMS,
    "FullyConnected": ("ring", "tree", "halving-doubling", "direct"),
}

_FOLDER: Final = Path(__file__).with_name("systems")
_ACCELERATORS: Final = Path(__file__).with_name("accelerators")
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Tile:
    """An output tile that one unit computes at a time.

    Attributes:
        m, n: its size.
        efficiency: of the unit's attainable rate, between 0 and 1.
    """

    m: int
    n: int
    efficiency: float


@dataclass(frozen=True, slots=True)
class KernelModel:
    """What turns peaks into times of kernels (see ``flint.cost.kernels``).

    Attributes:
        units: what tiles are shared out over: streaming multiprocessors, matrix units.
        tiles: that kernels are made of.
        k_step: the sum over k advances in steps of this.
        matmul_efficiency, memory_efficiency: attainable share of the peaks, at most 1.
        latency: seconds until a kernel's first results, whatever its size.
        attention_efficiency: share of a product's rate that fused attention reaches, at most 1.
        eager_attention_efficiency: that of the kernels that PyTorch brings itself; by default the
            same.
        beside_communication: speed of kernels while the device communicates, at most 1.
    """

    units: int
    tiles: tuple[Tile, ...]
    k_step: int
    matmul_efficiency: float
    memory_efficiency: float
    latency: float
    attention_efficiency: float = 1.0
    eager_attention_efficiency: float = 1.0
    beside_communication: float = 1.0


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
        kernel: what keeps kernels from the peaks.
        stated: every figure as it stands, with its source.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    launch_overhead: float
    transcendental: float
    matmul: Mapping[str, float]
    vector: Mapping[str, float]
    kernel: KernelModel
    stated: tuple[Stated, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of the network, as a device sees it.

    Attributes:
        name: what it is.
        size: devices reached through it; 0 is any number.
        topology: one of ``TOPOLOGIES``.
        bandwidth: bytes per second and direction: per device; of a Ring per link.  The device's
            links of a FullyConnected share it: one to each other device or, above a smaller tier,
            to that of its place in each other node.
        latency: seconds per message.
        efficiency: attainable share of the bandwidth, at most 1.
        rings: of a Ring the dims of the torus: a device has two links in each, above a smaller tier
            to the devices of its place in the neighbouring nodes.
        algorithms: how collectives can run on it.
        closed: of a Ring: a dim of the torus is closed to a ring where its size is a multiple of
            this, else it is an open row.
        oversubscription: of a Switch: bandwidth of the devices that share an uplink, together, over
            that of the uplink; 1 where all can send at once at full rate.
    """

    name: str
    size: int
    topology: str
    bandwidth: float
    latency: float
    efficiency: float = 1.0
    rings: int = 1
    algorithms: tuple[str, ...] = ("ring",)
    closed: int = 1
    oversubscription: float = 1.0
    ports: str = "own"
    protocols: tuple[tuple[float, float], ...] = ()

    @property
    def rate(self) -> float:
        """Bytes per second that a device, of a Ring a link, sends while all others send too."""
        return self.bandwidth * self.efficiency / self.oversubscription

    def by_protocol(self, number: int) -> Tier:
        """The tier as it is with one of its protocols; with 0, or one too many, as described."""
        if not 0 < number <= len(self.protocols):
            return self
        latency, share = self.protocols[number - 1]
        return replace(self, latency=latency, efficiency=self.efficiency * share)


@dataclass(frozen=True, slots=True)
class System:
    """A cluster.

    Attributes:
        name: short name.
        description: one line.
        accelerator: the device.
        network: tiers, innermost first; the last one reaches everybody.
        stated: the network's figures as they stand, with their sources.
    """

    name: str
    description: str
    accelerator: Accelerator
    network: tuple[Tier, ...]
    stated: tuple[Stated, ...] = field(default=(), compare=False)

    def tier(self, span: int) -> Tier:
        """The innermost tier that reaches ``span`` consecutive devices."""
        return next(tier for tier in self.network if tier.size == 0 or tier.size >= span)


def system_names() -> tuple[str, ...]:
    """The systems that come with Flint."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def accelerator_names() -> tuple[str, ...]:
    """The accelerators that a system description can name."""
    return tuple(sorted(path.stem for path in _ACCELERATORS.glob("*.toml")))


def load_system(name_or_path: str | Path) -> System:
    """A system by name, or from a TOML file.

    Raises:
        UsageError: no such name or file, or a file that does not describe a system.
    """
    text = str(name_or_path)
    path = _FOLDER / f"{text}.toml" if text in system_names() else Path(text)
    try:
        return _system(_content(path))
    except FileNotFoundError:
        near = get_close_matches(text.lower(), system_names(), n=1)
        raise UsageError(
            f"no system is called {text!r} and there is no such file"
            f"{f'; did you mean {near[0]}?' if near else ''}; there are: "
            f"{', '.join(system_names())}"
        ) from None
    except Unfit as error:
        raise UsageError(f"{path}: {error}") from None


def _content(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UsageError(f"{path}: too large for a system description")
        return tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not TOML: {error}") from error


def _system(content: dict[str, Any]) -> System:
    stated: list[Stated] = []
    table = Description(content, "", stated)
    accelerator = table.take("accelerator")
    tiers = table.take("network")
    if not isinstance(tiers, list) or not tiers:
        raise Unfit("network must be a list of tiers: [[network]]")
    system = System(
        name=table.text("name"),
        description=table.text("description"),
        accelerator=_accelerator(accelerator),
        network=tuple(
            _tier(Description(tier, f"network[{i}]", stated)) for i, tier in enumerate(tiers)
        ),
        stated=tuple(stated),
    )
    table.done()
    if system.network[0].ports == "below":
        raise Unfit("network[0].ports: there is no tier below the first one")
    sizes = [tier.size for tier in system.network]
    if sizes[-1] != 0 or 0 in sizes[:-1] or sizes[:-1] != sorted(set(sizes[:-1])):
        raise Unfit(f"network sizes must grow and end with 0 (any number), they are {sizes}")
    return system


def _accelerator(content: Any) -> Accelerator:
    if isinstance(content, str):
        names = accelerator_names()
        if content not in names:
            known = ", ".join(names)
            raise Unfit(f"accelerator {content!r} is unknown (a table or one of {known})")
        content = _content(_ACCELERATORS / f"{content}.toml")
    stated: list[Stated] = []
    table = Description(content, "accelerator", stated)
    accelerator = Accelerator(
        name=table.text("name"),
        memory_bytes=int(table.quantity("memory", "bytes")),
        memory_bandwidth=table.quantity("memory_bandwidth", "bytes/s"),
        launch_overhead=table.quantity("launch_overhead", "seconds", zero=True),
        transcendental=table.quantity("transcendental", "operations/s"),
        matmul=_rates(table.table("matmul")),
        vector=_rates(table.table("vector")),
        kernel=_kernel(table.table("kernel")),
        stated=tuple(stated),
    )
    table.done()
    return accelerator


def _kernel(table: Description) -> KernelModel:
    attention = table.share("attention_efficiency", 1.0)
    kernel = KernelModel(
        units=table.count("units"),
        tiles=_tiles(table),
        k_step=table.count("k_step"),
        matmul_efficiency=table.share("matmul_efficiency"),
        memory_efficiency=table.share("memory_efficiency"),
        latency=table.quantity("latency", "seconds", zero=True),
        attention_efficiency=attention,
        eager_attention_efficiency=table.share("eager_attention_efficiency", attention),
        beside_communication=table.share("beside_communication", 1.0),
    )
    table.done()
    return kernel


def _tiles(table: Description) -> tuple[Tile, ...]:
    listed = table.figure("tiles")
    if not isinstance(listed, list) or not listed or not all(map(_is_tile, listed)):
        raise Unfit(f"{table.where}tiles must be a list of [m, n, efficiency between 0 and 1]")
    return tuple(Tile(m, n, float(share)) for m, n, share in listed)


def _is_tile(item: Any) -> bool:
    if not isinstance(item, list) or [type(part) for part in item[:2]] != [int, int]:
        return False
    sizes, share = item[:2], item[2:]
    fits = len(share) == 1 and type(share[0]) in (int, float) and 0 < share[0] <= 1
    return fits and all(0 < size < 1 << 20 for size in sizes)


def _rates(table: Description) -> dict[str, float]:
    for key in table.entries():
        if key not in _RATED:
            near = get_close_matches(key, sorted(_RATED), n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise Unfit(f"{table.where}{key} is not an element type{meant}")
    rates = {key: table.quantity(key, "operations/s") for key in table.entries()}
    if "f32" not in rates:
        raise Unfit(f"{table.where}f32 is missing (it stands in for types that are not listed)")
    return rates


def _tier(table: Description) -> Tier:
    topology = table.choice("topology", TOPOLOGIES)
    tier = Tier(
        name=table.text("name"),
        size=table.count("size", zero=True),
        topology=topology,
        bandwidth=table.quantity("bandwidth", "bytes/s"),
        latency=table.quantity("latency", "seconds", zero=True),
        efficiency=table.share("efficiency", 1.0),
        rings=table.count("rings", 1),
        algorithms=_algorithms(table, topology),
        closed=table.count("closed", 1),
        oversubscription=table.factor("oversubscription", 1.0),
        ports=table.choice("ports", ("own", "below"), "own"),
        protocols=_protocols(table),
    )
    table.done()
    for name, default in (("rings", 1), ("closed", 1)):
        if tier.topology != "Ring" and getattr(tier, name) != default:
            raise Unfit(f"{table.where}{name} is for a Ring, this is a {tier.topology}")
    if tier.topology != "Switch" and tier.oversubscription != 1:
        raise Unfit(f"{table.where}oversubscription is for a Switch, this is a {tier.topology}")
    for name in tier.algorithms:
        if name not in _POSSIBLE[tier.topology]:
            raise Unfit(f"{table.where}algorithms: {name} does not run on a {tier.topology}")
    if tier.topology == "FullyConnected" and tier.size == 0:
        raise Unfit(f"{table.where}size must be given for a FullyConnected tier")
    return tier


def _protocols(table: Description) -> tuple[tuple[float, float], ...]:
    if "protocols" not in table.entries():
        return ()
    listed = table.figure("protocols")
    try:
        found = tuple((parse(latency, "seconds"), float(share)) for latency, share in listed)
    except (TypeError, ValueError):
        found = ()
    if not found or not all(0 <= latency < 1 and 0 < share <= 1 for latency, share in found):
        raise Unfit(f"{table.where}protocols must be a list of [latency, share of the bandwidth]")
    return found


def _algorithms(table: Description, topology: str) -> tuple[str, ...]:
    if "algorithms" not in table.entries():
        return _USUAL[topology]
    listed = table.take("algorithms")
    if not isinstance(listed, list) or not listed or any(a not in ALGORITHMS for a in listed):
        raise Unfit(f"{table.where}algorithms must be some of {', '.join(ALGORITHMS)}")
    return tuple(listed)
