"""Private parts of torch._dynamo and torch._inductor, as in torch 2.12 to 2.14, for an absent GPU.

The idea: Inductor asks the device's interface for the GPU's properties and Triton for its version;
both are answered here.  The generated Triton sources are never compiled: only the Python program
that calls the kernels is needed.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from flint.frontends.torch.cluster.device import NAME, current_stream
from flint.frontends.torch.patching import always_around, replace

#: The device that graphs are lowered for.
GPU = torch.device("cuda", 0)

#: Modules of Inductor that ask whether Triton is installed, each by a different name.
_ASKING = (
    "scheduler", "compile_fx", "fx_passes.pad_mm", "kernel.mm_grouped", "runtime.autotune_cache",
)  # fmt: skip

#: Questions that Inductor asks a device's interface -> the function of ``torch.cuda`` that answers.
_QUESTIONS = {
    "exchange_device": "_exchange_device", "maybe_exchange_device": "_maybe_exchange_device",
} | dict.fromkeys(
    ("is_available", "device_count", "current_device", "get_device_properties", "set_device",
     "is_bf16_supported", "synchronize", "memory_allocated", "device", "stream", "current_stream",
     "set_stream")
)  # fmt: skip

#: c10's table of guards, and numbers of types of devices in it (c10/core/DeviceType.h).
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA, _META = 1, 14


def no_compiler() -> None:
    """Make Inductor find the GPU and Triton, and compile nothing for them."""
    from torch._dynamo import device_interface
    from torch._dynamo.variables import optimizer
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
    from torch.utils import _triton

    interface: Any = device_interface.CudaInterface
    for question, name in _QUESTIONS.items():
        setattr(interface, question, staticmethod(_of_cuda(name or question)))
    for question in ("get_device_properties", "current_device"):
        setattr(interface.Worker, question, staticmethod(_of_cuda(question)))
    interface.get_raw_stream = staticmethod(lambda _: current_stream().stream_id)
    interface.is_triton_capable = staticmethod(lambda _=None: True)
    interface.raise_if_triton_unavailable = staticmethod(lambda _=None: None)
    for name in (NAME, f"{NAME}:0"):
        device_interface.register_interface_for_device(name, interface)
    replace(_triton, "triton_hash_with_backend", lambda: "")
    for name in _ASKING:
        replace(importlib.import_module(f"torch._inductor.{name}"), "has_triton", lambda: True)
    replace(importlib.import_module("torch._inductor.select_algorithm"), "PyCodeCache", _Written)
    # It would import what only builds with CUDA have; no CUDA graph is recorded here.
    replace(optimizer, "_is_static_for_cudagraphs", _has_static_address)
    # Found by functions of torch.cuda, several of which become one function of the capture.
    TorchInGraphFunctionVariable._get_handlers()
    _lend_guard()


class _Written:
    """Stands for modules of a template's source, which are loaded in order to time it."""

    __file__ = key = ""

    @classmethod
    def load(cls, *_: Any, **__: Any) -> type[_Written]:
        """No module, which would need Triton."""
        return cls


def _has_static_address(tensor: torch.Tensor) -> bool:
    """As a GPU answers where no CUDA graph is recorded."""
    from torch._dynamo.utils import get_static_address_type

    return get_static_address_type(tensor) is not None


def _of_cuda(name: str) -> Callable[..., Any]:
    """A function of ``torch.cuda``, looked up when it is called."""
    return lambda *args, **kwargs: getattr(torch.cuda, name)(*args, **kwargs)


def _lend_guard() -> None:
    """Allow CUDA tensors to be indexed, for which PyTorch calls CUDA's guard of the current device.

    The guard of "meta", which does nothing, replaces it in c10's table, which has a row per type.
    """
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    guards = (ctypes.c_void_p * (_META + 1)).in_dll(library, _GUARDS)
    guards[_CUDA] = guards[_META]


def settle() -> None:
    """Settings of Dynamo and AOTAutograd: sizes are those of the step; errors leave code eager."""
    from torch._dynamo import config as dynamo
    from torch._functorch import config as autograd

    dynamo.automatic_dynamic_shapes = False
    dynamo.assume_static_by_default = True
    dynamo.suppress_errors = True
    autograd.enable_autograd_cache = False
    # A backward graph that cannot be lowered is found while its forward code can be left eager.
    autograd.force_non_lazy_backward_lowering = True


def setting(name: str) -> Any:
    """The value of a setting of Inductor, which may be of a part ("triton.cudagraphs")."""
    from torch._inductor import config

    return functools.reduce(getattr, name.split("."), config)


def backend() -> Any:
    """The class of the backend that ``torch.compile`` has by default."""
    return getattr(torch, "_TorchCompileInductorWrapper")  # noqa: B009


def uniform_values() -> Any:
    """The class that finds tensors of one value in a graph, by making and reading them."""
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder

    return UniformValueConstantFolder


def tracer() -> Any:
    """The class whose calls trace a frame."""
    from torch._dynamo.convert_frame import ConvertFrameAssert

    return ConvertFrameAssert


def calls_hooks(code: CodeType) -> bool:
    """Whether code is what PyTorch puts around an optimizer's step in order to call hooks."""
    maker = torch.optim.Optimizer.profile_hook_step.__code__
    return code in maker.co_consts


def untraced() -> Any:
    """What leaves a frame as it is; those that it calls are traced on their own."""
    from torch._dynamo.types import ConvertFrameReturn

    return ConvertFrameReturn()


def is_failure(error: Exception) -> bool:
    """Whether tracing or lowering could not continue: not what Dynamo says to skip a frame."""
    from torch._dynamo import exc

    known = (
        exc.BackendCompilerFailed, exc.FailOnRecompileLimitHit, exc.InternalTorchDynamoError,
        exc.TorchRuntimeError, exc.Unsupported, exc.UserError,
    )  # fmt: skip
    return isinstance(error, known) or type(error).__module__ != exc.__name__


def function_modes() -> Any:
    """The class that has the modes for functions while a frame is traced."""
    from torch._dynamo.variables.torch_function import SymbolicTorchFunctionState

    return SymbolicTorchFunctionState


def modes_now() -> list[Any]:
    """The active modes for functions, the last one innermost."""
    found: Any = importlib.import_module("torch.overrides")
    return list(found._get_current_function_mode_stack())


def around_left_modes(function: Callable[..., Any]) -> None:
    """Replace how compiled code that entered or left modes for functions sets their stack: by
    ``function(original, stack)``."""
    from torch._dynamo import utils

    always_around(utils, "set_torch_function_mode_stack", function)


def random_ops() -> tuple[Any, Any]:
    """The classes of the ops around random numbers that are drawn again: the one that keeps the
    generator's state, and the one that uses it."""
    from torch._prims import rng_prims

    return type(rng_prims.run_and_save_rng_state), type(rng_prims.run_with_rng_state)


def is_tracing() -> bool:
    """Whether ops become a graph now."""
    kinds = torch._C._TorchDispatchModeKey
    now = getattr(torch._C, "_get_dispatch_mode")  # noqa: B009
    return any(now(kind) is not None for kind in (kinds.PROXY, kinds.FUNCTIONAL))


def graphs() -> Any:
    """The class of graphs that are lowered."""
    from torch._inductor.graph import GraphLowering

    return GraphLowering


def graph_now() -> Any:
    """The graph that is being lowered: one within another is a graph of its own."""
    from torch._inductor.virtualized import V

    return V.graph


def kernel_makers() -> tuple[Any, Any]:
    """The classes that define kernels of a schedule: for the GPU, and for the host."""
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling

    return TritonScheduling, CppScheduling


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor that is a part of a buffer, or all of it: sizes, strides and offset in elements."""

    buffer: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


def part(node: Any) -> Part | None:
    """The part of a buffer that a node of Inductor stands for; None if it is no tensor."""
    from torch._inductor import ir

    if not isinstance(node, ir.IRNode):
        return None
    layout = node.get_layout()
    size, stride = (tuple(map(int, item)) for item in (layout.size, layout.stride))
    return Part(node.get_name(), size, stride, int(layout.offset))


def around_attention(function: Callable[..., Any]) -> None:
    """Replace how FlexAttention is lowered: by ``function(original, is_backward, *args)``."""
    from torch._inductor.lowering import lowerings

    ops: Any = torch.ops.higher_order
    both = (ops.flex_attention, ops.flex_attention_backward)
    for op, is_backward in zip(both, (False, True), strict=True):
        lowerings[op] = functools.partial(function, lowerings[op], is_backward)


def templates() -> list[Any]:
    """The buffers of the graph being lowered that templates of Triton compute."""
    from torch._inductor.ir import TritonTemplateBuffer
    from torch._inductor.virtualized import V

    return [item for item in V.graph.buffers if isinstance(item, TritonTemplateBuffer)]


def placeholders(subgraph: Any) -> list[Any]:
    """The arguments of a function that is a graph within a graph."""
    return [node for node in subgraph.graph_module.graph.nodes if node.op == "placeholder"]


def operations(subgraph: Any) -> list[str]:
    """Names of what such a function computes with numbers, in its order."""
    ops = [node.target for node in subgraph.graph_module.graph.nodes]
    return [
        op.overloadpacket.__name__ for op in ops if torch.Tag.pointwise in getattr(op, "tags", ())
    ]


def kept_results() -> Any:
    """The class that finds and keeps what was compiled, by keys."""
    from torch._inductor.codecache import FxGraphCache

    return FxGraphCache


def kept_graphs() -> Any:
    """The class of compiled graphs that are kept."""
    from torch._inductor.output_code import CompiledFxGraph

    return CompiledFxGraph


def quick_keys() -> None:
    """Leave PyTorch's own sources out of keys: all of a run's processes have the same ones."""
    from torch._inductor import codecache

    replace(codecache, "torch_key", lambda: b"")
    codecache.log.setLevel("ERROR")  # what cannot be kept is not worth a warning
