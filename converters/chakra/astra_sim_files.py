"""ASTRA-sim's configuration beside the traces: system, network, remote memory, communicator groups.

The idea: the traces carry our durations, so the system file turns the simulator's own roofline
off (and still names its keys, which it reads regardless).  The network is the mesh reversed, each
dim on the innermost tier of the system that reaches its span; every list has one entry per dim,
because a shorter one makes the simulator leave out the dims behind it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from flint.cost.systems import System
from flint.network_dims import NetworkDims

#: Links -> how (all-reduce, all-gather, reduce-scatter) and all-to-all run on them.  Rings work
#: for any number of ranks; halving-doubling needs powers of two and knows no all-to-all.
_IMPLEMENTATION: Final = {
    "Ring": ("ring", "ring"),
    "Switch": ("ring", "direct"),
    "FullyConnected": ("direct", "direct"),
}

_SPLITS: Final = 4


def write_astra_sim_files(
    folder: Path,
    dims: NetworkDims,
    system: System,
    groups: dict[str, list[int]],
    *,
    smallest_gather: int,
) -> int:
    """Write the four files.

    Args:
        folder: an existing folder.
        dims: the network.
        system: the cluster.
        groups: id to ranks.
        smallest_gather: bytes of the smallest all-gather (0: there is none); it stalls when it is
            split into more parts than it has bytes.

    Returns:
        Bytes written.
    """
    splits = 1 if 0 < smallest_gather < _SPLITS else _SPLITS
    texts = {
        "system.json": json.dumps(_system(dims, system, splits), indent=2) + "\n",
        "network.yml": network_text(dims, system),
        "remote_memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}) + "\n",
        "comm_groups.json": groups_text(groups),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return sum(map(len, texts.values()))


def groups_text(groups: dict[str, list[int]]) -> str:
    """The comm-groups file: one line per group."""
    lines = (
        f'"{key}": {json.dumps(ranks, separators=(",", ":"))}' for key, ranks in groups.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n" if groups else "{}\n"


def network_text(dims: NetworkDims, system: System) -> str:
    """The network file: bandwidth in GiB/s (2^30 bytes), latency in ns.

    It is JSON and by that YAML: the simulator came with networks in YAML and then with the same
    ones in JSON (astra-sim/astra-sim, examples/network/analytical).
    """
    tiers = [
        system.tier(size * stride)
        for size, stride in zip(dims.npus_count, dims.strides, strict=True)
    ]
    rows: dict[str, list[object]] = {
        "topology": [tier.topology for tier in tiers],
        "npus_count": list(dims.npus_count),
        "bandwidth": [float(f"{tier.bandwidth / 2**30:.6g}") for tier in tiers],
        "latency": [float(f"{tier.latency * 1e9:.6g}") for tier in tiers],
    }
    lines = [f'"{key}": {json.dumps(row)}' for key, row in rows.items()]
    return "{" + ",\n ".join(lines) + "}\n"


def _system(dims: NetworkDims, system: System, splits: int) -> dict[str, object]:
    topologies = [
        system.tier(size * stride).topology
        for size, stride in zip(dims.npus_count, dims.strides, strict=True)
    ]
    reducing = [_IMPLEMENTATION[topology][0] for topology in topologies]
    accelerator = system.accelerator
    return {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": splits,
        "all-reduce-implementation": reducing,
        "all-gather-implementation": reducing,
        "reduce-scatter-implementation": reducing,
        "all-to-all-implementation": [_IMPLEMENTATION[topology][1] for topology in topologies],
        "collective-optimization": "baseline",
        "roofline-enabled": 0,
        "peak-perf": accelerator.matmul.get("bf16", accelerator.matmul["f32"]) / 1e12,
        "local-mem-bw": accelerator.memory_bandwidth / 1e9,
        "replay-only": 0,
        "trace-enabled": 0,
    }
