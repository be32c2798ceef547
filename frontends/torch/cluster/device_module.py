"""The recording device's module: what ``torch.flint`` (and here ``torch.cuda``) answers.

The idea: training programs ask their device for its name, memory and capabilities before they
train.  The answers describe one large accelerator per rank on which nothing is allocated; they are
in one place, and what a step does must not depend on them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from flint.frontends.torch.cluster import device

#: What code is told about the device: as large as an H100 SXM (NVIDIA's data sheet: 80 GB, 132
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

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def init(self) -> None:
        return None

    def _is_in_bad_fork(self) -> bool:
        return False

    # devices

    def current_device(self) -> int:
        return 0

    def set_device(self, _: Any) -> None:
        return None

    def device_count(self) -> int:
        return 8

    def _exchange_device(self, _: int) -> int:
        return 0

    def _maybe_exchange_device(self, _: int) -> int:
        return 0

    @contextlib.contextmanager
    def device(self, _: Any) -> Iterator[None]:
        yield

    def get_device_name(self, _: Any = None) -> str:
        return Properties().name

    def get_device_properties(self, _: Any = None) -> Properties:
        return Properties()

    def get_device_capability(self, _: Any = None) -> tuple[int, int]:
        return _CAPABILITY

    # streams

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

    def is_current_stream_capturing(self) -> bool:
        return False

    # memory: nothing is allocated

    def empty_cache(self) -> None:
        return None

    def ipc_collect(self) -> None:
        return None

    def memory_allocated(self, _: Any = None) -> int:
        return 0

    max_memory_allocated = memory_allocated
    memory_reserved = memory_allocated
    max_memory_reserved = memory_allocated

    def memory_stats(self, _: Any = None) -> dict[str, int]:
        kinds = ("active_bytes", "allocated_bytes", "reserved_bytes", "inactive_split_bytes")
        found = {
            f"{kind}.all.{what}": 0
            for kind in kinds
            for what in ("current", "peak", "allocated", "freed")
        }
        return {**found, "num_alloc_retries": 0, "num_ooms": 0}

    def mem_get_info(self, _: Any = None) -> tuple[int, int]:
        return _MEMORY, _MEMORY

    def reset_peak_memory_stats(self, _: Any = None) -> None:
        return None

    reset_accumulated_memory_stats = reset_peak_memory_stats
    reset_max_memory_allocated = reset_peak_memory_stats

    def set_per_process_memory_fraction(self, *_: Any, **__: Any) -> None:
        return None

    # random numbers: no values are drawn

    def manual_seed(self, _: int) -> None:
        return None

    manual_seed_all = manual_seed
    seed_all = init
    seed = init

    def initial_seed(self) -> int:
        return 0

    def get_rng_state(self, _: Any = None) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8, device="cpu")

    def set_rng_state(self, *_: Any, **__: Any) -> None:
        return None

    # number types

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        return True
