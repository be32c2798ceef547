"""A saved program in a request, for the process that partitions or compiles it.

The idea: those processes start faster without what reads saved programs.

    request = as_lowered(request)       # None: the reason is on stderr
"""

from __future__ import annotations

import sys

from flint.errors import FlintError
from flint.frontends.jax.requests import Compilation, Form
from flint.host.requests import REASON


def as_lowered(request: Compilation) -> Compilation | None:
    """A request as for a program lowered by JAX; None, with a reason on stderr, on failure."""
    if request.form is Form.LOWERED:
        return request
    from flint.frontends.jax.saved_module import lowered

    try:
        return lowered(request)
    except FlintError as error:
        sys.stderr.write(f"\n{REASON}{error}\n")
        return None
