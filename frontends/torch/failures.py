"""Errors of the user's code, with the line and advice.

with users_code("the step"): step()      # "the step failed at train.py:31: ValueError: ..."
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flint.errors import FlintError
from flint.frontends.torch.cluster import registration
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
