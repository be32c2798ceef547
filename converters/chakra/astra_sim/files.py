"""ASTRA-sim's configuration for the traces: system, network, remote memory, communicator groups.

The idea: the traces have our durations, so the system file turns the simulator's own roofline off
(but includes its keys, which are read anyway).  The network is the mesh reversed, each dim on the
innermost tier of the system that reaches its span; every list has one entry per dim, because the
simulator ignores dims beyond the end of a shorter list.

Bandwidths and latencies are those of the embedded engine (``flint.cost``): what a gather over the
dim's ranks reaches on their links, with both directions of a torus and the hierarchy of a dim that
is longer than a node.  The simulator's ring of n ranks takes n - 1 messages

    hops x latency + (S/n) / bandwidth          hops: 2 through a switch, else 1

so the bandwidth is chosen such that (n - 1)/n S takes as long as the embedded engine's rings, and
the latency is theirs divided by n - 1 messages and their hops.  ``_COLLECTIVES`` keeps the
simulator from adding to that.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Final

from flint.cost.collectives import ring_steps
from flint.cost.fitting import fit
from flint.cost.hardware import System, Tier
from flint.cost.placement import TierUse, place
from flint.errors import UsageError
from flint.mesh.groups import StridedGroups
from flint.mesh.network_dims import NetworkDims

#: Links -> how (all-reduce, all-gather, reduce-scatter) and all-to-all run on them.  Rings work for
#: any number of ranks; halving-doubling needs powers of two and has no all-to-all.  Through a
#: switch a rank sends the messages of an all-to-all one after another ("direct1"), because in the
#: congestion-unaware simulator simultaneous messages do not share its port: 8 ranks would be up to
#: 7 times too fast.
_IMPLEMENTATION: Final = {
    "Ring": ("ring", "ring"),
    "Switch": ("ring", "direct1"),
    "FullyConnected": ("direct", "direct"),
}

#: Links that a message between neighbours passes, as the simulator counts them
#: (astra-sim/astra-network-analytical, congestion_unaware/{Ring,Switch,FullyConnected}.cpp).
_HOPS: Final = {"Ring": 1, "Switch": 2, "FullyConnected": 1}

#: Collectives as the embedded engine runs them (astra-sim/astra-sim, astra-sim/system/Sys.cc): in
#: one piece, because pieces that run one after another wait for every message's latency again;
#: from dim to dim on what the dim before has left, because "baseline" reduces the whole buffer in
#: every dim; one nanosecond at the end of each message, because with none it aborts or hangs; and
#: with local memory so fast that a reduction adds no time to that of its messages.
_COLLECTIVES: Final = {
    "scheduling-policy": "FIFO",
    "endpoint-delay": 1,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "collective-optimization": "localBWAware",
    "local-mem-bw": 10**8,
}


def write_astra_sim_files(
    folder: Path,
    dims: NetworkDims,
    system: System,
    groups: dict[str, list[int]],
    whole: NetworkDims | None = None,
    *,
    copies: bool = False,
) -> int:
    """Write the four files.

    Args:
        folder: an existing folder.
        dims: the network.
        system: the cluster.
        groups: id to ranks.
        whole: the network that this one represents (see ``flint.workload.reducing``).
        copies: whether traces have copies to and from the host's memory.

    Returns:
        Bytes written.
    """
    texts = {
        "system.json": json.dumps(_system(whole or dims, system), indent=2) + "\n",
        "network.yml": network_text(dims, system, whole),
        "remote_memory.json": json.dumps(_remote_memory(system, copies)) + "\n",
        "comm_groups.json": groups_text(groups),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return sum(map(len, texts.values()))


def _remote_memory(system: System, copies: bool) -> dict[str, str | int]:
    """The host's memory, which each device reaches over a separate link."""
    if not copies:
        return {"memory-type": "NO_MEMORY_EXPANSION"}
    accelerator = system.accelerator
    return {
        "memory-type": "PER_NPU_MEMORY_EXPANSION",
        "remote-mem-latency": round(accelerator.kernel.latency * 1e9),  # ns
        "remote-mem-bw": max(1, round(accelerator.host_bandwidth / 1e9)),  # GB/s
    }


def groups_text(groups: dict[str, list[int]]) -> str:
    """The comm-groups file: one line per group."""
    lines = (
        f'"{key}": {json.dumps(ranks, separators=(",", ":"))}' for key, ranks in groups.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n" if groups else "{}\n"


def network_text(dims: NetworkDims, system: System, whole: NetworkDims | None = None) -> str:
    """The network file: bandwidth in GiB/s (2^30 bytes), latency in ns.

    Dims that represent longer ones have links with which a ring takes the same time.

    It is JSON and therefore also YAML: the simulator first came with networks in YAML and then with
    the same ones in JSON (astra-sim/astra-sim, examples/network/analytical).
    """
    real = whole or dims
    tiers = [
        system.tier(size * stride)
        for size, stride in zip(real.npus_count, real.strides, strict=True)
    ]
    sizes = zip(real.npus_count, real.strides, tiers, dims.npus_count, strict=True)
    links = [
        link_of(StridedGroups(real.world, ((size, stride),)), tier, system, few)
        for size, stride, tier, few in sizes
    ]
    rows: dict[str, list[object]] = {
        "topology": [tier.topology for tier in tiers],
        "npus_count": list(dims.npus_count),
        "bandwidth": [float(f"{bandwidth / 2**30:.6g}") for bandwidth, _ in links],
        "latency": [float(f"{latency * 1e9:.6g}") for _, latency in links],
    }
    lines = [f'"{key}": {json.dumps(row)}' for key, row in rows.items()]
    return "{" + ",\n ".join(lines) + "}\n"


def link_of(
    groups: StridedGroups, tier: Tier, system: System, few: int | None = None
) -> tuple[float, float]:
    """Bytes per second and seconds per hop of a dim.

    Args:
        groups: the ranks along the dim.
        tier: the tier whose links the network file names.
        system: the cluster, as described.
        few: number of ranks along the dim in the simulator; all by default.
    """
    if groups.size < 2:
        return tier.rate, tier.latency
    few = few or groups.size
    with suppress(UsageError):  # ranks that do not fill nodes evenly are placed in order
        system, _ = fit(system, groups.world)
    messages = 1 if tier.topology == "FullyConnected" else few - 1
    bandwidth, latency = math.inf, 0.0
    for profile in place(groups, system).profiles:
        seconds = sum(level.share / level.members / level.bandwidth for level in profile)
        bandwidth = min(bandwidth, (few - 1) / few / seconds)
        waited = sum(_messages(level) * level.tier.latency for level in profile)
        latency = max(latency, waited / messages / _HOPS[tier.topology])
    if tier.topology == "FullyConnected":
        bandwidth /= few - 1  # its messages go to all ranks at the same time, over separate links
    return bandwidth, latency


def _messages(level: TierUse) -> int:
    """Messages one after another; over a full mesh all at the same time, with a single latency."""
    return 1 if level.tier.topology == "FullyConnected" else ring_steps(level)


def _system(dims: NetworkDims, system: System) -> dict[str, object]:
    topologies = [
        system.tier(size * stride).topology
        for size, stride in zip(dims.npus_count, dims.strides, strict=True)
    ]
    reducing = [_IMPLEMENTATION[topology][0] for topology in topologies]
    matmul = system.accelerator.matmul
    return {
        **_COLLECTIVES,
        "all-reduce-implementation": reducing,
        "all-gather-implementation": reducing,
        "reduce-scatter-implementation": reducing,
        "all-to-all-implementation": [_IMPLEMENTATION[topology][1] for topology in topologies],
        "roofline-enabled": 0,
        "peak-perf": matmul.get("bf16", matmul["f32"]) / 1e12,
        "replay-only": 0,
        "trace-enabled": 0,
    }
