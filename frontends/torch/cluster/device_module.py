"""The recording device's module: what ``torch.flint`` (and here ``torch.cuda``) answers.

The idea: training programs ask their device for its name, memory and capabilities before they
train.  The answers describe one large accelerator per rank on which nothing is allocated; they are
in one place, and what a step does must not depend on them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from flint.frontends.torch.cluster import device

#: What programs see of the device: as large as an H100 SXM (NVIDIA's data sheet: 80 GB, 132
#: SMs, compute capability 9.0), the accelerator that most public trainers know.
_MEMORY = 80 * 2**30
_PROCESSORS = 132
_CAPABILITY = (9, 0)


@dataclass(frozen=True, slots=True)
class Properties:
    """What ``get_device_properties`` answers; sizes in bytes."""

    name: str = "flint recording device"
    total_memory: int = _MEMORY
    multi_processor_count: int = _PROCESSORS
    major: int = _CAPABILITY[0]
    minor: int = _CAPABILITY[1]
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    shared_memory_per_block: int = 48 * 2**10
    L2_cache_size: int = 50 * 2**20
    is_integrated: bool = False
    is_multi_gpu_board: bool = False


class DeviceModule:
    """``torch.flint``: one device per process, number 0, as a program's LOCAL_RANK finds it."""

    Stream: Any = device.Stream
    Event: Any = device.Event

    def device(self, _: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def current_stream(self, _: Any = None) -> Any:
        return device.current_stream()

    def default_stream(self, _: Any = None) -> Any:
        return device.Stream(stream_id=0)

    def stream(self, stream: Any) -> Any:
        return contextlib.nullcontext() if stream is None else stream

    def set_stream(self, stream: Any) -> None:
        if stream is not None:
            device.set_stream(stream)

    def synchronize(self, _: Any = None) -> None:
        line = device.timeline()
        line.host_wait(line.moment_of_all())

    def memory_stats(self, _: Any = None) -> dict[str, int]:
        kinds = ("active_bytes", "allocated_bytes", "reserved_bytes", "inactive_split_bytes")
        sizes = {
            f"{kind}.all.{what}": 0
            for kind in kinds
            for what in ("current", "peak", "allocated", "freed")
        }
        return {**sizes, "num_alloc_retries": 0, "num_ooms": 0}

    def get_rng_state(self, _: Any = None) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8, device="cpu")


class Markers:
    """Names for a profiler that does not run: every function of NVTX's, and of CUDA's own."""

    def __getattr__(self, _: str) -> Any:
        return _answering(0)


#: Functions that answer the same whatever they are asked.
_ANSWERS: dict[str, Any] = {
    # the device
    **dict.fromkeys(("is_initialized", "is_available"), True),
    **dict.fromkeys(("_is_in_bad_fork", "is_current_stream_capturing"), False),
    **dict.fromkeys(("current_device", "_exchange_device", "_maybe_exchange_device"), 0),
    **dict.fromkeys(("init", "set_device")),
    "device_count": 8,
    "get_device_name": Properties().name,
    "get_device_properties": Properties(),
    "get_device_capability": _CAPABILITY,
    # memory: nothing is allocated
    **dict.fromkeys(("memory_allocated", "max_memory_allocated"), 0),
    **dict.fromkeys(("memory_reserved", "max_memory_reserved"), 0),
    "mem_get_info": (_MEMORY, _MEMORY),
    **dict.fromkeys(
        (
            "empty_cache", "ipc_collect", "reset_peak_memory_stats",
            "reset_accumulated_memory_stats", "reset_max_memory_allocated",
            "set_per_process_memory_fraction",
        )
    ),
    # random numbers: no values are drawn
    "initial_seed": 0,
    **dict.fromkeys(("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state")),
    # number types
    "get_amp_supported_dtype": [torch.bfloat16, torch.float16, torch.float32],
    "is_bf16_supported": True,
}  # fmt: skip


def _answering(answer: Any) -> Any:
    return lambda *_, **__: answer


for _name, _answer in _ANSWERS.items():
    setattr(DeviceModule, _name, _answering(_answer))
