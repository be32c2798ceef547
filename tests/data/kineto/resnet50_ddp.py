"""Facts of a real ResNet-50 DDP run, out of its Kineto trace (see README.md), as JSON.

    python resnet50_ddp.py kineto_resnet50_ddp_2xGPU_nccl_rank0.json.gz > resnet50_ddp.json

An op is listed when it launched something on the GPU itself, under the name that the profiler gave
it, in the order in which the CPU issued them; what was launched inside of another listed op belongs
to that one.  Every profiled step must give the same, or this fails.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from typing import Any

#: Elements per block of PyTorch's vectorized_elementwise_kernel: 128 threads times 4.
_BLOCK = 512


def conv_part(kernel: str) -> str:
    """Which of a convolution's products a cuDNN kernel computes; "" for what only moves data.

    CUTLASS names 1x1 convolutions by their GEMM's layouts: nn forward, nt towards the data, tn
    towards the weights; a split-K kernel only adds up.
    """
    if "split_k" in kernel or "ReduceSplitK" in kernel or "reduce_wgrad" in kernel:
        return ""
    for part, words in {
        "forward": ("fprop", "gemm_256x64_16x4_nn", "gemm_64x64_16x6_nn", "scudnn"),
        "data": ("dgrad", "gemm_256x64_16x4_nt", "gemm_64x64_16x6_nt"),
        "weights": (
            "wgrad", "gemm_256x64_16x4_tn", "gemm_64x64_16x6_tn", "ImplicitGemmConvolution",
        ),
    }.items():  # fmt: skip
        if any(word in kernel for word in words):
            return part
    return ""


def facts(events: list[dict[str, Any]], step: dict[str, Any]) -> dict[str, Any]:
    """What one profiled step issued."""

    def within(event: dict[str, Any], outer: dict[str, Any]) -> bool:
        return bool(outer["ts"] <= event["ts"] <= outer["ts"] + outer["dur"])

    issued = {
        event["args"]["External id"]: event
        for event in events
        if event.get("cat") == "cpu_op" and within(event, step)
    }
    launched: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy"):
            number = event["args"].get("External id")
            if number in issued:
                launched.setdefault(number, []).append(event)
    ordered = sorted(launched, key=lambda number: issued[number]["ts"])
    own = [
        number
        for number in ordered
        if not any(
            issued[other]["tid"] == issued[number]["tid"] and within(issued[number], issued[other])
            for other in ordered
            if other != number
        )
    ]
    ops: list[list[Any]] = []
    parts: Counter[str] = Counter()
    for number in own:
        op, kernels = issued[number], launched[number]
        args, name = op["args"], op["name"].removeprefix("aten::")
        entry: list[Any] = [name]
        if name == "record_param_comms":
            entry = [args["Collective name"], args["dtype"], args["In msg nelems"]]
        elif "convolution" in name:
            found = Counter(filter(None, (conv_part(kernel["name"]) for kernel in kernels)))
            assert set(found.values()) == {1}, (name, [kernel["name"] for kernel in kernels])
            parts.update(found)
            entry.append("+".join(sorted(found)))
        elif "vectorized_elementwise_kernel<4" in kernels[0]["name"]:
            entry.append(kernels[0]["args"]["grid"][0] * _BLOCK)
        ops.append(entry)
    assert len({event["args"]["stream"] for number in own for event in launched[number]}) == 2
    return {"ops": ops, "convolution_kernels": dict(sorted(parts.items()))}


def main(path: str) -> None:
    with gzip.open(path) as file:
        trace = json.load(file)
    events = trace["traceEvents"]
    steps = [
        event
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep")
    ]
    found = [facts(events, step) for step in steps]
    assert all(item == found[0] for item in found), "the steps differ"
    info = trace["distributedInfo"]
    counts = Counter(entry[0] for entry in found[0]["ops"])
    result = {
        "world_size": info["world_size"],
        "backend": info["backend"],
        "steps": len(steps),
        "counts": dict(sorted(counts.items())),
        "convolution_kernels": found[0]["convolution_kernels"],
        "ops": [" ".join(str(word) for word in entry) for entry in found[0]["ops"]],
    }
    json.dump(result, sys.stdout, indent=0)
    print()


if __name__ == "__main__":
    main(sys.argv[1])
