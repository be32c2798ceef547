"""Systems: the clusters that costs are computed for, as data files.

The idea: everything a cost model needs to know about hardware is in small TOML files, each figure
with its unit and its source: ``["3.35 TB/s", "NVIDIA H100 datasheet"]`` or just ``"3.35 TB/s"``.
Ours have names (``dgx-h100``) and share the descriptions of their accelerators; a user's file is
given by its path and has the same form.

    system = load_system("dgx-h100")
    system.accelerator.matmul["bf16"]        # 989.4e12 FLOP/s
    [tier.bandwidth for tier in system.network]
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from flint.cost.accelerators import accelerator_file, accelerator_of
from flint.cost.description import Description, Stated, Unfit, read_table, read_text
from flint.cost.hardware import System, Tier
from flint.cost.units import parse
from flint.errors import UsageError

#: Topologies that network simulators know.
TOPOLOGIES: Final = ("Ring", "Switch", "FullyConnected")
#: How collectives can run (see ``flint.cost.collectives``).
ALGORITHMS: Final = ("ring", "tree", "halving-doubling", "direct", "in-network")
#: The algorithms that libraries use, for descriptions that name none.
_USUAL: Final = {
    "Ring": ("ring",),
    "Switch": ("ring", "tree", "halving-doubling"),
    "FullyConnected": ("ring", "direct"),
}
#: The algorithms that a topology can run: a torus has only neighbours, and only a switch can
#: reduce.
_POSSIBLE: Final = {
    "Ring": ("ring",),
    "Switch": ALGORITHMS,
    "FullyConnected": ("ring", "tree", "halving-doubling", "direct"),
}

_FOLDER: Final = Path(__file__).with_name("systems")


def system_names() -> tuple[str, ...]:
    """The systems that come with Flint."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def system_with(accelerator: str) -> str | None:
    """The first of those systems with an accelerator; None if there is none."""
    return next(
        (name for name in system_names() if _table(name)["accelerator"] == accelerator), None
    )


def _table(name: str) -> dict[str, Any]:
    return read_table(_FOLDER / f"{name}.toml")


def load_system(name_or_path: str | Path) -> System:
    """A system by name, or from a TOML file.

    Raises:
        UsageError: no such name or file, or a file that does not describe a system.
    """
    text = str(name_or_path)
    path = _FOLDER / f"{text}.toml" if text in system_names() else Path(text)
    try:
        return _system(read_table(path), path.parent)
    except FileNotFoundError:
        near = get_close_matches(text.lower(), system_names(), n=1)
        raise UsageError(
            f"unknown system {text!r}, and no such file"
            f"{f'; did you mean {near[0]}?' if near else ''}; choose from: "
            f"{', '.join(system_names())}"
        ) from None
    except Unfit as error:
        raise UsageError(f"{path}: {error}") from None


def whole_description(name_or_path: str) -> str:
    """A system's description as written, with the accelerator's own in place of its name.

    Raises:
        UsageError: its accelerator cannot be read.
    """
    ours = name_or_path in system_names()
    path = _FOLDER / f"{name_or_path}.toml" if ours else Path(name_or_path)
    accelerator = read_table(path)["accelerator"]
    text = read_text(path)
    if not isinstance(accelerator, str):
        return text
    table = read_text(accelerator_file(accelerator, path.parent))
    inside = "[accelerator]\n" + re.sub(
        r"^(\[\[?)(?=\w)", r"\1accelerator.", table, flags=re.MULTILINE
    )
    # A table ends where the next one begins: so it goes before the first.
    stated = re.compile(rf"^accelerator\s*=\s*(['\"]){re.escape(accelerator)}\1.*\n", re.MULTILINE)
    head, network, tail = stated.sub("", text, count=1).partition("[[network]]")
    return f"{head}{inside}\n{network}{tail}"


def _system(content: dict[str, Any], folder: Path) -> System:
    stated: list[Stated] = []
    table = Description(content, "", stated)
    accelerator = table.take("accelerator")
    tiers = table.take("network")
    if not isinstance(tiers, list) or not tiers:
        raise Unfit("network must be a list of tiers: [[network]]")
    system = System(
        name=table.text("name"),
        description=table.text("description"),
        accelerator=accelerator_of(accelerator, folder),
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
        raise Unfit(f"network sizes must increase and end with 0 (any number), not {sizes}")
    return system


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
        beside_communication=table.share("beside_communication")
        if "beside_communication" in table.entries()
        else 0.0,
    )
    table.done()
    for name, default in (("rings", 1), ("closed", 1)):
        if tier.topology != "Ring" and getattr(tier, name) != default:
            raise Unfit(f"{table.where}{name} is for a Ring, but this is a {tier.topology}")
    if tier.topology != "Switch" and tier.oversubscription != 1:
        raise Unfit(f"{table.where}oversubscription is for a Switch, but this is a {tier.topology}")
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
