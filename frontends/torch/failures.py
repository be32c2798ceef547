"""Errors of the user's code, with the line and advice.

with users_code("the step"): step()      # "the step failed at train.py:31: ValueError: ..."
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
from torch._subclasses.fake_tensor import UnsupportedOperatorException

from flint.capturing.user_frames import one_line, user_frame
from flint.errors import FlintError
from flint.frontends.torch.cluster import registration
from flint.frontends.torch.recording.schemas import tensors_in
from flint.frontends.torch.user_lines import at_line, users_line_of

#: Name of an exception -> what to do about it.
_ADVICE = dict.fromkeys(
    ("DynamicOutputShapeException", "DataDependentOutputException"),
    ": the result's shape depends on values, and a captured step has none: keep shapes fixed "
    "(torch.where, masks, padding to a capacity)",
) | {"MemoryError": "out of memory: build the model on the meta device or raise the memory limit"}

#: What PyTorch says where a program compiles a kernel -> what to do about it.
_COMPILING = dict.fromkeys(
    ("CUDA_HOME environment variable is not set", "Error building extension", "Ninja is required"),
    ": the program compiles kernels of its own, and a capture records no others than PyTorch's, "
    "Triton's and those that have stand-ins; start it without them, if it has such an option",
)

#: Namespaces of PyTorch's own ops.
_TORCHS = frozenset(
    (
        "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_test", "_native",
        "_quantized", "_test", "aten", "c10d", "c10d_functional", "debug_mode_ops", "debugprims",
        "export", "flex_lib", "fsdp", "inductor", "inductor_prims", "mkl", "mkldnn",
        "mkldnn_prepacked", "onednn", "onnx", "onnx_symbolic", "prim", "prims", "profiler",
        "quantization", "quantized", "quantized_decomposed", "rngprims", "sparse", "static_runtime",
        "streams", "symm_mem",
    )
)  # fmt: skip


@contextlib.contextmanager
def users_code(what: str) -> Iterator[None]:
    """Within it, errors of the user's code name their line."""
    try:
        yield
    except FlintError:
        raise
    except Exception as raised:
        error = lost_error(raised)
        if isinstance(error, FlintError):
            raise error from None
        if missing := without_stand_in(error):
            raise missing from error
        at = at_line(*users_line_of(error.__traceback__))
        text = " ".join(str(error).split())[:500]
        raise FlintError(
            f"{what} failed{at}: {type(error).__name__}: {text}{advice(error)}"
        ) from error


def lost_error(raised: BaseException) -> BaseException:
    """The original error behind one that C++ or a distributed checkpoint has replaced, if any."""
    if isinstance(raised, SystemError):
        return registration.passed_error() or raised
    if type(raised).__name__ == "CheckpointException":
        for error, _ in getattr(raised, "failures", {}).values():
            return lost_error(error)
    return raised


def advice(error: BaseException) -> str:
    """Advice about an error, to follow its text."""
    text = str(error)
    compiling = next((say for begin, say in _COMPILING.items() if text.startswith(begin)), "")
    return _ADVICE.get(type(error).__name__, compiling)


def without_stand_in(error: BaseException) -> FlintError | None:
    """The failure of an extension's own kernel, which is for GPUs alone; None for other errors."""
    op = _extensions_op(error)
    if op is None:
        return None
    where = user_frame(error)
    raised = f"{type(error).__name__}: {one_line(error)}".rstrip(".")
    if isinstance(error, UnsupportedOperatorException):
        raised = "what it gives is not known without it (torch.library.register_fake tells that)"
    return FlintError(
        f"{f'{where}: ' if where else ''}{op} is an op of an extension, whose own kernel has no "
        f"stand-in in a capture: {raised}; start the program without it, if it has such an option"
    )


def _extensions_op(error: BaseException) -> str | None:
    """The op of an extension in whose kernel, which is not Python, an error was raised.

    It counts if it was called with a tensor of the device: others run as they do without Flint.
    """
    op: Any = None
    if isinstance(error, UnsupportedOperatorException):
        op = error.func
    elif isinstance(error, RuntimeError):
        op = _op_of_the_device(error.__traceback__)
    if not isinstance(op, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return None
    namespace, name, *_ = str(op).split(".")
    return None if namespace in _TORCHS else f"{namespace}.{name}"


def _op_of_the_device(trace: TracebackType | None) -> Any:
    """What the innermost frame calls, if that is a method that is given a tensor of the device."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    known: Any = {} if trace is None else trace.tb_frame.f_locals
    given, named = known.get("args"), known.get("kwargs")
    if not isinstance(given, tuple) or not isinstance(named, dict):
        return None
    on_device = any(item.device.type != "cpu" for item in tensors_in([*given, *named.values()]))
    return known.get("self") if on_device else None
