"""CUDA's names mean the CPU: a program that insists on GPUs runs for real without one.

The idea: the program takes the branches that it takes on GPUs, and what it then asks of a device,
NCCL or ``torch.cuda`` happens on the CPU with gloo.  A scaled sum becomes a sum, which
gloo has.
"""

import functools
import os
import types

import torch
import torch._dynamo  # it looks at the functions that are replaced below
import torch.distributed as dist
from cuda_attention import as_on_cuda
from torch.distributed import distributed_c10d
from torch.distributed.fsdp import FullyShardedDataParallel, _init_utils
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")
PROPERTIES = types.SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", total_memory=80 * 2**30, major=9, minor=0,
    multi_processor_count=132, gcnArchName="",
)  # fmt: skip
#: What functions of torch.cuda answer.
ANSWERS = {
    **dict.fromkeys(
        ("can_device_access_peer", "is_available", "is_initialized", "is_bf16_supported"), True
    ),
    **dict.fromkeys(("_is_in_bad_fork", "is_current_stream_capturing"), False),
    **dict.fromkeys(
        ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0
    ),
    **dict.fromkeys(
        ("set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "init",
         "_lazy_init", "manual_seed", "manual_seed_all", "ipc_collect", "set_rng_state_all",
         "reset_max_memory_allocated", "_lazy_call", "set_sync_debug_mode",
         "reset_accumulated_memory_stats", "reset_max_memory_cached")
    ),
    **dict.fromkeys(("power_draw", "utilization", "temperature", "clock_rate"), 0),
    **dict.fromkeys(("memory_cached", "max_memory_cached"), 0),
    "memory_summary": "",
    "get_device_capability": (9, 0),
    "get_sync_debug_mode": 0,
    "get_device_properties": PROPERTIES,
    "get_device_name": PROPERTIES.name,
    "mem_get_info": (PROPERTIES.total_memory,) * 2,
    "memory_stats": {
        f"{kind}.all.{what}": 0
        for kind in ("active_bytes", "allocated_bytes", "reserved_bytes")
        for what in ("current", "peak")
    } | {"num_alloc_retries": 0, "num_ooms": 0},
}  # fmt: skip


def mapped(item):
    """A device or its name: CUDA's become the CPU's."""
    if isinstance(item, torch.device):
        return CPU if item.type == "cuda" else item
    if isinstance(item, str) and item.partition(":")[0] == "cuda":
        return "cpu"
    return item


class _Mapping(TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.device:  # what it is called stays; a number alone is a GPU's
            named = ("cuda", *args) if args and isinstance(args[0], int) else args
            return function(*named, **kwargs)
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.Tensor.type and len(args) == 1 and not kwargs:
            return function(*args).replace("torch.", "torch.cuda.")
        if function is torch.Tensor.type and isinstance(args[1], str):
            args = args[0], args[1].replace("torch.cuda.", "torch.")
        if function is torch.Tensor.to and len(args) > 1 and isinstance(args[1], int):
            args = (args[0], CPU, *args[2:])
        if function is torch._C._nn._parse_to:  # what a module is moved to
            args = tuple(CPU if type(item) is int else item for item in args)
        args = tuple(map(mapped, args))
        if "device" in kwargs:
            device = kwargs["device"]
            kwargs["device"] = CPU if isinstance(device, int) else mapped(device)
        kwargs.pop("pin_memory", None)
        with as_on_cuda(function, args, kwargs):
            return function(*args, **kwargs)


class _Stream:
    """A stream or an event: on the CPU what is called has happened when it returns."""

    device = CPU

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def record_event(self, *_):
        return self

    def elapsed_time(self, _):
        return 1.0

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def apply():
    """From here on, in this process."""
    cuda = torch.cuda
    for name, answer in ANSWERS.items():
        setattr(cuda, name, _answering(answer))
    cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda.current_device = lambda: int(os.environ.get("LOCAL_RANK", "0"))
    for owner in (cuda, cuda.random):
        owner.get_rng_state = lambda *_, **__: torch.get_rng_state()
        owner.get_rng_state_all = lambda: [torch.get_rng_state()]
        owner.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    cuda.default_generators = (torch.default_generator,) * 8
    for name in filter(lambda name: name.endswith("Tensor"), dir(cuda)):
        setattr(cuda, name, getattr(torch, name))  # cuda.FloatTensor([1.0])
    cuda.Stream = cuda.Event = cuda.stream = cuda.device = _Stream
    cuda.current_stream = cuda.default_stream = _Stream
    vars(torch._C).setdefault("_cuda_getCurrentRawStream", lambda _: 0)  # kernels' packages
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_: None
    torch.version.cuda = torch.version.cuda or "12.8"  # torchvision compares it with its own
    torch.Tensor.record_stream = lambda *_: None
    torch.Tensor.pin_memory = lambda tensor, *_: tensor  # also in a data loader's thread
    for name, answer in (
        ("is_available", True), ("current_accelerator", torch.device("cuda")), ("synchronize", None),
        ("current_device_index", 0), ("current_stream", _Stream()), ("set_device_index", None),
    ):  # fmt: skip
        setattr(torch.accelerator, name, _answering(answer))
    torch.accelerator.device_count = cuda.device_count
    torch._utils._get_available_device_type = lambda: "cpu"
    for name in ("memory_stats", "get_device_properties", "get_device_name", "set_device",
                 "reset_peak_memory_stats", "empty_cache", "manual_seed_all"):  # fmt: skip
        setattr(torch.cpu, name, _answering(ANSWERS[name]))
    torch.cpu.current_device = lambda: 0
    _init_utils._get_compute_device = lambda *_: CPU
    DistributedDataParallel._passing_sync_batchnorm_handle = lambda *_: None
    for owner, name, at, key, change in (
        (torch.autocast, "__init__", 1, "device_type", mapped),
        (torch.amp.GradScaler, "__init__", 1, "device", mapped),
        (torch, "set_default_device", 0, "device", mapped),
        (torch, "load", 1, "map_location", mapped),
        (torch, "get_autocast_dtype", 0, "device_type", mapped),
        (torch, "is_autocast_enabled", 0, "device_type", mapped),
        (DistributedDataParallel, "__init__", 2, "device_ids", lambda _: None),
        (DistributedDataParallel, "__init__", 3, "output_device", lambda _: None),
        (FullyShardedDataParallel, "__init__", 9, "device_id", lambda _: CPU),
        (dist, "init_device_mesh", 0, "device_type", mapped),
        (dist.device_mesh, "init_device_mesh", 0, "device_type", mapped),
        (dist.DeviceMesh, "__init__", 1, "device_type", mapped),
    ):
        setattr(owner, name, _argument(getattr(owner, name), at, key, change))
    _groups()
    for owner in (torch.autograd, torch.autograd.graph):
        owner._engine_run_backward = _mapped_within(owner._engine_run_backward)
    _Mapping().__enter__()


def _mapped_within(engine):
    """The backward pass: it was called through the mapping, which is off while it is handled."""

    @functools.wraps(engine)
    def run(*args, **kwargs):
        with _Mapping():
            return engine(*args, **kwargs)

    return run


def _answering(answer):
    return lambda *_, **__: answer


def _groups():
    """Groups are gloo's, whichever are asked for."""
    for name in ("init_process_group", "new_group", "new_subgroups"):
        _everywhere(name, _gloo)
    for name in ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor",
                 "reduce_scatter_single"):  # fmt: skip
        _everywhere(name, _summed)
    _everywhere("all_to_all_single", _split)
    for name in ("all_gather_into_tensor", "all_gather_single"):
        if hasattr(distributed_c10d, name):
            _everywhere(name, _flat)
    dist.Work.get_future = _awaited(dist.Work.get_future)
    dist._make_nccl_premul_sum = lambda _: dist.ReduceOp.SUM
    dist.is_nccl_available = lambda: True
    torch.cuda.nccl.version = lambda: (2, 27, 3)
    for owner in (dist, distributed_c10d):
        owner.get_default_backend_for_device = lambda _: "gloo"


def _awaited(get_future):
    """Some of gloo's works have no future: one that has its result, when they have ended."""

    def get(work):
        try:
            return get_future(work)
        except RuntimeError:
            work.wait()
            done = torch.futures.Future()
            done.set_result(None)
            return done

    return get


def _everywhere(name, wrapped):
    new = wrapped(getattr(distributed_c10d, name))
    for owner in (dist, distributed_c10d):
        setattr(owner, name, new)


def _gloo(function):
    @functools.wraps(function)
    def called(*args, **kwargs):
        kwargs.pop("device_id", None)
        kwargs.pop("pg_options", None)
        if function.__name__ == "init_process_group":
            args, kwargs["backend"] = args[1:], "gloo"
        elif "backend" in kwargs:
            kwargs["backend"] = "gloo"
        return function(*args, **kwargs)

    return called


def _split(function):
    """Sizes that a program copies from a GPU to numpy are still a tensor where there is none."""

    @functools.wraps(function)
    def called(*args, **kwargs):
        args = (*args[:2], *map(_numbers, args[2:4]), *args[4:])
        for name in ("output_split_sizes", "input_split_sizes"):
            kwargs |= {name: _numbers(kwargs[name])} if name in kwargs else {}
        return function(*args, **kwargs)

    return called


def _flat(function):
    """NCCL takes any shapes that have the right numbers of elements; gloo compares them."""

    @functools.wraps(function)
    def called(*args, **kwargs):
        kwargs = {key: _row(item) for key, item in kwargs.items()}
        return function(*map(_row, args), **kwargs)

    return called


def _row(item):
    return item.reshape(-1) if isinstance(item, torch.Tensor) else item


def _numbers(sizes):
    return sizes.tolist() if isinstance(sizes, torch.Tensor) else sizes


def _summed(function):
    @functools.wraps(function)
    def called(*args, **kwargs):
        if "op" in kwargs:
            kwargs["op"] = _sum(kwargs["op"])
        return function(*map(_sum, args), **kwargs)

    return called


def _sum(item):
    is_scaled = isinstance(item, dist.ReduceOp | dist.ReduceOp.RedOpType) and any(
        item == kind for kind in (dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM)
    )
    return dist.ReduceOp.SUM if is_scaled else item


def _argument(function, at, key, change):
    @functools.wraps(function)
    def called(*args, **kwargs):
        if len(args) > at:
            args = (*args[:at], change(args[at]), *args[at + 1 :])
        if key in kwargs:
            kwargs[key] = change(kwargs[key])
        return function(*args, **kwargs)

    return called
