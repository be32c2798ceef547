"""Whether the simulation ranks meshes of one model as they were measured (``meshes.csv``).

    python benchmarks/accuracy/ranking.py

The idea: a group is a model on as many devices of one campaign, its rows are meshes.  What counts
is the time of a sequence.  Of the pairs that were measured to be more than 5 % apart, how many are
in the right order; and how much longer than the best does the mesh take that one would choose.
Steps of ``bench_cluster`` are seconds for the tokens that a device takes in a second.
"""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("meshes.csv")
#: Pairs that are closer tell nothing.
APART = 1.05


class Mesh(NamedTuple):
    """Seconds of a sequence on a mesh."""

    name: str
    measured: float
    simulated: float


def groups(path: Path = FILE) -> dict[tuple[str, str, str], list[Mesh]]:
    """Meshes by campaign, model and devices."""
    found: dict[tuple[str, str, str], list[Mesh]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            each = (float(row[name]) / float(row["sequences"]) for name in _SECONDS)
            found[row["campaign"], row["model"], row["devices"]].append(Mesh(row["mesh"], *each))
    return dict(found)


_SECONDS = ("measured_s", "simulated_s")


def pairs(found: Mapping[object, Sequence[Mesh]]) -> list[bool]:
    """Of each pair that was measured to be apart, whether it is in the right order."""
    return [
        (a.measured < b.measured) == (a.simulated < b.simulated)
        for meshes in found.values()
        for a, b in itertools.combinations(meshes, 2)
        if max(a.measured, b.measured) > APART * min(a.measured, b.measured)
    ]


def behind(meshes: Sequence[Mesh]) -> float:
    """By how much the mesh with the least simulated time is slower than the best one."""
    chosen = min(meshes, key=lambda mesh: mesh.simulated)
    return chosen.measured / min(mesh.measured for mesh in meshes) - 1


def main() -> None:
    """Print the groups and the count."""
    show(groups())


def show(found: Mapping[tuple[str, str, str], Sequence[Mesh]]) -> None:
    """Print groups and how many pairs are in the right order."""
    for name, meshes in found.items():
        print(*name, sep=", ")
        for mesh in sorted(meshes, key=lambda mesh: mesh.measured):
            print(f"  {mesh.name:18} measured {mesh.measured:.4g}, simulated {mesh.simulated:.4g}")
        print(f"  chosen: {behind(meshes):.1%} behind the best")
    right = pairs(found)
    print(f"{sum(right)} of {len(right)} pairs in the right order")


if __name__ == "__main__":
    main()
