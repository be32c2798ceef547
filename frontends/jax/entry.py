"""Where a JAX step comes in: the versions are checked before anything private is imported.

The idea: some modules behind ``capturing.py`` import private parts of jax as they are loaded.  With
an untried jax that would be an ImportError that names a module; the check, made first, names the
versions.

    workload = capture(request)
"""

from __future__ import annotations

from flint.capturing.decorator import Request
from flint.frontends.jax.internals.versions import check_versions
from flint.workload.workload import Workload


def capture(request: Request) -> Workload:
    """Capture a JAX step.

    Raises:
        UsageError, FlintError: as ``Capture.capture``; an untried version of jax or jaxlib, with
            those that are known to work.
    """
    check_versions()
    from flint.frontends.jax.capturing import capture as capture_step

    return capture_step(request)
