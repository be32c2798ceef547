"""Look at a training step from Python: its collectives, its loops, its largest kernels.

python examples/look_at_a_step.py models/saved/llama3_8b_scan_fsdp64_tp8.mlirbc 64,8 data,model
"""

from __future__ import annotations

import argparse
from collections import Counter

import flint
from flint.graph.partners import partners
from flint.passes import apply


def main() -> None:
    """Print the collectives of the step, its loops and the largest kernel of each loop."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", help="a saved per-device program: StableHLO or HLO")
    parser.add_argument("mesh", help="sizes of the mesh axes, for example 64,8")
    parser.add_argument("axes", help="their names, for example data,model")
    given = parser.parse_args()
    shape = tuple(int(size) for size in given.mesh.split(","))
    workload = flint.convert(given.path, mesh=shape, axes=given.axes.split(","))

    traffic: Counter[tuple[str, str]] = Counter()
    for graph, times in workload.graph.walk():
        for node in graph:
            item = node.communication
            if item is not None:
                traffic[item.kind, partners(item, workload.mesh)] += times * item.bytes_in
    for (kind, over), size in traffic.most_common():
        print(f"{kind:20} over {over:24} {size / 2**20:12,.1f} MiB per rank and step")

    kernels = apply(workload.graph, "kernel")
    for node in kernels:
        if node.loop is not None:
            body = node.loop.body
            largest = max(body, key=lambda kernel: kernel.work.flops)
            print(
                f"loop of {node.loop.trip_count} x {len(body)} kernels; the largest is "
                f"{largest.op} with {largest.work.flops / 1e9:,.1f} GFLOP, "
                f"used by {[user.op for user in largest.users]}"
            )


if __name__ == "__main__":
    main()
