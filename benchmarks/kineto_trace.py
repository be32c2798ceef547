"""Kineto traces of any size, in the form of a real one: reading time and memory by size.

    python benchmarks/kineto_trace.py 100        # write 100 MB, read it, say seconds and megabytes

A layer is a linear and an element-wise op in autograd's wrapping, every launch with its runtime
call, kernel and flow events, a collective per layer with its record; names, arguments and numbers
of fields are as PyTorch 2.x writes them on CUDA with ``record_shapes``.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAIN, _STREAM, _NCCL = 4711, 7, 24


def events(layers: int, step: int, number: int, clock: float) -> Iterator[dict[str, Any]]:
    """One step's events; ``number`` counts external ids and correlations."""

    def op(name: str, ts: float, dur: float, external: int, **args: Any) -> dict[str, Any]:
        return {
            "ph": "X", "cat": "cpu_op", "name": name, "pid": _MAIN, "tid": _MAIN,
            "ts": round(ts, 3), "dur": dur,
            "args": {"External id": external, "Record function id": external, "Ev Idx": external}
            | args,
        }  # fmt: skip

    def launched(name: str, ts: float, external: int, stream: int) -> Iterator[dict[str, Any]]:
        yield {
            "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": _MAIN,
            "tid": _MAIN, "ts": round(ts, 3), "dur": 5.1,
            "args": {"External id": external, "cbid": 211, "correlation": external},
        }  # fmt: skip
        yield {
            "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream,
            "ts": round(ts + 40, 3), "dur": 18.25,
            "args": {
                "External id": external, "queued": 0, "device": 0, "context": 1, "stream": stream,
                "correlation": external, "registers per thread": 96, "shared memory": 49152,
                "blocks per SM": 1.939394, "warps per SM": 15.515152, "grid": [16, 16, 1],
                "block": [256, 1, 1], "est. achieved occupancy %": 24,
            },
        }  # fmt: skip
        for phase, tid, when in (("s", _MAIN, ts), ("f", stream, ts + 40)):
            yield {
                "ph": phase, "id": external, "pid": _MAIN, "tid": tid, "ts": round(when, 3),
                "cat": "ac2g", "name": "ac2g",
            }  # fmt: skip

    shapes = {
        "Input Dims": [[4096, 4096], [4096, 14336]], "Input type": ["c10::BFloat16"] * 2,
        "Input Strides": [[4096, 1], [1, 4096]], "Concrete Inputs": ["", ""],
    }  # fmt: skip
    begin = clock
    for layer in range(layers):
        for name, inner in (("aten::linear", "aten::mm"), ("aten::silu", "aten::silu")):
            number += 3
            yield op(name, clock, 60.0, number, **shapes)
            yield op("aten::view", clock + 2, 1.5, number + 1, **shapes)
            yield op(inner, clock + 5, 50.0, number + 2, **shapes)
            yield from launched(
                "void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_nn>"
                "(cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_nn::Params)",
                clock + 20, number + 2, _STREAM,
            )  # fmt: skip
            clock += 61
        number += 2
        yield op("c10d::_allgather_base_", clock, 50.0, number, **shapes)
        record = {
            "Collective name": "_allgather_base", "dtype": "BFloat16", "Group size": 8,
            "In msg nelems": 1000 + layer, "Out msg nelems": 8 * (1000 + layer),
            "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
            "Process Group Description": "default_pg", "Global rank start": 0,
            "Global rank stride": 1, "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
        }  # fmt: skip
        yield op("record_param_comms", clock + 5, 40.0, number + 1, **record)
        yield from launched("ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long)",
                            clock + 20, number + 1, _NCCL)  # fmt: skip
        clock += 51
    yield {
        "ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": _MAIN,
        "tid": _MAIN, "ts": begin - 1, "dur": clock - begin + 2,
        "args": {"External id": number + 9},
    }  # fmt: skip


def write(path: Path, size: int, steps: int = 3) -> int:
    """Write about ``size`` bytes; returns the number of events."""
    sample = sum(len(json.dumps(event)) + 3 for event in events(100, 0, 0, 0.0))
    layers = max(1, size * 100 // sample // steps)
    count, separator = 0, ""
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "record_shapes": 1, "distributedInfo": {"backend": "nccl"')
        file.write(', "rank": 0, "world_size": 8}, "traceEvents": [\n')
        for step in range(steps):
            start = 1.7e12 + step * layers * 200
            for event in events(layers, step, step * layers * 9, start):
                file.write(separator + json.dumps(event))
                separator = ",\n"
                count += 1
        file.write('\n], "traceName": "trace.json"}\n')
    return count


def main() -> None:
    """Write, read, report."""
    from flint.converters.profilers.kineto.observe import observe

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=int, nargs="*", default=[25, 50, 100])
    for megabytes in parser.parse_args().megabytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            count = write(path, megabytes * 10**6)
            begin = time.perf_counter()
            trace = observe(path)
            seconds = time.perf_counter() - begin
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{path.stat().st_size / 1e6:.1f} MB, {count:,} events, {len(trace):,} ops: "
                f"read in {seconds:.2f} s, peak memory {peak:.0f} MiB"
            )


if __name__ == "__main__":
    main()
