"""The recording device's module: what ``torch.flint`` (and here ``torch.cuda``) answers.

The idea: training programs ask their device for its name, memory and capabilities before they
train.  The answers describe one accelerator per rank, by default an H100, on which nothing is
allocated; they are in one place.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from flint.cost.accelerators import load_accelerator
from flint.errors import UsageError
from flint.frontends.torch.cluster import device
from flint.frontends.torch.cluster.device_words import numbered
from flint.frontends.torch.cluster.memory import account
from flint.frontends.torch.user_lines import inside_torch

#: Number of the accelerator in CUDA's terms: compute capability, and L2 cache in MiB (NVIDIA's
#: CUDA programming guide and data sheets; AMD's are those of ROCm's gfx942 and gfx950).
_GENERATIONS = {
    "a100-sxm": ((8, 0), 40), "h100-sxm": ((9, 0), 50), "h200-sxm": ((9, 0), 50),
    "b200": ((10, 0), 126), "gb200": ((10, 0), 126),
    "b300": ((10, 3), 126), "gb300": ((10, 3), 126),
    "mi300x": ((9, 4), 256), "mi325x": ((9, 4), 256),
    "mi350x": ((9, 5), 256), "mi355x": ((9, 5), 256),
}  # fmt: skip
#: The accelerator that most public trainers know.
_USUAL = "h100-sxm"
#: The generator of a device, which draws nothing; programs save its state and set it.
GENERATOR = torch.Generator()


@dataclass(frozen=True, slots=True)
class Properties:
    """What ``get_device_properties`` answers; sizes in bytes."""

    name: str
    total_memory: int
    multi_processor_count: int
    major: int
    minor: int
    L2_cache_size: int
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    shared_memory_per_block: int = 48 * 2**10
    shared_memory_per_block_optin: int = 227 * 2**10
    shared_memory_per_multiprocessor: int = 228 * 2**10
    regs_per_multiprocessor: int = 65536
    is_integrated: bool = False
    is_multi_gpu_board: bool = False
    gcnArchName: str = ""
    uuid: str = "00000000-0000-0000-0000-000000000000"


def is_cuda(accelerator: str) -> bool:
    """Whether PyTorch calls an accelerator of ``flint.cost`` "cuda"."""
    return accelerator in _GENERATIONS


def properties_of(accelerator: str) -> Properties:
    """An accelerator of ``flint.cost`` as PyTorch describes one.

    Raises:
        UsageError: no such accelerator, or none that PyTorch calls "cuda".
    """
    if not is_cuda(accelerator):
        raise UsageError(f"--device {accelerator}: PyTorch programs see {', '.join(_GENERATIONS)}")
    (major, minor), cache = _GENERATIONS[accelerator]
    found = load_accelerator(accelerator)
    return Properties(
        name=found.name,
        total_memory=found.memory_bytes,
        multi_processor_count=int(found.kernel.units),
        major=major,
        minor=minor,
        L2_cache_size=cache * 2**20,
    )


class _Described:
    """The device of this process: what it is, and which number the program gives it."""

    properties: Properties = properties_of(_USUAL)
    devices: int = 8
    current: int = 0


def describe(accelerator: str | None, devices: int) -> Properties:
    """Say which device programs see, and how many of them a host has: what they are answered."""
    _Described.properties = properties_of(accelerator or _USUAL)
    _Described.devices = devices
    return _Described.properties


class DeviceModule:
    """``torch.flint``: one device per process, number 0, as a program's LOCAL_RANK finds it."""

    Stream: Any = device.Stream
    Event: Any = device.Event

    device: Any = None  # below

    def current_stream(self, *_: Any, **__: Any) -> Any:
        return device.current_stream()

    def default_stream(self, *_: Any, **__: Any) -> Any:
        return device.Stream(stream_id=0)

    def stream(self, stream: Any) -> Any:
        return contextlib.nullcontext() if stream is None else stream

    def set_stream(self, stream: Any) -> None:
        if stream is not None:
            device.set_stream(stream)

    def synchronize(self, *_: Any, **__: Any) -> None:
        line = device.timeline()
        line.host_wait(line.moment_of_all())

    def memory_stats(self, *_: Any, **__: Any) -> dict[str, int]:
        return account.statistics()

    def empty_cache(self, *_: Any, **__: Any) -> None:
        account.empty_cache()

    def mem_get_info(self, *_: Any, **__: Any) -> tuple[int, int]:
        total = _Described.properties.total_memory
        return max(total - account.reserved, 0), total

    def memory_summary(self, *_: Any, **__: Any) -> str:
        return "\n".join(f"{name}: {number}" for name, number in account.statistics().items())

    def get_rng_state(self, *_: Any, **__: Any) -> torch.Tensor:
        return GENERATOR.get_state()

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state() for _ in range(_Described.devices)]

    def device_count(self) -> int:
        return _Described.devices

    def set_device(self, device: Any = None) -> None:
        index = _index(device)
        _Described.current = 0 if index is None else int.__int__(index)

    def current_device(self) -> int:
        # Dynamo, which knows no frames, asks for the program.  PyTorch makes devices of the number,
        # and there is one in a process.
        if torch.compiler.is_dynamo_compiling():
            return _Described.current
        return 0 if inside_torch(sys._getframe(1)) else _Described.current

    def get_device_properties(self, *_: Any, **__: Any) -> Properties:
        return _Described.properties

    def get_device_name(self, *_: Any, **__: Any) -> str:
        return _Described.properties.name

    def get_device_capability(self, *_: Any, **__: Any) -> tuple[int, int]:
        return _Described.properties.major, _Described.properties.minor

    def get_arch_list(self) -> list[str]:
        return ["sm_{}{}".format(*self.get_device_capability())]

    def device_of(self, *_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def _index(device: Any) -> int | None:
    """The number in what PyTorch takes for a device."""
    if device is None or isinstance(device, int):
        return device
    return device.idx if isinstance(device, Current) else numbered(torch.device(device))


class Current:
    """``torch.cuda.device``: within it, the program's device has another number.

    Attributes:
        idx: the number; -1: it stays as it is.
    """

    def __init__(self, device: Any) -> None:
        found = _index(device)
        self.idx = -1 if found is None else found
        self._before = 0

    def __enter__(self) -> None:
        self._before = _Described.current
        if self.idx >= 0:
            _Described.current = int.__int__(self.idx)

    def __exit__(self, *_: object) -> None:
        _Described.current = self._before


DeviceModule.device = Current


class Markers:
    """Names for a profiler that does not run: every function of NVTX's, and of CUDA's own."""

    def __getattr__(self, _: str) -> Any:
        return _answering(0)


#: Functions that answer the same whatever they are asked.
_ANSWERS: dict[str, Any] = {
    # the device
    **dict.fromkeys(("is_initialized", "is_available", "can_device_access_peer"), True),
    **dict.fromkeys(("_is_in_bad_fork", "is_current_stream_capturing"), False),
    **dict.fromkeys(("_exchange_device", "_maybe_exchange_device", "current_device_index"), 0),
    **dict.fromkeys(("init", "set_device_index", "set_sync_debug_mode", "get_gencode_flags")),
    **dict.fromkeys(("get_sync_debug_mode", "utilization", "memory_usage", "clock_rate"), 0),
    **dict.fromkeys(("temperature", "power_draw"), 0),
    "list_gpu_processes": "",
    "graph_pool_handle": (0, 0),
    **dict.fromkeys(("current_blas_handle", "current_solver_handle"), 0),
    # memory
    "memory_stats_as_nested_dict": {},
    "host_memory_stats": {},
    "host_memory_stats_as_nested_dict": {},
    "memory_snapshot": [],
    "get_allocator_backend": "native",
    "get_per_process_memory_fraction": 1.0,
    **dict.fromkeys(
        (
            "ipc_collect", "reset_accumulated_memory_stats",
            "reset_accumulated_host_memory_stats",
            "reset_peak_host_memory_stats", "set_per_process_memory_fraction",
            "change_current_allocator", "caching_allocator_enable",
        )
    ),
    # random numbers: no values are drawn
    "initial_seed": 0,
    **dict.fromkeys(("manual_seed", "manual_seed_all", "seed", "seed_all")),
    **dict.fromkeys(("set_rng_state", "set_rng_state_all")),
    # number types
    "get_amp_supported_dtype": [torch.bfloat16, torch.float16, torch.float32],
    **dict.fromkeys(("is_bf16_supported", "is_tf32_supported"), True),
}  # fmt: skip


#: Functions that answer with a figure of the memory that the program holds.
_OF_MEMORY: dict[str, Callable[[], int]] = {
    "memory_allocated": lambda: account.current,
    "max_memory_allocated": lambda: account.peak,
    **dict.fromkeys(("memory_reserved", "memory_cached"), lambda: account.reserved),
    **dict.fromkeys(("max_memory_reserved", "max_memory_cached"), lambda: account.reserved_peak),
    "device_memory_used": lambda: account.reserved,
}
_RESETS = ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached")


def _asking(ask: Callable[[], Any]) -> Any:
    return lambda *_, **__: ask()


for _name, _ask in _OF_MEMORY.items():
    setattr(DeviceModule, _name, _asking(_ask))
for _name in _RESETS:
    setattr(DeviceModule, _name, _asking(account.restart_peak))


def _answering(answer: Any) -> Any:
    return lambda *_, **__: answer


for _name, _answer in _ANSWERS.items():
    setattr(DeviceModule, _name, _answering(_answer))
