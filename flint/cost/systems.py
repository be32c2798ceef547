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
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from flint.cost.description import Description, Stated, Unfit
from flint.cost.hardware import Accelerator, KernelModel, System, Tier, Tile
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
