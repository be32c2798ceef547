"""Lowering for one platform, or for another if an op has no form for the first.

The idea: the partitioner's work is the same for all platforms, so a program is lowered for the CPU;
with kernels that only TPUs or only GPUs have, for those.  If all fail, the first platform's error
is raised: kernels for one platform fail on others in many ways.  But if a platform has the kernel
and cannot split it, that is the error.

    module, platform = on_first(("cpu", "tpu", "cuda"), lambda platform: ...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

#: JAX's names of the platforms that a program may be lowered for if no target is named.
PLATFORMS = ("cpu", "tpu", "cuda")

#: Part of Pallas's message for a kernel outside of manual computations.
_UNSPLIT = "cannot be automatically partitioned"

T = TypeVar("T")


def on_first(platforms: Sequence[str], attempt: Callable[[str], T]) -> tuple[T, str]:
    """The result on the first platform that has a form for every op, and the platform.

    Raises:
        Exception: the error of the first attempt, if it was not about the platform, or if all fail;
            the error of a platform that has the kernels and cannot split them.
    """
    first: Exception | None = None
    for platform in platforms:
        try:
            return attempt(platform), platform
        except Exception as error:  # re-raised below unless another platform does it
            if _UNSPLIT in str(error) or (first is None and not _of_platform(error)):
                raise
            first = first or error
    assert first is not None
    raise first


def _of_platform(error: Exception) -> bool:
    """Whether an op has no form for the platform that was tried."""
    kinds = isinstance(error, NotImplementedError | ValueError)
    return kinds and ("platform" in str(error) or "CPU" in str(error))
